"""The two forms of an access line: combined, as Apache and nginx have it with our facts behind, and JSON. Knows no files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted

from sticky.observe.access import AccessRecord, Form, Over

compiled: Callable[[list[Over], int, str], list[str | None]] | None
try:
    from sticky.observe._line import combined as compiled
except ImportError:  # no compiler where Sticky was installed
    compiled = None

PURE = "STICKY_PURE"  #: an environment variable that, set to 1, leaves compiled code out

_NONE = "queue=0 connect=0"
_JSON = (
    '{"time":"%s%03dZ","client":"%s","server":"%s","session":"%s","container":"%s","method":"%s","target":%s,'
    '"status":%d,"bytes_in":%d,"bytes_out":%d,"queue":%s,"connect":%s,"first_byte":%s,"total":%.6f,'
    '"reason":"%s",%s}\n'
)
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f-\xff]')


class _Second:
    """A time's text, made once a second."""

    def __init__(self, form: str, utc: bool) -> None:
        self._form = form
        self._utc = utc
        self.second = -1
        self.text = ""

    def __call__(self, wall: float) -> str:
        second = int(wall)
        if second != self.second:
            self.second = second
            self.text = time.strftime(self._form, (time.gmtime if self._utc else time.localtime)(second))
        return self.text


class Combined:
    """Client, session (where the user stands), time, request line, status, bytes, referrer, agent; then what is ours."""

    def __init__(self) -> None:
        self._stamp = _Second("%d/%b/%Y:%H:%M:%S %z", False)
        self._compiled = None if os.environ.get(PURE) == "1" else compiled

    def plain_lines(self, over: list[Over]) -> list[str | None]:
        """See `Form`."""
        if self._compiled is None or not over:
            return [None] * len(over)
        stamp = self._stamp
        text = stamp(over[-1][0])
        return self._compiled(over, stamp.second, text)

    def facts(self, referer: str | None, agent: str | None) -> str:
        """See `Form`."""
        return f'"{_escaped(referer or "-")}" "{_escaped(agent or "-")}"'

    def line(self, wall: float, record: AccessRecord, target: str, facts: str) -> str:
        """See `Form`."""
        (client, method, _, status, bytes_in, bytes_out, session, container, server,
         queue, connect, first, total, reason, minor, _, _) = record  # fmt: skip
        if int(wall) != self._stamp.second:
            self._stamp(wall)
        waits = _NONE
        if queue or connect:
            waits = f"queue={_seconds(queue)} connect={_seconds(connect)}"
        target = _escaped(target)
        first_byte = f"{first:.6f}" if first else "0"
        return (  # a Unix socket has no address
            f'{client or "-"} - {session} [{self._stamp.text}] "{str(method, "latin-1")} {target} HTTP/1.{minor}" {status} '
            f"{bytes_out} {facts} {server} {container} in={bytes_in} {waits} first={first_byte} total={total:.6f} {reason}\n"
        )


class JSONLines:
    """An object a line; what never happened is null."""

    def __init__(self) -> None:
        self._stamp = _Second("%Y-%m-%dT%H:%M:%S.", True)

    def plain_lines(self, over: list[Over]) -> list[str | None]:
        """See `Form`."""
        return [None] * len(over)

    def facts(self, referer: str | None, agent: str | None) -> str:
        """See `Form`."""
        shown = ["null" if text is None else quoted(text) for text in (referer, agent)]
        return f'"referer":{shown[0]},"agent":{shown[1]}'

    def line(self, wall: float, record: AccessRecord, target: str, facts: str) -> str:
        """See `Form`."""
        connect, first = record.connect, record.first_byte
        return _JSON % (
            self._stamp(wall),
            wall % 1 * 1000,
            record.client or "-",
            record.server,
            record.session,
            record.container,
            record.method.decode("latin-1"),
            quoted(target),
            record.status,
            record.bytes_in,
            record.bytes_out,
            f"{record.queue:.6f}" if record.queue else "0",
            "null" if connect is None else f"{connect:.6f}",
            "null" if first is None else f"{first:.6f}",
            record.total,
            record.reason,
            facts,
        )


FORMS: dict[str, type[Form]] = {"combined": Combined, "json": JSONLines}


def _seconds(time: float | None) -> str:
    return f"{time:.6f}" if time else "0"


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)

"""The two forms of an access line: combined, as Apache and nginx have it with our facts behind, and JSON. Knows no files."""

from __future__ import annotations

import re
import time
from json.encoder import encode_basestring_ascii as quoted

from sticky.observe.access import AccessRecord, Form

_COMBINED = '%s - %s [%s] "%s %s HTTP/1.%d" %d %d %s %s %s in=%d queue=%s connect=%s first=%s total=%.6f %s\n'
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
        self._second = -1
        self._text = ""

    def __call__(self, wall: float) -> str:
        second = int(wall)
        if second != self._second:
            self._second = second
            self._text = time.strftime(self._form, (time.gmtime if self._utc else time.localtime)(second))
        return self._text


class Combined:
    """Client, session (where the user stands), time, request line, status, bytes, referrer, agent; then what is ours."""

    def __init__(self) -> None:
        self._stamp = _Second("%d/%b/%Y:%H:%M:%S %z", False)

    def facts(self, referer: str | None, agent: str | None) -> str:
        """See `Form`."""
        return f'"{_escaped(referer or "-")}" "{_escaped(agent or "-")}"'

    def line(self, wall: float, record: AccessRecord, target: str, facts: str) -> str:
        """See `Form`."""
        queue, connect, first = record.queue, record.connect, record.first_byte
        return _COMBINED % (
            record.client or "-",  # a Unix socket has no address
            record.session,
            self._stamp(wall),
            record.method.decode("latin-1"),
            _escaped(target),
            record.minor,
            record.status,
            record.bytes_out,
            facts,
            record.server,
            record.container,
            record.bytes_in,
            f"{queue:.6f}" if queue else "0",
            f"{connect:.6f}" if connect else "0",
            f"{first:.6f}" if first else "0",
            record.total,
            record.reason,
        )


class JSONLines:
    """An object a line; what never happened is null."""

    def __init__(self) -> None:
        self._stamp = _Second("%Y-%m-%dT%H:%M:%S.", True)

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


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)

"""The two forms of an access line: combined, as Apache and nginx have it with our facts behind, and JSON. Knows no files."""

from __future__ import annotations

import re
import time
from json.encoder import encode_basestring_ascii as quoted

from sticky.observe.access import AccessRecord, Form, Shown

_COMBINED = (
    '%s - %s [%s] "%s %s HTTP/1.%d" %d %d "%s" "%s" %s %s in=%d queue=%.6f connect=%.6f first=%.6f total=%.6f %s\n'
)
_JSON = (
    '{"time":"%s%03dZ","client":"%s","server":"%s","session":"%s","container":"%s","method":"%s","target":%s,'
    '"status":%d,"bytes_in":%d,"bytes_out":%d,"queue":%.6f,"connect":%s,"first_byte":%s,"total":%.6f,'
    '"reason":"%s","referer":%s,"agent":%s}\n'
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


def combined() -> Form:
    """Client, session (where the user stands), time, request line, status, bytes, referrer, agent; then what is ours."""
    stamp = _Second("%d/%b/%Y:%H:%M:%S %z", False)

    def form(wall: float, record: AccessRecord, shown: Shown) -> str:
        return _COMBINED % (
            record.client or "-",  # a Unix socket has no address
            record.session,
            stamp(wall),
            record.method.decode("latin-1"),
            _escaped(shown.target),
            record.minor,
            record.status,
            record.bytes_out,
            _escaped(shown.referer or "-"),
            _escaped(shown.agent or "-"),
            record.server,
            record.container,
            record.bytes_in,
            record.queue or 0.0,
            record.connect or 0.0,
            record.first_byte or 0.0,
            record.total,
            record.reason,
        )

    return form


def json_lines() -> Form:
    """An object a line; what never happened is null."""
    stamp = _Second("%Y-%m-%dT%H:%M:%S.", True)

    def form(wall: float, record: AccessRecord, shown: Shown) -> str:
        connect, first, referer, agent = record.connect, record.first_byte, shown.referer, shown.agent
        return _JSON % (
            stamp(wall),
            wall % 1 * 1000,
            record.client or "-",
            record.server,
            record.session,
            record.container,
            record.method.decode("latin-1"),
            quoted(shown.target),
            record.status,
            record.bytes_in,
            record.bytes_out,
            record.queue or 0.0,
            "null" if connect is None else "%.6f" % connect,
            "null" if first is None else "%.6f" % first,
            record.total,
            record.reason,
            "null" if referer is None else quoted(referer),
            "null" if agent is None else quoted(agent),
        )

    return form


FORMS = {"combined": combined, "json": json_lines}


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)

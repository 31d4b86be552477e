"""Faults of heads: the ones that show before a head has ended, and what to call those of a head that is not in the grammar.

Off the path of good requests. Must not know what a valid head says.
"""

from __future__ import annotations

import re

import attrs

from sticky import errors
from sticky.edge.grammar import FAULTY, FIELDS, REQUEST_LINE, STATUS_LINE, TARGET, TOKEN, VALUE, HeadLimits

_ANY_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/(?!1\.[01]\Z)[0-9]\.[0-9]")
_LINES = re.compile(FIELDS)
_AROUND_TARGET = len("  HTTP/1.1")


@attrs.frozen
class Direction:
    """What the two directions' unfinished heads differ in."""

    line: re.Pattern[bytes]  #: a complete first line
    beginning: re.Pattern[bytes]  #: any beginning of one
    stray: bool  #: whether one CRLF may come before it


REQUEST = Direction(
    re.compile(REQUEST_LINE),
    re.compile(rb"(?:" + TOKEN + rb"(?: (?:" + TARGET + rb"(?: [HTP/0-9.]{0,8}\r?)?)?)?)?"),
    True,
)
RESPONSE = Direction(
    re.compile(STATUS_LINE),
    re.compile(
        rb"(?:H(?:T(?:T(?:P(?:/(?:1(?:\.(?:[01](?: (?:[1-9][0-9]{0,2}(?: " + VALUE + rb")?)?)?)?)?)?)?)?)?)?)?\r?"
    ),
    False,
)


def request_fault(head: bytes, limits: HeadLimits) -> errors.Refusal:
    """The refusal for a complete head that is too large or not in the grammar."""
    line, _, rest = head.removeprefix(b"\r\n").partition(b"\r\n")
    if len(line) > limits.target + _AROUND_TARGET:
        return errors.TargetTooLong()
    if len(head) > limits.head or rest.count(b"\n") > limits.fields + 1:
        return errors.HeadTooLarge()
    if _ANY_VERSION.fullmatch(line) is not None:
        return errors.VersionNotSupported()
    return errors.BadHead()


def check_unfinished(buffer: bytes, searched_from: int, direction: Direction, limits: HeadLimits) -> None:
    """Raise if a head that has not ended yet cannot become a valid one. Looks at nothing twice but the current line."""
    start = 2 if direction.stray and buffer[:2] == b"\r\n" else 0
    line_end = buffer.find(b"\r\n", start)
    if (len(buffer) if line_end < 0 else line_end) - start > limits.target + _AROUND_TARGET + 1:
        raise errors.TargetTooLong
    if FAULTY.search(buffer, searched_from - 1 if searched_from > 1 else 0) is not None:
        raise errors.BadHead
    if line_end < 0:
        if direction.stray and buffer == b"\r":
            return
        if direction.beginning.fullmatch(buffer, start) is None:
            raise errors.BadHead
        return
    if direction.line.fullmatch(buffer, start, line_end) is None:
        raise request_fault(buffer, limits)
    if len(buffer) > limits.head or buffer.count(b"\n") > limits.fields + 2:
        raise errors.HeadTooLarge
    # Only lines that came to their end since the last call; what is after the last CRLF may still become anything.
    last = buffer.rfind(b"\r\n")
    first = max(line_end, buffer.rfind(b"\r\n", 0, searched_from))
    if _LINES.fullmatch(buffer, first, last) is None:
        raise errors.BadHead

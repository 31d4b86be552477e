"""The grammar that both directions share (RFC 9110 5.5 and 5.6.2, RFC 9112 2 to 6), as pieces of regular expressions.

Must not know a direction, a brand or what is done with a message. Strict: what is not in the grammar is a fault, nothing is
repaired. Every piece is possessive: a head is looked at once, from left to right, without backtracking.
"""

from __future__ import annotations

import re
from enum import Enum

import attrs

Field = tuple[bytes, bytes]  #: a field's name in the sender's spelling, and its value without white space around it

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
TARGET = rb"[!\"$-~]++"  # visible ASCII but `#`: raw bytes over 0x7F and fragments are refused (tests/cases/http)
VALUE = rb"[\t\x20-\x7e\x80-\xff]*+"  # obs-text passes; CR, LF, NUL and every other control byte do not
# Nothing between name and colon, no folding. Atomic rather than possessive: `(?:...)*+` never matches in CPython 3.11.2.
FIELDS = rb"(?>(?:\r\n" + TOKEN + rb":" + VALUE + rb")*)"

REQUEST_LINE = rb"(" + TOKEN + rb") (" + TARGET + rb") HTTP/1\.([01])"
STATUS_LINE = rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (" + VALUE + rb"))?"

_FIELD = re.compile(rb"\n([^:]+):[ \t]*([^\r]*)")
_MEMBER = re.compile(rb"[^ \t,]+(?:[ \t]+[^ \t,]+)*")

# No sign, no padding, no list; under 10**18, so that no container's 64-bit integer overflows.
LENGTH = re.compile(rb"(?:0|[1-9][0-9]{0,17})[ \t]*")
CHUNKED_CODING = re.compile(rb"chunked[ \t]*", re.IGNORECASE)

# A DNS-like name (with underscores, which are everyday) or an address, and a port; no escapes, lists, user or path.
HOST = re.compile(rb"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
STANDARD_OPTIONS = frozenset({b"close", b"keep-alive", b"upgrade", b"te"})  #: of Connection; they name no field

# A byte that no head may hold at this place, however it goes on: a bare LF or CR, NUL and the other control bytes. It also
# gives a TLS client hello (0x16) and line ends without CR away at once, though neither ever brings the end of a head.
FAULTY = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Framing(Enum):
    """How a message's body ends (RFC 9112, 6.3)."""

    NONE = "none"  # there is no body
    LENGTH = "length"  # after a known number of bytes
    CHUNKED = "chunked"  # after the last chunk and the trailers
    CLOSE = "close"  # when the connection closes; responses only


@attrs.frozen(kw_only=True)
class HeadLimits:
    """How large a head may be. Whatever is larger is refused as soon as it is seen to be."""

    target: int = 16_384  #: bytes of method and target together
    head: int = 65_536  #: bytes in all; also the limit of a trailer section
    fields: int = 256  #: field lines


def split_fields(block: bytes) -> list[Field]:
    """The fields of a valid block, each line preceded by CRLF, in order."""
    return [(name, value.rstrip(b" \t")) for name, value in _FIELD.findall(block)]


def members(value: bytes) -> list[bytes]:
    """The members of a comma-separated list in lower case, empty ones left out (RFC 9110, 5.6.1)."""
    return [member.lower() for member in _MEMBER.findall(value)]

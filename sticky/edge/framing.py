"""Where a body ends, over any cut of its bytes (RFC 9112, 6 and 7). Bodies pass as they are: never buffered, never copied.

One object a body, the same for requests and responses. Must not know what a trailer means or what happens to a fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from sticky.edge.grammar import FAULTY, FIELDS, TOKEN, VALUE, Field, Framing, HeadLimits, split_fields
from sticky.errors import BodyFault


class Body(Protocol):
    """The end of one body. `feed` it everything that arrives after the head until it is `done`."""

    done: bool  #: the body is complete; bytes after `used` belong to the next message
    used: int  #: how many bytes of the last `feed` belong to this body, trailers included
    trailers: Sequence[Field]  #: once done: the trailer fields. They are not among the bytes to forward

    def feed(self, data: bytes, payload: list[bytes] | None = None) -> int:
        """How many bytes at the start of `data` are to be forwarded as they are.

        `payload`: a list to which the content in `data` is appended without its framing, for a peer that gets the body
        without chunks. Raises `errors.BodyFault`; of that `data` nothing is to be forwarded then. Not called once `done`.
        """

    def finish(self) -> None:
        """The sender has closed. Raises `errors.BodyFault` if the body is not complete by that."""


def body(framing: Framing, length: int, limits: HeadLimits) -> Body:
    """The body that a head with this framing announces. Without a body, or with a length of 0, it is done already."""
    if framing is Framing.CHUNKED:
        return ChunkedScanner(limits)
    if framing is Framing.CLOSE:
        return UntilClose()
    return LengthCounter(length)


class LengthCounter:
    """A body of a known number of bytes."""

    __slots__ = ("done", "left", "used")

    trailers: Sequence[Field] = ()

    def __init__(self, length: int) -> None:
        self.left = length  #: bytes still to come
        self.done = length == 0
        self.used = 0

    def feed(self, data: bytes, payload: list[bytes] | None = None) -> int:
        size = len(data)
        if size >= self.left:
            size = self.left
            self.done = True
        self.left -= size
        self.used = size
        if payload is not None and size:
            payload.append(data[:size])
        return size

    def finish(self) -> None:
        if not self.done:
            raise BodyFault("the body is shorter than its length")


class UntilClose:
    """A response's body that ends with its connection. A cut-off one cannot be told from a whole one (RFC 9112, 8)."""

    __slots__ = ("done", "used")

    trailers: Sequence[Field] = ()

    def __init__(self) -> None:
        self.done = False
        self.used = 0

    def feed(self, data: bytes, payload: list[bytes] | None = None) -> int:
        self.used = len(data)
        if payload is not None:
            payload.append(data)
        return self.used

    def finish(self) -> None:
        self.done = True


class _Part(Enum):
    """What a chunked body expects next (RFC 9112, 7.1)."""

    SIZE = "size"  # chunk-size [chunk-ext] CRLF
    DATA = "data"  # the chunk's content
    END = "end"  # the CRLF after it
    LF = "lf"  # its LF: the CR has come
    TRAILERS = "trailers"  # field lines, and the empty line that ends the body


# White space before an extension's `;` is legal and refused: a parser behind us that does not skip it reads another size.
_EXTENSION = rb";[ \t]*" + TOKEN + rb"(?:=(?:" + TOKEN + rb'|"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"))?'
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:" + _EXTENSION + rb")*\r\n")
_SIZE_BEGINNING = re.compile(rb"(?:[0-9A-Fa-f]{1,16}(?:;" + VALUE + rb")?\r?)?")
_LONGEST_SIZE_LINE = 512


def _small_chunks() -> bytes:
    """A pattern of whole chunks of less than 256 bytes, as many as there are.

    A chunk costs a turn of the scanner, whatever it holds: in chunks of one byte, a client's body of 64 KiB would keep the
    daemon for 50 ms. By this pattern a chunk costs a tenth of a microsecond. What does not match is for the scanner to read.
    """
    word = TOKEN[:-2] + rb"{1,64}+"  # so that a line of the most that is here is shorter than any line may be
    extension = rb";[ \t]{0,2}+" + word + rb"(?>(?:=(?:" + word + rb'|"[\t !#-\[\]-~\x80-\xff]{0,64}+"))?)'
    digits = [b"%x" % digit if digit < 10 else b"[%x%X]" % (digit, digit) for digit in range(16)]
    sizes = []
    for high in range(1, 16):
        longer = [digits[low] + rb"\r\n.{%d}\r\n" % (16 * high + low) for low in range(16)]
        ends = [rb"\r\n.{%d}\r\n" % high, *longer, rb"(?>(?:" + extension + rb"){1,3})\r\n.{%d}\r\n" % high]
        sizes.append(digits[high] + rb"(?:" + rb"|".join(ends) + rb")")
    # Atomic rather than possessive, as in `grammar.FIELDS`: CPython 3.11.2 gives back too much of a `(?:...)*+` that ends halfway.
    return rb"(?>(?:0{0,14}+(?:" + rb"|".join(sizes) + rb"))*)"


_SMALL_CHUNKS = re.compile(_small_chunks(), re.DOTALL)
_FIELD_LINES = re.compile(FIELDS)


class ChunkedScanner:
    """A chunked body: sizes, extensions and line ends are validated, chunks are skipped over without being touched.

    What is to be forwarded ends with the last chunk's line (`0 CRLF`). The trailer section is held back and bounded by the
    head limits; whoever forwards the body writes a trailer section of its own after it, an empty line at the least.
    """

    __slots__ = ("_left", "_limits", "_line", "_part", "done", "trailers", "used")

    def __init__(self, limits: HeadLimits) -> None:
        self.done = False
        self.used = 0
        self.trailers: Sequence[Field] = ()
        self._limits = limits
        self._part = _Part.SIZE
        self._left = 0  # bytes of the chunk still to come
        self._line = b""  # the beginning of a size line or of the trailer section that a cut left behind

    def feed(self, data: bytes, payload: list[bytes] | None = None) -> int:
        at = 0
        size = len(data)
        part = self._part
        while at < size:
            if part is _Part.DATA:
                end = at + self._left
                if end > size:
                    if payload is not None:
                        payload.append(data[at:])
                    self._left = end - size
                    at = size
                    break
                if payload is not None:
                    payload.append(data[at:end])
                at = end
                part = _Part.END
            elif part is _Part.SIZE:
                if not self._line and payload is None:
                    at = _SMALL_CHUNKS.match(data, at).end()  # type: ignore[union-attr]  # an empty match at the least
                    if at == size:
                        break
                at = self._size(data, at)
                if not self._line:
                    part = _Part.DATA if self._left else _Part.TRAILERS
            elif part is _Part.TRAILERS:
                self._part = part
                self.used = self._trailer_section(data, at)
                return at
            elif part is _Part.END:
                if data[at] != 0x0D:
                    raise BodyFault("a chunk is longer than its size")
                at += 1
                part = _Part.LF
            else:
                if data[at] != 0x0A:
                    raise BodyFault("a chunk does not end with CRLF")
                at += 1
                part = _Part.SIZE
        self._part = part
        self.used = size
        return size

    def _size(self, data: bytes, at: int) -> int:
        """Read a size line, or its beginning into `_line`. Returns where it ends."""
        held = len(self._line)
        if held:
            data = self._line + data[at : at + _LONGEST_SIZE_LINE]
            at_line = 0
        else:
            at_line = at
        match = _SIZE_LINE.match(data, at_line)
        if match is None:
            rest = data[at_line : at_line + _LONGEST_SIZE_LINE + 1]
            if len(rest) > _LONGEST_SIZE_LINE or _SIZE_BEGINNING.fullmatch(rest) is None:
                raise BodyFault("a chunk size is not valid")
            self._line = rest
            return at + len(rest) - held
        if match.end() - at_line > _LONGEST_SIZE_LINE:
            raise BodyFault("a chunk size line is too long")
        self._line = b""
        self._left = int(match[1], 16)
        if self._left >> 63:
            raise BodyFault("a chunk is too large")
        return at + match.end() - at_line - held

    def _trailer_section(self, data: bytes, at: int) -> int:
        """Collect the trailer section. Returns how many bytes of `data` belong to the body."""
        held = len(self._line)
        # The CRLF in front makes the section look like the end of a head: an empty one is its CRLF CRLF.
        section = (self._line or b"\r\n") + data[at : at + self._limits.head + 4]
        end = section.find(b"\r\n\r\n", max(held - 3, 0))
        if end < 0:
            if len(section) > self._limits.head or FAULTY.search(section, max(held - 1, 0)) is not None:
                raise BodyFault("the trailer section is not valid")
            self._line = section
            return len(data)
        if end > self._limits.head or _FIELD_LINES.fullmatch(section, 0, end) is None:
            raise BodyFault("the trailer section is not valid")
        self.trailers = split_fields(section[:end])
        if len(self.trailers) > self._limits.fields:
            raise BodyFault("the trailer section has too many fields")
        self._line = b""
        self.done = True
        return at + end + 4 - (held or 2)

    def finish(self) -> None:
        if not self.done:
            raise BodyFault("the body ends within its chunks")

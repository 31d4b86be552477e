"""The frames of a function call: a kind, a length, a payload. Shared by clients and interpreters; knows neither sockets nor pickles.

A frame is one byte that says its kind, four bytes of length (big-endian) and so many bytes. What is longer than `LONGEST` goes in
several frames of one kind. A stream that ends inside a frame, or before the frame that must come last, is an error.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import attrs

LONGEST = 1 << 20  #: bytes of one frame's payload
LARGEST = 256 << 20  #: bytes of a function, of arguments and of a value, each
CONTENT_TYPE = "application/vnd.sticky.call"
_HEAD = struct.Struct("!cI")


class Kind(Enum):
    """What a frame holds. The value is its first byte."""

    CALL = b"C"  # JSON: what is to be called, and how large the next two are
    FUNCTION = b"F"  # a piece of the pickled function
    ARGUMENTS = b"A"  # a piece of the pickled arguments
    STDOUT = b"o"  # what the function printed
    STDERR = b"e"
    ALIVE = b"l"  # nothing; the interpreter still works
    VALUE = b"V"  # a piece of what the function returned
    DONE = b"D"  # JSON: how the call ended, and how large the value is; always the last


_KINDS = {kind.value: kind for kind in Kind}


class TornFrame(Exception):
    """What came is no frame, or broke off inside one."""


def frame(kind: Kind, payload: bytes | bytearray | memoryview) -> bytes:
    """One frame. The payload must not be longer than `LONGEST`."""
    return _HEAD.pack(kind.value, len(payload)) + payload


def pieces(kind: Kind, payload: bytes | memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """As many frames as the payload takes, none for nothing: of each the head, and its part of the payload, which is not copied."""
    view = memoryview(payload)
    for start in range(0, len(view), LONGEST):
        part = view[start : start + LONGEST]
        yield _HEAD.pack(kind.value, len(part)), part


def document(kind: Kind, value: Mapping[str, Any]) -> bytes:
    """A frame of JSON."""
    return frame(kind, json.dumps(value, separators=(",", ":")).encode())


def read_document(payload: bytes) -> dict[str, Any]:
    """The JSON object of a frame. Raises `TornFrame`."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        raise TornFrame("a frame that should hold JSON does not") from None
    if not isinstance(value, dict):
        raise TornFrame("a frame's JSON is no object")
    return value


def read_head(read: Callable[[int], bytes]) -> tuple[Kind, int] | None:
    """The next frame's kind and length; None where the stream ends before it. `read`: see `read_frame`. Raises `TornFrame`."""
    head = read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise TornFrame("the stream ends inside a frame's head")
    byte, length = _HEAD.unpack(head)
    kind = _KINDS.get(byte)
    if kind is None or length > LONGEST:
        raise TornFrame("no frame begins like this")
    return kind, length


def read_frame(read: Callable[[int], bytes]) -> tuple[Kind, bytes] | None:
    """The next frame; None where the stream ends before it. `read(n)` gives n bytes, fewer only at the end. Raises `TornFrame`."""
    head = read_head(read)
    if head is None:
        return None
    kind, length = head
    payload = read(length)
    if len(payload) < length:
        raise TornFrame("the stream ends inside a frame")
    return kind, payload


@attrs.define
class Assembly:
    """Pieces of something whose size was announced. Filled in place: no second copy of 256 MiB."""

    size: int
    data: bytearray = attrs.field(init=False, repr=False)
    filled: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.data = bytearray(self.size)

    def take(self, length: int, read_into: Callable[[memoryview], int]) -> None:
        """One more piece, as it comes: `read_into` fills a view, and says by how many bytes, fewer only where the stream ends.

        Raises `TornFrame` where that is more than was announced, or less than its frame has.
        """
        end = self.filled + length
        if end > self.size:
            raise TornFrame("more came than was announced")
        with memoryview(self.data) as whole, whole[self.filled : end] as view:
            if read_into(view) < length:
                raise TornFrame("the stream ends inside a frame")
        self.filled = end

    @property
    def complete(self) -> bool:
        """Whether all has come."""
        return self.filled == self.size


def announced(value: object) -> int:
    """A size out of a frame's JSON. Raises `TornFrame`."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise TornFrame(f"a size is a whole number of bytes up to {LARGEST}")
    return value

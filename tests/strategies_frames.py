"""Generators of WebSocket frames, an encoder and a parser of their own: nothing here comes from the code under test."""

from __future__ import annotations

import struct

import attrs
from hypothesis import strategies as st


@attrs.frozen
class Frame:
    """One frame as a peer would send it."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    masked: bool = False
    rsv: int = 0
    mask: bytes = b"\x11\x22\x33\x44"


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Mask or unmask (RFC 6455, 5.3)."""
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(len(payload), "little")


def encode(frame: Frame) -> bytes:
    """The frame's bytes, the length in its shortest form."""
    size = len(frame.payload)
    first = (0x80 if frame.fin else 0) | frame.rsv << 4 | frame.opcode
    bit = 0x80 if frame.masked else 0
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    return head + (frame.mask + unmask(frame.payload, frame.mask) if frame.masked else frame.payload)


class Reader:
    """Frames from reads as they come."""

    def __init__(self) -> None:
        self.rest = b""  #: the beginning of a frame

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        wire, at = self.rest + data, 0
        found: list[Frame] = []
        while True:
            frame, size = _first(wire, at)
            if frame is None:
                self.rest = wire[at:]
                return found
            found.append(frame)
            at += size


def parse(wire: bytes) -> list[Frame]:
    """All frames of a complete wire. Raises `ValueError` where the bytes do not end with a frame's end."""
    reader = Reader()
    found = reader.feed(wire)
    if reader.rest:
        raise ValueError("the last frame is not complete")
    return found


def _first(wire: bytes, at: int) -> tuple[Frame | None, int]:
    head = wire[at : at + 14]
    if len(head) < 2:
        return None, 0
    size, start = head[1] & 0x7F, 2
    if size > 125:
        start = 4 if size == 126 else 10
        if len(head) < start:
            return None, 0
        size = int.from_bytes(head[2:start], "big")
    mask = head[start : start + 4] if head[1] & 0x80 else b""
    start += 4 if head[1] & 0x80 else 0
    if len(wire) - at < start + size:
        return None, 0
    payload = wire[at + start : at + start + size]
    fin, rsv = bool(head[0] & 0x80), head[0] >> 4 & 7
    if not mask:
        return Frame(head[0] & 15, payload, fin, False, rsv), start + size
    return Frame(head[0] & 15, unmask(payload, mask), fin, True, rsv, mask), start + size


SIZES = st.one_of(
    st.integers(min_value=0, max_value=20), st.sampled_from([124, 125, 126, 127, 128, 300, 65535, 65536, 65540])
)
NO_KEY = Frame(0).mask
MASKS = st.binary(min_size=4, max_size=4)


def frames(*, masked: bool | None = None) -> st.SearchStrategy[Frame]:
    """Any frame; `masked`: only such. Opcodes that are reserved and control frames that are too long are among them."""
    mask = st.booleans() if masked is None else st.just(masked)
    data = st.builds(
        lambda opcode, size, fill, fin, bit, rsv, key: Frame(
            opcode, bytes([fill]) * size, fin, bit, rsv, key if bit else NO_KEY
        ),
        st.sampled_from([0, 1, 2, 2, 3, 7]),
        SIZES,
        st.integers(min_value=0, max_value=255),
        st.booleans(),
        mask,
        st.sampled_from([0, 0, 0, 4, 7]),
        MASKS,
    )
    control = st.builds(
        lambda opcode, payload, bit, key: Frame(opcode, payload, True, bit, 0, key if bit else NO_KEY),
        st.sampled_from([9, 10, 9, 10, 11, 15]),
        st.one_of(st.binary(max_size=125), st.binary(min_size=126, max_size=140)),
        mask,
        MASKS,
    )
    return st.one_of(data, control)


def frame_lists(*, masked: bool | None = None) -> st.SearchStrategy[list[Frame]]:
    """Some frames in a row."""
    return st.lists(frames(masked=masked), max_size=8)


def chops() -> st.SearchStrategy[list[int]]:
    """Sizes of reads, used again and again."""
    return st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=12)


def chop(wire: bytes, sizes: list[int]) -> list[bytes]:
    """The wire in reads of these sizes in turn; larger ones where it is long, so that a test stays short."""
    reads, at, turn = [], 0, 0
    scale = 1 + len(wire) // 20_000 * 16
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        size = size * scale if size > 20 else size
        reads.append(wire[at : at + size])
        at, turn = at + size, turn + 1
        if turn > 2000:
            reads.append(wire[at:])
            break
    return [read for read in reads if read]

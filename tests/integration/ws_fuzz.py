"""Frames as no good peer would send them, and as good ones do at every boundary: named cases for either direction.

Each case is what one peer sends after the handshake. What has to come of it is not said here: tests compare with a server, or a
client, that gets the same bytes without a proxy.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

import attrs

from tests.strategies_frames import Frame, encode, unmask

LENGTHS = (0, 1, 2, 124, 125, 126, 127, 128, 255, 256, 65534, 65535, 65536, 65537)
CODES = (0, 1, 999, *range(1000, 1017), 1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 5001, 65535)
LAST = b"the last word"  #: a message that may follow a case: whoever gets it has judged all that came before
BAD_TEXT = {
    "lone continuation": b"\x80",
    "overlong slash": b"\xc0\xaf",
    "overlong nul": b"\xe0\x80\x80",
    "surrogate": b"\xed\xa0\x80",
    "beyond unicode": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "never a byte": b"\xfe\xff",
    "cut at the end": "näher".encode()[:2],
    "cut before ascii": b"\xe2\x82A",
}


@attrs.frozen
class Case:
    """One."""

    name: str
    wire: bytes = attrs.field(repr=False)
    deflate: bool = False  #: permessage-deflate is offered and taken


def frame(opcode: int, payload: bytes = b"", *, masked: bool, fin: bool = True, rsv: int = 0, form: int = 0) -> bytes:
    """A frame with its length in the form of 7, 16 or 64 bits, whether or not that is the shortest; 0: it is."""
    if not form:
        return encode(Frame(opcode, payload, fin, masked, rsv))
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    bit, mask = (0x80, Frame(0).mask) if masked else (0, b"")
    size = len(payload)
    if form == 7:
        head = struct.pack("!BB", first, bit | size)
    elif form == 16:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    return head + mask + (unmask(payload, mask) if masked else payload)


def cases(masked: bool) -> list[Case]:
    """All of them; `masked`: for frames of a client."""
    plain = [Case(name, wire) for name, wire in _plain(masked)]
    deflated = [Case(name, wire, True) for name, wire in _deflated(masked)]
    found = plain + deflated
    assert len({case.name for case in found}) == len(found)
    return found


def last(masked: bool) -> bytes:
    """A message to end with."""
    return frame(1, LAST, masked=masked)


def ending(masked: bool) -> bytes:
    """A Close to end with."""
    return frame(8, struct.pack("!H", 4000) + b"done", masked=masked)


def _plain(m: bool) -> Iterator[tuple[str, bytes]]:
    hello = frame(1, b"hello", masked=m)
    for opcode in range(16):
        if opcode != 8:
            yield f"opcode {opcode}", hello + frame(opcode, b"x", masked=m) + hello
            yield f"opcode {opcode}, no payload", hello + frame(opcode, masked=m) + hello
            yield f"opcode {opcode}, not final", hello + frame(opcode, b"x", fin=False, masked=m) + hello
    for size in LENGTHS:
        for opcode in (1, 2):
            yield f"{size} bytes, opcode {opcode}", frame(opcode, b"a" * size, masked=m)
        yield (
            f"{size} bytes in two frames",
            (frame(2, b"a" * (size // 2), fin=False, masked=m) + frame(0, b"a" * (size - size // 2), masked=m)),
        )
        for form in (16, 64):
            if size < 65536 or form == 64:
                yield f"{size} bytes, length of {form} bits", frame(2, b"a" * size, masked=m, form=form) + hello
    for announced in (1 << 63, (1 << 64) - 1):
        bit = 0x80 if m else 0
        yield f"a length of {announced}", struct.pack("!BBQ", 0x82, bit | 127, announced) + b"abcdefgh"
    for rsv in range(1, 8):
        for opcode in (1, 9):
            yield f"reserved bits {rsv}, opcode {opcode}", hello + frame(opcode, b"x", rsv=rsv, masked=m) + hello
    for opcode in (1, 2, 9, 10, 8):
        payload = struct.pack("!H", 1000) if opcode == 8 else b"wrong"
        yield f"wrong masking, opcode {opcode}", hello + frame(opcode, payload, masked=not m) + hello
    yield (
        "wrong masking of the second fragment",
        (frame(1, b"a", fin=False, masked=m) + frame(0, b"b", masked=not m) + hello),
    )
    for opcode in (9, 10):
        for size in (0, 1, 124, 125, 126, 127, 65536):
            yield f"control {opcode} of {size} bytes", frame(opcode, b"a" * size, masked=m) + hello
        yield (
            f"control {opcode} between fragments",
            (frame(1, b"a", fin=False, masked=m) + frame(opcode, b"x", masked=m) + frame(0, b"b", masked=m)),
        )
        for form in (16, 64):
            yield f"control {opcode}, length of {form} bits", frame(opcode, b"x", masked=m, form=form) + hello
    yield (
        "a message within a message",
        (frame(1, b"a", fin=False, masked=m) + frame(1, b"b", masked=m) + frame(0, b"c", masked=m)),
    )
    yield "a fragment after the last", frame(1, b"a", masked=m) + frame(0, b"b", masked=m)
    yield (
        "many empty fragments",
        (frame(1, fin=False, masked=m) + frame(0, fin=False, masked=m) * 500 + frame(0, b"end", masked=m)),
    )
    yield from _texts(m)
    yield from _closes(m)
    for seed in range(40):
        yield f"random {seed}", _random(random.Random(seed), m)


def _texts(m: bool) -> Iterator[tuple[str, bytes]]:
    for name, bad in BAD_TEXT.items():
        yield f"text: {name}", frame(1, b"ok " + bad, masked=m)
        yield f"binary: {name}", frame(2, b"ok " + bad, masked=m)
        pieces = [bad[at : at + 1] for at in range(len(bad))]
        frames = [frame(1, b"", fin=False, masked=m), *(frame(0, piece, fin=False, masked=m) for piece in pieces)]
        yield f"text split at each byte: {name}", b"".join(frames) + frame(0, b"", masked=m)
    good = "κόσμε 𝄞".encode()
    for at in range(1, len(good)):
        yield f"good text split at {at}", frame(1, good[:at], fin=False, masked=m) + frame(0, good[at:], masked=m)


def _closes(m: bool) -> Iterator[tuple[str, bytes]]:
    hello = frame(1, b"hello", masked=m)
    for code in CODES:
        yield f"close {code}", hello + frame(8, struct.pack("!H", code), masked=m)
        yield f"close {code} with a reason", hello + frame(8, struct.pack("!H", code) + b"why", masked=m)
    yield "close without a code", frame(8, masked=m)
    yield "close with half a code", frame(8, b"\x03", masked=m)
    yield "close with a reason of 123 bytes", frame(8, struct.pack("!H", 1000) + b"a" * 123, masked=m)
    yield "close with a reason of 124 bytes", frame(8, struct.pack("!H", 1000) + b"a" * 124, masked=m)
    yield "close not final", frame(8, struct.pack("!H", 1000), fin=False, masked=m)
    yield "close, length of 16 bits", frame(8, struct.pack("!H", 1000), masked=m, form=16)
    for name, bad in BAD_TEXT.items():
        yield f"close with a reason: {name}", frame(8, struct.pack("!H", 1000) + bad, masked=m)
    yield "frames after close", frame(8, struct.pack("!H", 1000), masked=m) + hello + frame(9, b"x", masked=m)
    yield "garbage after close", frame(8, struct.pack("!H", 1000), masked=m) + b"\xff" * 200
    yield "two closes", frame(8, struct.pack("!H", 1000), masked=m) + frame(8, struct.pack("!H", 1001), masked=m)
    yield "close within a message", frame(1, b"a", fin=False, masked=m) + frame(8, struct.pack("!H", 1000), masked=m)


def _deflated(m: bool) -> Iterator[tuple[str, bytes]]:
    packed = deflate(b"again and " * 50)
    plain = frame(1, b"plain", masked=m)
    yield "deflate: a message", frame(1, packed, rsv=4, masked=m) + plain
    yield "deflate: one that is not packed", plain
    yield (
        "deflate: in two frames",
        (frame(1, packed[:5], fin=False, rsv=4, masked=m) + frame(0, packed[5:], masked=m) + plain),
    )
    yield (
        "deflate: the bit on the second fragment",
        (frame(1, packed[:5], fin=False, rsv=4, masked=m) + frame(0, packed[5:], rsv=4, masked=m)),
    )
    yield "deflate: the bit on a ping", frame(9, b"x", rsv=4, masked=m) + plain
    for rsv in (1, 2, 3, 5, 6, 7):
        yield f"deflate: reserved bits {rsv}", frame(1, packed, rsv=rsv, masked=m) + plain
    yield "deflate: bad text inside", frame(1, deflate(b"ok \xff"), rsv=4, masked=m) + plain
    yield "deflate: empty", frame(1, b"\x00", rsv=4, masked=m) + plain


def deflate(data: bytes) -> bytes:
    """As RFC 7692 has it."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def _random(dice: random.Random, m: bool) -> bytes:
    """Some frames, mostly good, some of them not."""
    wire = b""
    inside = False
    for _ in range(dice.randint(1, 12)):
        bad = dice.random() < 0.06
        if bad:
            opcode, fin, rsv = dice.randrange(16), dice.random() < 0.5, dice.choice((0, 0, 1, 4))
        elif dice.random() < 0.3:
            opcode, fin, rsv = dice.choice((9, 10)), True, 0
        else:
            opcode, fin, rsv = (0 if inside else dice.choice((1, 2))), dice.random() < 0.6, 0
            inside = not fin
        size = dice.choice((0, 1, 5, 125)) if opcode & 8 else dice.choice((0, 1, 5, 125, 126, 300, 70_000))
        payload = bytes(dice.choices(b"abc \n", k=size))
        if opcode == 8:
            payload = struct.pack("!H", dice.choice((1000, 1001, 4999)))
        wire += frame(opcode, payload, fin=fin, rsv=rsv, masked=m if dice.random() > 0.03 else not m)
    return wire

"""Where WebSocket frames begin and end (RFC 6455, 5.2). Only headers are read; payloads stay masked and whole messages unknown.

Must not know sockets, relays or whose bytes they are. Nothing here judges a frame: what a peer may not send is the other
peer's to refuse, and both shall meet the same outcome as without a proxy between them.
"""

from __future__ import annotations

import attrs

CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

#: Longest control frame: 2 bytes of header, 4 of mask, 125 of payload (RFC 6455, 5.5).
MAX_CONTROL = 131


def walk(data: bytes, at: int) -> tuple[int, int]:
    """The fast path: step over the data frames of one read, from the boundary at `at` (which may lie beyond the read).

    Returns (end, left): the bytes before `end` may be passed on as they are, and then `left` bytes of the last of these
    frames are still to come. What lies beyond `end` begins with a control frame, or with a header whose length is not
    complete, and is for `cut`. So whatever has been passed on ends at a boundary whenever `left` is 0.
    """
    size = len(data)
    while at < size:
        if data[at] & 8 or at + 1 == size:
            return at, 0
        length = data[at + 1]
        if length < 126:  # short, not masked
            at += length + 2
        elif 128 <= length < 254:  # short, masked: 2 + 4 + (length - 128)
            at += length - 122
        else:
            frame = _frame_size(data, at)
            if frame is None:
                return at, 0
            at += frame
    return size, at - size


@attrs.frozen
class Control:
    """A whole control frame."""

    opcode: int
    raw: bytes = attrs.field(repr=False)  #: as it was on the wire

    @property
    def payload(self) -> bytes:
        """Unmasked."""
        if not self.raw[1] & 0x80:
            return self.raw[2:]
        size = len(self.raw) - 6
        mask = (self.raw[2:6] * (size // 4 + 1))[:size]
        return (int.from_bytes(self.raw[6:], "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")


@attrs.frozen
class Cut:
    """What `cut` found: `data[at:end]` is to be passed on, then comes the control frame, if any, and then `data[next:]`."""

    end: int
    left: int  #: bytes of the last frame before `end` that are still to come; 0: `end` is a boundary
    control: Control | None
    next: int
    held: bool  #: `data[next:]` is the beginning of a header or of a control frame: wait for more


def cut(data: bytes, at: int, left: int) -> Cut:
    """The careful path: up to the first boundary, or the first control frame, or the end of what can be passed on yet.

    With `left` bytes of a frame still to come it stops right after that frame. Else it takes all data frames that come before
    a control frame in one go. Call it until `next` is the end of the data, or `held`.
    """
    size = len(data)
    if left:
        end = min(at + left, size)
        return Cut(end, at + left - end, None, end, False)
    end, left = walk(data, at)
    if end == size:
        return Cut(end, left, None, end, False)
    frame = _frame_size(data, end)
    if frame is None:
        return Cut(end, 0, None, end, True)
    if data[end + 1] & 0x7F > 125:
        # No valid control frame (RFC 6455, 5.5): streamed like data, the receiver has to see the fault.
        stop = min(end + frame, size)
        return Cut(stop, end + frame - stop, None, stop, False)
    if end + frame > size:
        return Cut(end, 0, None, end, True)
    return Cut(end, 0, Control(data[end] & 15, data[end : end + frame]), end + frame, False)


class Closing:
    """Looks for the Close of a peer that has got one."""

    __slots__ = ("_left", "_part")

    def __init__(self) -> None:
        self._left = 0
        self._part = b""  # the beginning of a header or of a control frame

    def heard(self, data: bytes) -> bool:
        """Whether the peer's Close is among what has come by now."""
        data, self._part = self._part + data, b""
        at = 0
        while at < len(data):
            found = cut(data, at, self._left)
            self._left, at = found.left, found.next
            if found.control is not None and found.control.opcode == CLOSE:
                return True
            if found.held:
                self._part = data[at:]
                break
        return False


def _frame_size(data: bytes, at: int) -> int | None:
    """Bytes of the whole frame at this place, header included; None if its length is not complete yet."""
    if len(data) - at < 2:
        return None
    second = data[at + 1]
    size = 6 if second & 0x80 else 2
    length = second & 0x7F
    if length < 126:
        return size + length
    extended = 2 if length == 126 else 8
    if len(data) - at < 2 + extended:
        return None
    return size + extended + int.from_bytes(data[at + 2 : at + 2 + extended], "big")

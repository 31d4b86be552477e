"""The two formats of an Engine's streams: multiplexed output, and one JSON object a line. Pure; must not know what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LONGEST_FRAME = 1 << 24  #: bytes; Engines write frames of at most a few dozen kilobytes
LONGEST_LINE = 1 << 20  #: bytes
_HEADER = 8  # bytes: the stream's number, three zeros, the size in network order
_STREAMS = (0, 1, 2)


class Torn(ValueError):
    """What came is not of this format."""


class Output:
    """Takes apart the multiplexed output of a container without a terminal; stdout and stderr come as one, in order."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0  # bytes of the current frame's payload still to come

    def feed(self, data: bytes) -> bytes:
        """The payload that is in here, perhaps only a part of a frame's. Raises `Torn`."""
        payload = []
        data = self._rest + data
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                payload.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            header = data[at : at + _HEADER]
            if len(header) < _HEADER:
                break
            self._left = int.from_bytes(header[4:], "big")
            if header[0] not in _STREAMS or header[1:4] != b"\0\0\0" or self._left > LONGEST_FRAME:
                raise Torn("not a frame of a container's output")
            at += _HEADER
        self._rest = data[at:]
        return b"".join(payload)


class Lines:
    """JSON objects, one a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """The objects that are whole by now. Raises `Torn`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise Torn("a line without an end")
        found: list[Mapping[str, Any]] = []
        for line in lines:
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError:
                raise Torn("not a line of JSON") from None
            if not isinstance(value, dict):
                raise Torn("not a JSON object")
            found.append(value)
        return found

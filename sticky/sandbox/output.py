"""What functions print: to the call that runs, or to the container's log when none does. Runs inside the interpreter."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT_LINES = 20  #: of a call's output, for its error
KEPT_CHARACTERS = 500  #: of each of them
_PIECE = 1 << 16


class Printed(io.RawIOBase):
    """The end of `sys.stdout`, or of `sys.stderr`. `send` is whose call runs now, None for the log."""

    def __init__(self, log: int) -> None:
        super().__init__()
        self._log = log
        self.send: Callable[[bytes], None] | None = None
        self.last = bytearray()

    def writable(self) -> bool:
        """Part of io."""
        return True

    def write(self, data: Any) -> int:
        """Part of io: all of it, always."""
        view = memoryview(data).cast("B")
        send = self.send
        for start in range(0, len(view), _PIECE):
            piece = bytes(view[start : start + _PIECE])
            if send is None:
                os.write(self._log, piece)
            else:
                self.last += piece
                del self.last[: -KEPT_LINES * KEPT_CHARACTERS]
                send(piece)
        return len(view)

    def begin(self, send: Callable[[bytes], None]) -> None:
        """A call begins, whose output goes there."""
        self.last.clear()
        self.send = send

    def lines(self) -> list[str]:
        """The last lines of the call that has ended."""
        text = bytes(self.last).decode("utf-8", "replace")
        self.last.clear()
        return [line[:KEPT_CHARACTERS] for line in deque(text.splitlines(), KEPT_LINES)]


def stream(raw: Printed) -> io.TextIOWrapper:
    """A text stream for `sys`; what functions print is sent line by line."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw, 8192), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )

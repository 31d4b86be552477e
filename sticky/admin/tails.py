"""One growing text file, read line by line: its last lines first, then what is added. Knows neither containers nor clients."""

from __future__ import annotations

import os
from pathlib import Path

CHUNK = 64 * 1024  #: bytes that are read in one go
LONGEST_LINE = 16 * 1024  #: bytes; a longer one is cut into several
_FIRST = 256 * 1024  # bytes of the end of a file in which its last lines are looked for


class Tail:
    """A file that may not be there yet. When it shrinks (its older part was dropped) reading goes on at its new end."""

    def __init__(self, path: Path, last: int) -> None:
        """`last`: how many of the lines that are there already are wanted."""
        self._path = path
        self._last = last
        self._offset: int | None = None
        self._rest = b""

    def lines(self) -> list[str]:
        """What is new, as far as one go takes it; empty at the end of the file."""
        try:
            with open(self._path, "rb") as file:
                return self._read(file.fileno())
        except OSError:
            return []

    def rest(self) -> list[str]:
        """A last line without an end, once nothing more can come."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []

    def _read(self, file: int) -> list[str]:
        size = os.fstat(file).st_size
        if self._offset is None:
            start = max(0, size - _FIRST)
            lines = self._split(os.pread(file, size - start, start))
            self._offset = size
            if start:
                lines = lines[1:]  # begins somewhere in the middle
            return lines[-self._last :] if self._last else []
        if size < self._offset:
            self._offset, self._rest = size, b""
        data = os.pread(file, CHUNK, self._offset)
        self._offset += len(data)
        return self._split(data)

    def _split(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            whole.append(self._rest)
            self._rest = b""
        return [_text(line[at : at + LONGEST_LINE]) for line in whole for at in range(0, len(line) or 1, LONGEST_LINE)]


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")

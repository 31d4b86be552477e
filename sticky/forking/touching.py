"""Which memory forks write to before they are of use, and having it ready in the next one: each such page costs a fork a fault.

A page that was copied when a fork first wrote to it is that fork's alone, which /proc/PID/pagemap says (proc(5)). The next
fork will write to the same ones, and MADV_POPULATE_WRITE (Linux 5.14, madvise(2)) copies them all while nobody waits for it. What
is in them does not change. Should a range be something else by then, a page is copied for nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Iterable, Iterator

#: Of an entry's highest byte: present (bit 63), not of a file (61), mapped by one process alone (56).
_COPIED = bytes(byte & 0xA1 == 0x81 for byte in range(256))
_RUN = re.compile(rb"\x01+(?:\x00{1,2}\x01+)*")  # of such pages; a gap of one or two is not worth another system call
_ENTRY = 8  # bytes
_POPULATE_WRITE = 23
MOST = 8 << 20  #: bytes that are got ready: who writes to more is not quick in any case

#: Addresses: where a range begins, and where it ends.
Range = tuple[int, int]


def written(pid: int) -> list[Range]:
    """What this fork of ours has written to, of the memory that we have too; nothing of one that has ended."""
    found: list[Range] = []
    left = MOST
    try:
        with open(f"/proc/{pid}/pagemap", "rb", 0) as pages:
            for start, end in _writable():
                entries = os.pread(
                    pages.fileno(), (end - start) // mmap.PAGESIZE * _ENTRY, start // mmap.PAGESIZE * _ENTRY
                )
                for run in _RUN.finditer(entries[_ENTRY - 1 :: _ENTRY].translate(_COPIED)):
                    left -= (run.end() - run.start()) * mmap.PAGESIZE
                    if left < 0:
                        return found
                    found.append((start + run.start() * mmap.PAGESIZE, start + run.end() * mmap.PAGESIZE))
    except OSError:
        pass
    return found


class Populating:
    """Gets memory ready. Made before a fork, used in it."""

    def __init__(self) -> None:
        self._madvise = ctypes.CDLL(None).madvise
        self._madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def populate(self, ranges: Iterable[Range]) -> None:
        """As if each page of these had been written to. What cannot be is left as it is: an old kernel can none."""
        for start, end in ranges:
            self._madvise(start, end - start, _POPULATE_WRITE)


def _writable() -> Iterator[Range]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            where, rights, _ = line.split(None, 2)
            if rights == "rw-p":
                start, _, end = where.partition("-")
                yield int(start, 16), int(end, 16)

"""What forks write to, and having it ready in the next one."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from sticky.forking import touching
from sticky.forking.touching import Populating, written

PAGES = 64
WROTE = (3, 4, 7, *range(20, 60))  # of these pages


class TouchingTests(SynchronousTestCase):
    """Some memory of this process, whose forks write to a part of it."""

    def setUp(self) -> None:
        self.memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory[:] = os.urandom(mmap.PAGESIZE) * PAGES
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def fork(self, work: Callable[[], object]) -> tuple[int, int]:
        """A fork that does this, says what it returned, and waits: its pid, and what it said."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(writer, f"{work()}".encode())
                os.close(writer)
                signal.alarm(60)  # should nobody end it
                signal.pause()
            finally:
                os._exit(1)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, 9)
        os.close(writer)
        with open(reader, "rb", 0) as said:
            return pid, int(said.read(20))

    def write(self) -> int:
        """Returns how many faults that took."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for page in WROTE:
            self.memory[page * mmap.PAGESIZE] = 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def populated(self, ranges: list[tuple[int, int]]) -> int:
        Populating().populate(ranges)
        return 7

    def pages(self, pid: int) -> list[tuple[int, int]]:
        """Of our memory: the first, and the one after the last, of each range."""
        found = []
        for start, end in written(pid):
            first, last = (start - self.start) // mmap.PAGESIZE, (end - self.start) // mmap.PAGESIZE
            if last > 0 and first < PAGES:
                found.append((max(first, 0), min(last, PAGES)))
        return found

    def test_what_a_fork_has_written_to_is_found_and_near_ranges_are_one(self) -> None:
        pid, _ = self.fork(self.write)
        self.assertEqual(self.pages(pid), [(3, 8), (20, 60)])

    def test_the_next_one_has_no_faults_there_and_the_memory_is_as_it_was(self) -> None:
        before = bytes(self.memory)
        pid, faults = self.fork(self.write)
        self.assertGreaterEqual(faults, len(WROTE))
        ranges, populating = written(pid), Populating()

        def prepared() -> int:
            populating.populate(ranges)
            if self.memory[:] != before:
                return -1
            return self.write()

        _, faults = self.fork(prepared)
        self.assertGreaterEqual(faults, 0)
        if faults >= len(WROTE):
            raise SkipTest("this kernel has no MADV_POPULATE_WRITE")
        self.assertLess(faults, len(WROTE) // 2)  # Python's own
        self.assertEqual(self.memory[:], before)

    def test_ranges_that_are_nothing_do_no_harm(self) -> None:
        _, said = self.fork(partial(self.populated, [(0, mmap.PAGESIZE), (1 << 46, 1 << 47), (5, 6)]))
        self.assertEqual(said, 7)

    def test_there_is_a_bound(self) -> None:
        self.patch(touching, "MOST", 2 * mmap.PAGESIZE)
        pid, _ = self.fork(self.write)
        self.assertLessEqual(sum(end - start for start, end in written(pid)), 2 * mmap.PAGESIZE)

    def test_nothing_of_one_that_has_ended(self) -> None:
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(written(pid), [])
        os.waitpid(pid, 0)
        self.assertFalse(Path(f"/proc/{pid}").exists())
        self.assertEqual(written(pid), [])

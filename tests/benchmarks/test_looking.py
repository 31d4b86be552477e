"""What benchmarks read of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import looking


class LookingTests(SynchronousTestCase):
    def test_work_counts_threads_that_have_ended(self) -> None:
        def work() -> None:
            until = time.thread_time_ns() + 2_000_000
            while time.thread_time_ns() < until:
                pass

        before = looking.worked(os.getpid())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertGreaterEqual(looking.worked(os.getpid()) - before, 2_000_000)

    def test_it_is_the_processs_own_clock(self) -> None:
        before = time.process_time_ns()
        found = looking.worked(os.getpid())
        self.assertTrue(before <= found <= time.process_time_ns())

    def test_one_that_is_gone_is_an_error(self) -> None:
        gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
        gone.wait()
        for question in (looking.worked, looking.private):
            self.assertRaises(OSError, question, gone.pid)

    def test_private_memory_grows_with_what_is_written(self) -> None:
        before = looking.private(os.getpid())
        kept = bytearray(os.urandom(1 << 24))
        self.assertGreaterEqual(looking.private(os.getpid()) - before, 1 << 23)
        del kept

"""One daemon on one state directory."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.errors import ConfigError
from sticky.journal.lock import StateLock


class LockTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()

    def test_the_second_is_refused_with_the_pid_of_the_first(self) -> None:
        first, second = StateLock(self.folder), StateLock(self.folder)
        first.acquire()
        problem = self.assertRaises(ConfigError, second.acquire)
        self.assertIn(f"pid {os.getpid()}", str(problem))
        first.release()
        second.acquire()
        second.release()

    def test_a_file_system_without_locks_is_not_another_daemon(self) -> None:
        def refuse(file: int, how: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        before = os.listdir("/proc/self/fd")
        patched = self.patch(fcntl, "flock", refuse)
        problem = str(self.assertRaises(ConfigError, StateLock(self.folder).acquire))
        self.assertIn("cannot be locked: No locks available", problem)
        self.assertNotIn("another daemon", problem)
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        patched.restore()
        lock = StateLock(self.folder)
        lock.acquire()
        lock.release()

    def test_it_dies_with_its_holder(self) -> None:
        code = (
            "import sys, pathlib; from sticky.journal.lock import StateLock; "
            "lock = StateLock(pathlib.Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        assert holder.stdout is not None
        self.assertEqual(holder.stdout.readline(), "held\n")
        lock = StateLock(self.folder)
        self.assertIn(f"pid {holder.pid}", str(self.assertRaises(ConfigError, lock.acquire)))
        holder.kill()
        holder.wait()
        lock.acquire()
        lock.release()

    def test_it_is_passed_on_without_a_moment_in_which_nobody_holds_it(self) -> None:
        first, second, stranger = StateLock(self.folder), StateLock(self.folder), StateLock(self.folder)
        first.acquire()
        second.inherit(os.dup(first.held))
        self.assertRaises(ConfigError, stranger.acquire)
        (self.folder / "lock").write_text("7\n")  # as if the first one had been another process
        second.take_over()
        first.release()
        refused = self.assertRaises(ConfigError, stranger.acquire)
        self.assertIn(f"pid {os.getpid()}", str(refused))
        self.assertTrue(second.is_there())
        second.release()
        stranger.acquire()
        stranger.release()

"""A worker whose daemon is killed while it still imports ends with it: it has the port, which the next daemon is to have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from sticky.workers.pool import BOOT

#: Starts a worker as the pool does, of which the imports take for ever, and waits to be killed.
DAEMON = """
import os, subprocess, sys, time
boot = sys.argv[1].format(parent=os.getpid())
subprocess.run([sys.executable, "-P", "-c", boot])
"""
IMPORTING = "import os; os.write(1, b'imports'); import time; time.sleep(3600)"


class ParentTests(SynchronousTestCase):
    def test_before_its_imports_are_through(self) -> None:
        first, *_, imports, main = BOOT.split("; ")
        self.assertEqual((imports, main), ("from sticky.worker import main", "main()"))
        self.assertNotIn("sticky.worker ", first)
        boot = BOOT.replace(f"{imports}; {main}", IMPORTING)
        daemon = subprocess.Popen([sys.executable, "-c", DAEMON, boot], stdout=subprocess.PIPE)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        assert daemon.stdout is not None
        self.addCleanup(daemon.stdout.close)
        self.assertEqual(os.read(daemon.stdout.fileno(), 64), b"imports")
        os.kill(daemon.pid, signal.SIGKILL)
        self.assertEqual(os.read(daemon.stdout.fileno(), 64), b"")  # when the last one that has it is gone

    def test_whoever_comes_too_late_ends_at_once(self) -> None:
        boot = BOOT.format(parent=1).replace("from sticky.worker import main; main()", "print('on')")
        done = subprocess.run([sys.executable, "-P", "-c", boot], capture_output=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))

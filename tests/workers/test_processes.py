"""What is known of a process at the other end of a socket."""

from __future__ import annotations

import os
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from sticky.workers.processes import age_of


class AgeTests(SynchronousTestCase):
    def test_it_counts_from_the_start_of_the_process_and_ends_with_it(self) -> None:
        child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        own, childs = age_of(os.getpid()), age_of(child.pid)
        assert own is not None and childs is not None
        self.assertGreater(own, childs)
        self.assertGreater(childs, -0.02)  # its start is told in hundredths of a second
        child.kill()
        child.wait()
        self.assertIsNone(age_of(child.pid))

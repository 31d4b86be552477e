"""Processes that fork when they are asked: what the next fork has ready, learnt from those before it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

from benchmarks.looking import private
from tests.forking.forking_case import ForkingCase
from tests.integration.running_daemon import until

SIZE = 3 << 20
WRITES = f"""
import time
from sticky.forking.serving import Control
table = bytearray(b"x") * {SIZE}
def begin(given):
    for place in range(0, len(table), 4096):
        table[place] = 0
    time.sleep(600)
Control().serve(lambda: None, begin)
"""
ASKED = {"env": {"STICKY_CONTAINER_ID": "ct-1111"}, "directory": "/", "cgroups": [], "rlimits": {}}


class LessonTests(ForkingCase):
    def setUp(self) -> None:
        self.begin(sys.executable, "-c", WRITES)

    def begun(self) -> int:
        """One that has been told, and has written to the table."""
        pid, waiting = self.forked()
        with waiting, open(os.devnull, "wb") as log:
            self.assertLess(private(pid), SIZE)
            socket.send_fds(waiting, [json.dumps({**ASKED, "descriptors": ["log"]}).encode()], [log.fileno()])
        until("it has written", lambda: private(pid) > SIZE)
        return pid

    def ended(self, pid: int) -> None:
        while self.said().get("exited") != pid:
            pass

    def next_is_ready(self) -> bool:
        """Whether one that waits has the table as its own already."""
        pid, waiting = self.forked()
        with waiting:
            until("it waits", lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S")
            found = private(pid) > SIZE
        self.ended(pid)
        return found

    def test_the_next_one_has_as_its_own_what_one_that_lives_has_written_to(self) -> None:
        pid = self.begun()
        until("one is got ready", self.next_is_ready)
        os.kill(pid, signal.SIGKILL)

    def test_those_that_end_at_once_teach_nothing_and_use_up_no_lesson(self) -> None:
        for _ in range(6):  # more than there are lessons
            pid = self.begun()
            os.kill(pid, signal.SIGKILL)
            self.ended(pid)
            other, waiting = self.forked()
            waiting.close()
            self.ended(other)
        pid = self.begun()
        until("one is got ready", self.next_is_ready)
        os.kill(pid, signal.SIGKILL)

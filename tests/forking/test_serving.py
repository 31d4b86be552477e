"""Processes that fork when they are asked: what the next fork has ready, learnt from those before it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.looking import private
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


class LessonTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.ours.close)
        self.ours.settimeout(60)
        with theirs:
            env = {**os.environ, "STICKY_CONTAINER_ID": "ct-0000"}
            process = subprocess.Popen([sys.executable, "-c", WRITES], stdin=theirs.fileno(), env=env)
        self.addCleanup(process.wait, 60)
        self.addCleanup(self.ours.close)  # that is how it hears that the daemon is gone
        self.assertEqual(self.said(), {"warm": True})

    def said(self) -> Any:
        return json.loads(self.ours.recv(1 << 17))

    def forked(self) -> tuple[int, socket.socket]:
        """A fork that waits to be told what it is, and where it is told."""
        self.ours.send(b"{}")
        message, descriptors, _, _ = socket.recv_fds(self.ours, 1 << 17, 1)
        return int(json.loads(message)["pid"]), socket.socket(fileno=descriptors[0])

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

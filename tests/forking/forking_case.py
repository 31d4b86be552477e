"""A process that forks on demand, spoken to as the daemon does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase


class ForkingCase(SynchronousTestCase):
    """`ours` is the daemon's end of the socket."""

    def begin(self, *command: str, log: Any = None) -> None:
        """Start it; it is ready to fork."""
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.ours.close)
        self.ours.settimeout(60)
        with theirs:
            env = {**os.environ, "STICKY_CONTAINER_ID": "ct-0000"}
            self.process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=log, stderr=log, env=env)
        self.addCleanup(self.process.wait, 60)
        self.addCleanup(self.ours.close)  # that is how it hears that the daemon is gone
        self.assertEqual(self.said(), {"warm": True})

    def said(self) -> Any:
        """Its next word."""
        return json.loads(self.ours.recv(1 << 17))

    def forked(self) -> tuple[int, socket.socket]:
        """A fork that waits to be told what it is, and where it is told."""
        self.ours.send(b"{}")
        message, descriptors, _, _ = socket.recv_fds(self.ours, 1 << 17, 1)
        return int(json.loads(message)["pid"]), socket.socket(fileno=descriptors[0])

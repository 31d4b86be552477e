"""Ten thousand half-open handshakes against a real daemon: so many are let in, the rest is refused, others are served."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest
from websockets.sync.client import connect

from tests.integration.daemon_case import APPS, ECHO, PYTHON, DaemonCase, server
from tests.integration.running_daemon import Daemon

COUNT = 10_000
THINKING = json.dumps([PYTHON, str(APPS / "thinking.py"), "{port}"])


class FloodTests(DaemonCase):
    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        """With a backlog that takes a burst: newcomers whom the kernel turns away try again after a second or three."""
        listen = "tcp:0:interface=127.0.0.1:backlog=2048"
        config = str(self.folder / "sticky.toml")
        self.daemon = Daemon(self.folder, "--config", config, "--listen", listen, env=env, listen=False)
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()
        self.bearer = (self.folder / "state" / "proxy-token").read_text().strip()

    def test_half_open_handshakes_are_bounded_and_others_are_served(self) -> None:
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < COUNT + 1000:
            raise SkipTest("the limit of open files is too low for the clients")
        self.serve(
            server("thinking", THINKING, hosts=["thinking.localhost"]) + server("echo", ECHO, hosts=["echo.localhost"])
        )
        port = self.url.rpartition(":")[2]
        token, other = self.token("thinking.localhost"), self.token("echo.localhost")
        flood = subprocess.Popen(
            [PYTHON, str(APPS / "flood.py"), port, str(COUNT), token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(flood.communicate, timeout=30)
        assert flood.stdout is not None
        seen = json.loads(flood.stdout.readline())
        self.assertEqual(sum(seen.values()), COUNT)
        self.assertGreater(seen["open"], 1000, seen)
        self.assertGreater(seen["refused"], 1000, seen)
        self.assertEqual(self.get(other, Host="echo.localhost").status_code, 200)
        headers = {"Modal-Authorization": f"Bearer {other}"}
        ours = socket.create_connection(("127.0.0.1", int(port)))
        with connect(f"ws://echo.localhost:{port}/ws", sock=ours, additional_headers=headers) as opened:
            opened.recv(timeout=60)
            opened.send("hello")
            self.assertEqual(opened.recv(timeout=60), "hello")
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        self.assertLess(resident, 400_000, "KiB")
        self.assertTrue(self.daemon.alive())

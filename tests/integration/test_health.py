"""A real container that does not answer any more, while its process lives on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from socket import socket

from websockets.exceptions import ConnectionClosed

from sticky.cli.client import Admin
from tests.integration.daemon_case import APPS, PYTHON, DaemonCase, server
from tests.integration.running_daemon import until

DEAF = json.dumps([PYTHON, str(APPS / "deaf_ws.py"), "{port}"])


def answers(port: int) -> bool:
    with socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


class HealthTests(DaemonCase):
    def admin(self) -> Admin:
        return Admin(self.folder / "state")

    def test_one_that_stops_listening_is_killed_and_its_websocket_told(self) -> None:
        self.serve(server("one", DEAF, min_containers=1))
        token = self.token()
        opened = self.websocket(token)
        pid = int(opened.recv(timeout=60))
        os.kill(pid, signal.SIGUSR1)
        (box,) = self.admin().call("GET", "/v1/containers")["containers"]
        port = int(box["address"].rpartition(":")[2])
        until("it stops listening", lambda: not answers(port))
        # A request that cannot connect makes it be looked at; the session stays until more than ten looks have failed.
        self.assertEqual(self.get(token).status_code, 503)
        opened.send("still here")
        self.assertEqual(opened.recv(timeout=60), "still here")
        with self.assertRaises(ConnectionClosed) as caught:
            opened.recv(timeout=60)
        assert caught.exception.rcvd is not None
        self.assertEqual(caught.exception.rcvd.code, 1011)
        refused = self.get(token)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "container_lost"))
        until("it is killed", lambda: not Path(f"/proc/{pid}").exists())
        replaced = self.websocket(self.token())
        self.assertNotEqual(int(replaced.recv(timeout=60)), pid)
        (one,) = self.admin().status()["servers"]
        self.assertEqual([ended["detail"] for ended in one["ended"]], ["unhealthy"])

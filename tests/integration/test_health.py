"""A real container that does not answer any more, while its process lives on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from socket import socket

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

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

    def closed(self, opened: ClientConnection) -> None:
        with self.assertRaises(ConnectionClosed) as caught:
            opened.recv(timeout=60)
        assert caught.exception.rcvd is not None
        self.assertEqual(caught.exception.rcvd.code, 1011)

    def test_one_that_stops_listening_and_one_that_is_stopped_are_killed_and_their_websockets_told(self) -> None:
        deaf, stopped = "deaf.localhost", "stopped.localhost"
        self.serve(server("deaf", DEAF, min_containers=1, hosts=[deaf]) + server("stopped", DEAF, hosts=[stopped]))
        tokens = {host: self.token(host) for host in (deaf, stopped)}
        opened = {host: self.websocket(token, host) for host, token in tokens.items()}
        pids = {host: int(one.recv(timeout=60)) for host, one in opened.items()}
        os.kill(pids[deaf], signal.SIGUSR1)
        os.kill(pids[stopped], signal.SIGSTOP)  # the kernel takes connections for it all the same
        boxes = self.admin().call("GET", "/v1/containers")["containers"]
        port = next(int(box["address"].rpartition(":")[2]) for box in boxes if box["server"] == "deaf")
        until("it stops listening", lambda: not answers(port))
        # A request that cannot connect makes it be looked at; the session stays until more than ten looks have failed.
        self.assertEqual(self.get(tokens[deaf], Host=deaf).status_code, 503)
        opened[deaf].send("still here")
        self.assertEqual(opened[deaf].recv(timeout=60), "still here")
        for host, token in tokens.items():
            self.closed(opened[host])
            refused = self.get(token, Host=host)
            self.assertEqual((refused.status_code, refused.json()["error"]), (410, "container_lost"))
            until("it is killed", lambda host=host: not Path(f"/proc/{pids[host]}").exists())  # type: ignore[misc]
        replaced = self.websocket(self.token(deaf), deaf)
        self.assertNotEqual(int(replaced.recv(timeout=60)), pids[deaf])
        for one in self.admin().status()["servers"]:
            self.assertEqual([ended["detail"] for ended in one["ended"]], ["unhealthy"])

"""How WebSockets end with their session or container, in a real daemon: the client and the container are told the same code."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import ClassVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.integration.daemon_case import APPS, PYTHON, DaemonCase, server
from tests.integration.running_daemon import until

NOTING = json.dumps([PYTHON, str(APPS / "noting_ws.py"), "{port}"])


class WithoutGraceTests(DaemonCase):
    """The session ends in the moment in which the container is asked to go."""

    mode: ClassVar[str] = "frames"
    grace: ClassVar[float] = 0

    def open(self, **settings: object) -> ClientConnection:
        """A WebSocket of a new session."""
        settings = {"websocket": self.mode, "exit_grace_period": self.grace, **settings}
        self.serve(server("one", NOTING, **settings))
        self.given = self.start().json()
        opened = self.websocket(self.given["token"])
        self.container = str(opened.recv(timeout=60))
        return opened

    def assertEnds(self, opened: ClientConnection, code: int, reason: str, *, within: float = 15) -> None:
        """Both sides say so."""
        with self.assertRaises(ConnectionClosed):
            opened.recv(timeout=within)
        self.assertEqual((opened.close_code, opened.close_reason), (code, reason))
        note = self.folder / f"ends-{self.container}"
        self.assertEqual(
            until("the container notes it", lambda: note.exists() and note.read_text()), f"{code} {reason}\n"
        )

    def stop_container(self) -> None:
        """As the operator."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.daemon.state / "admin.sock"))
        connection.request("POST", f"/v1/containers/{self.container}/stop")
        self.assertLess(connection.getresponse().status, 300)
        connection.close()

    def test_the_containers_age(self) -> None:
        opened = self.open(container_max_age=4, idle_timeout=2, max_idle_timeout=2)
        self.assertEnds(opened, 4408, "container_max_age")

    def test_the_operator_stops_the_container(self) -> None:
        opened = self.open()
        begun = time.monotonic()
        self.stop_container()
        self.assertEnds(opened, 1001, "server_stopped")
        self.assertGreaterEqual(time.monotonic() - begun, self.grace)

    def test_the_daemon_leaves(self) -> None:
        opened = self.open()
        self.daemon.stop()
        self.assertEnds(opened, 1001, "server_stopped")
        self.assertEqual(self.children(), [])

    def test_the_session_is_terminated(self) -> None:
        opened = self.open()
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": self.given["token"]}
        fields["x-modal-server-session-grace"] = str(self.grace)
        self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)
        self.assertEnds(opened, 4410, "terminated")

    def test_the_container_is_killed(self) -> None:
        opened = self.open()
        self.kill_container(self.container)
        with self.assertRaises(ConnectionClosed):
            opened.recv(timeout=60)
        self.assertEqual((opened.close_code, opened.close_reason), (1011, "container_lost"))

    def test_a_silent_one_does_not_keep_its_session(self) -> None:
        opened = self.open(silent_timeout=1, idle_timeout=1)
        for _ in range(4):
            time.sleep(0.7)  # by the real clock of a real daemon: talk keeps the session
            opened.send("still here")
            self.assertEqual(opened.recv(timeout=60), "still here")
        self.assertEnds(opened, 4410, "idle_timeout")

    def test_the_container_breaks_the_protocol(self) -> None:
        opened = self.open()
        opened.send("break the protocol")
        with self.assertRaises(ConnectionClosed):
            opened.recv(timeout=60)
        note = self.folder / f"ends-{self.container}"
        noted = str(until("the container notes it", lambda: note.exists() and note.read_text()))
        if self.mode == "messages":
            self.assertEqual((opened.close_code, opened.close_reason), (1011, "container_protocol_error"))
            self.assertEqual(noted, "1002 container_protocol_error\n")
        else:  # it reaches the client as it is, and the client says what it thinks of it
            self.assertIsNotNone(opened.protocol.close_sent)
            self.assertEqual(opened.protocol.close_sent and opened.protocol.close_sent.code, 1002)
            self.assertTrue(noted.startswith("1002 "))


class WithGraceTests(WithoutGraceTests):
    grace = 1.0


class AsMessagesTests(WithoutGraceTests):
    mode = "messages"

    def test_the_servers_own_limit_holds(self) -> None:
        opened = self.open(max_message_size=1000)
        opened.send("x" * 1000)
        self.assertEqual(opened.recv(timeout=60), "x" * 1000)
        opened.send("x" * 1001)
        self.assertEnds(opened, 1009, "client_message_too_big")

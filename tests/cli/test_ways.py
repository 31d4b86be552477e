"""The command finds a daemon's socket that is not there yet, as long as a daemon holds the state directory."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.cli import ways
from sticky.cli.client import Admin
from sticky.cli.problems import Problem
from sticky.journal.lock import StateLock


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"daemon": {}}'
        self.send_response(200)
        for name, value in (("sticky-version", "1"), ("sticky-api", "1"), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "here"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class WaitingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.addCleanup(shutil.rmtree, self.state)

    def test_whoever_holds_the_lock_is_waited_for(self) -> None:
        lock = StateLock(self.state)
        lock.acquire()
        self.addCleanup(lock.release)
        looked = threading.Event()
        is_held = ways._is_held

        def looks(path: Path) -> bool:
            looked.set()
            return is_held(path)

        self.patch(ways, "_is_held", looks)
        found: list[object] = []
        asking = threading.Thread(target=lambda: found.append(Admin(self.state).call("GET", "/v1/status")))
        asking.start()
        self.assertTrue(looked.wait(60), "it has found no socket")
        server = socketserver.UnixStreamServer(str(self.state / "admin.sock"), Answers)
        self.addCleanup(server.server_close)
        server.handle_request()
        asking.join(60)
        self.assertEqual(found, [{"daemon": {}}])

    def test_where_nobody_holds_it_nobody_is_waited_for(self) -> None:
        self.patch(ways, "COMES_WITHIN", 1e9)
        refused = self.assertRaises(Problem, Admin(self.state).call, "GET", "/v1/status")
        self.assertIn("no daemon runs", str(refused))
        lock = StateLock(self.state)
        lock.acquire()
        lock.release()
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(self.state / "admin.sock"))
        refused = self.assertRaises(Problem, Admin(self.state).call, "GET", "/v1/status")
        self.assertIn("has died", str(refused))

    def test_one_that_does_not_come_is_not_waited_for_for_ever(self) -> None:
        self.patch(ways, "COMES_WITHIN", 0.0)
        lock = StateLock(self.state)
        lock.acquire()
        self.addCleanup(lock.release)
        self.assertRaises(Problem, Admin(self.state).call, "GET", "/v1/status")
        self.assertEqual((self.state / "lock").read_text(), f"{os.getpid()}\n", "nobody has touched it")

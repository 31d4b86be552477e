"""A daemon for tests of the command: answers on a Unix socket what a test has written down. One thread, gone with the test."""

from __future__ import annotations

import json
import shutil
import socketserver
import tempfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from sticky._version import __version__
from sticky.admin.bodies import API, container, daemon, ended, server
from sticky.cli import main
from tests.cli.capture import Captured
from tests.fakes.inspection import FakeInspection

TOKEN = "v4.public.a-session-token"


@attrs.define
class Reply:
    """What is answered: a body, or lines one after the other."""

    body: Any = None
    status: int = 200
    lines: list[Any] | None = None
    lacks: int = 0  #: so many bytes of the end are announced and never come
    version: str | None = __version__
    api: str = str(API)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, replies: dict[str, Reply], asked: list[tuple[str, Any]]) -> None:
        self.replies = replies
        self.asked = asked
        super().__init__(path, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a command that has read enough leaves before the end."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests look at what was asked."""

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        call = f"{self.command} {self.path}"
        self.server.asked.append((call, json.loads(self.rfile.read(length)) if length else None))
        reply = self.server.replies.get(call) or self.server.replies.get(call.partition("?")[0])
        if reply is None:
            reply = Reply({"error": "not_found", "message": f"no reply for {call}"}, 404)
        self.send_response(reply.status)
        if reply.version is not None:
            self.send_header("sticky-version", reply.version)
            self.send_header("sticky-api", reply.api)
        lines = [reply.body] if reply.lines is None else reply.lines
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if reply.lacks and reply.lines is None:
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[: len(text) - reply.lacks])

    do_POST = do_GET


class CommandCase(SynchronousTestCase):
    """Runs the command in this process, against a daemon that answers from `self.replies`."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.captured = Captured(self)
        self.replies: dict[str, Reply] = {}
        self.asked: list[tuple[str, Any]] = []
        self.inspection = FakeInspection(self.folder)

    def listen(self) -> None:
        """The daemon is there; it knows the fake inspection's status."""
        served = _Server(str(self.folder / "admin.sock"), self.replies, self.asked)
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(served.server_close)
        self.addCleanup(served.shutdown)
        self.replies["GET /v1/status"] = Reply(self.status())
        self.give_bearer("wk-dev.ws-secret")

    def give_bearer(self, bearer: str | None) -> None:
        """The daemon's own proxy token."""
        body = {"url": "http://127.0.0.1:8080", "brand": "modal", "proxy_token": bearer}
        self.replies["POST /v1/access"] = Reply(body)

    def status(self) -> dict[str, Any]:
        servers = [server(view, 30) for view in self.inspection.servers()]
        return {"daemon": daemon(self.inspection.daemon()), "workers": [], "servers": servers}

    def containers(self) -> dict[str, Any]:
        (view,) = self.inspection.servers()
        return {
            "containers": [container(one) for one in view.containers],
            "ended": [ended(one) for one in view.ended],
        }

    def credentials(self, session: str = "sd-new") -> dict[str, Any]:
        return {
            "session_id": session,
            "token": TOKEN,
            "created": True,
            "server": "game",
            "url": "http://127.0.0.1:1",
            "brand": "modal",
            "idle_timeout": 600.0,
            "expires_at": 1e9,
        }

    def sticky(self, *arguments: str, status: int = 0, state: bool = True) -> str:
        """What it says on stdout; its status must be this."""
        self.captured.clear()
        where = ["--state-dir", str(self.folder)] if state else []
        found = main([*arguments, *where])
        self.assertEqual(found, status, f"{arguments}: {self.captured.err}")
        return self.captured.out

    def complaint(self, *arguments: str, status: int) -> str:
        """The one line on stderr of a command that fails."""
        self.assertEqual(self.sticky(*arguments, status=status), "")
        line = self.captured.err
        self.assertTrue(line.startswith("sticky: ") and line.endswith("\n") and line.count("\n") == 1, line)
        return line.removeprefix("sticky: ").rstrip("\n")

    def calls(self) -> list[str]:
        return [call for call, _ in self.asked]

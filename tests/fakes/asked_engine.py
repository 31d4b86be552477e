"""A Docker Engine on a thread of its own, for who asks it without an event loop: its version, and which images it has."""

from __future__ import annotations

import json
import socketserver
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from types import TracebackType
from urllib.parse import unquote


class FakeEngine(socketserver.ThreadingUnixStreamServer):
    """Listens at this socket while it is a context."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.images: set[str] = set()
        self.asked: list[str] = []
        super().__init__(str(path), _Handler)
        self._path = path
        self._thread = Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._path.unlink()


class _Handler(BaseHTTPRequestHandler):
    server: FakeEngine

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests look at what was asked."""

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append(path)
        image = path.removeprefix("/images/").removesuffix("/json")
        known = path == "/version" or image in self.server.images
        body = {"ApiVersion": "1.43"} if known else {"message": f"No such image: {image}"}
        data = json.dumps(body).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

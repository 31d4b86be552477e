"""A page of another site for tests with browsers: empty, or with a frame that its query names. Holds no test."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

from twisted.trial.unittest import SynchronousTestCase


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        framed = unquote(self.path.partition("?")[2])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        frame = f'<iframe src="{framed}"></iframe>' if framed else ""
        self.wfile.write(f"<!doctype html><title>elsewhere</title>{frame}".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


class OtherSite:
    """Serves until the test is over, at an address that is another site than any name below localhost."""

    def __init__(self, test: SynchronousTestCase) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"

    def framing(self, url: str) -> str:
        """The address of a page that shows another one in a frame."""
        return f"{self.url}?{quote(url, safe='')}"

"""A container for tests whose whole state is a number in memory: each request adds one."""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Counter(BaseHTTPRequestHandler):
    """Answers with its container's id and how often it has been asked."""

    count = 0
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        type(self).count += 1
        body = f"{os.environ['STICKY_CONTAINER_ID']} {type(self).count}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Counter).serve_forever()

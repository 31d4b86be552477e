"""Answers /wait when somebody asks /go, with the most that were inside at once; /inside says how many wait now."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

gate = threading.Semaphore(0)
lock = threading.Lock()
inside = most = 0


class Gated(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        global inside, most
        text = str(inside)
        if self.path == "/wait":
            with lock:
                inside += 1
                most = max(most, inside)
            gate.acquire()
            with lock:
                inside -= 1
            text = str(most)
        elif self.path == "/go":
            gate.release()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Gated).serve_forever()

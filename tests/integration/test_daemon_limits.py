"""A real daemon at its limits: no descriptors left, bodies larger than its memory, and not a token in anything that it writes."""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running_daemon import TWISTD, Daemon, Running, until

LONG = bool(os.environ.get("STICKY_LONG_TESTS"))
BULK = 10_000_000_000 if LONG else 300_000_000  #: bytes
MEMORY = 100_000_000  #: bytes that the daemon may ever have used

CONTAINER = """
import os, socket, sys, threading

def serve(client):
    file = client.makefile("rb", 1 << 20)
    while line := file.readline():
        method, target, _ = line.split()
        length = 0
        while (field := file.readline()) not in (b"\\r\\n", b""):
            if field.lower().startswith(b"content-length:"):
                length = int(field.split(b":")[1])
        while length:
            length -= len(file.read(min(length, 1 << 20)))
        size = int(target[1:].split(b"?")[0] or b"2")
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % size)
        block = bytes(1 << 20)
        while size:
            part = min(size, len(block))
            client.sendall(block[:part])
            size -= part

with socket.create_server(("127.0.0.1", int(os.environ["PORT"]))) as listener:
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class LimitCase(SynchronousTestCase):
    """A daemon in front of the container above."""

    daemon: Running
    port: int

    def begin(self, daemon: str = "", files: int | None = None) -> None:
        """Start it with these settings, and perhaps so many descriptors."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        (self.folder / "container.py").write_text(CONTAINER)
        config = self.folder / "sticky.toml"
        config.write_text(
            f"[daemon]\n{daemon}\n[servers.bulk]\ncommand = [{sys.executable!r}, 'container.py']\nunauthenticated = true\n"
            "min_containers = 1\nmax_containers = 1\n"
        )
        if files is None:
            self.daemon = running = Daemon(self.folder, "--config", str(config))
            url = running.url()
        else:
            state = self.folder / "state"
            command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *TWISTD, "-n", "--pidfile=", "sticky"]
            command += [
                "--config",
                str(config),
                "--state-dir",
                str(state),
                "--listen",
                "tcp:0:interface=127.0.0.1:backlog=1024",
            ]
            self.daemon = Running(command, self.folder / "daemon.log")
            self.daemon.wait_for("it listens", lambda: (state / "url").exists() and (state / "url").read_text())
            url = (state / "url").read_text().splitlines()[0]
        self.addCleanup(self.daemon.stop)
        self.port = int(url.rsplit(":", 1)[1])

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        return connection

    def session(self) -> str:
        connection = self.connect()
        connection.request("POST", "/_modal/sessions/start")
        answer = connection.getresponse()
        found = re.search(rb'"token": ?"([^"]+)"', answer.read())
        assert found is not None, answer.status
        connection.close()
        return found[1].decode()


class DescriptorTests(LimitCase):
    def test_without_descriptors_accepting_pauses_is_said_once_and_resumes(self) -> None:
        self.begin("max_connections = 5000\nmax_connections_per_client = 5000", files=120)
        fields = {"Modal-Authorization": f"Bearer {self.session()}"}
        kept = self.connect()

        def served(connection: http.client.HTTPConnection) -> bool:
            connection.request("GET", "/2", headers=fields)
            answer = connection.getresponse()
            return (answer.status, answer.read()) == (200, b"\0\0")

        self.assertTrue(served(kept))
        crowd = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(250)]
        said = "no more clients can be accepted"
        self.daemon.wait_for("it says so", lambda: said in self.daemon.output())
        before = self.processor_time()
        began = time.monotonic()
        while time.monotonic() < began + 2:
            self.assertTrue(served(kept))
            time.sleep(0.1)
        self.assertLess(self.processor_time() - before, 1.0)
        for client in crowd:
            client.close()
        self.assertTrue(until("newcomers are served", lambda: served(self.connect())))
        self.assertEqual(self.daemon.output().count(said), 1)
        self.assertNotIn("Traceback", self.daemon.output())

    def processor_time(self) -> float:
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class BulkTests(LimitCase):
    def test_bodies_of_any_size_pass_through_a_hundred_megabytes(self) -> None:
        self.begin("access_log = 'off'")
        fields = {"Modal-Authorization": f"Bearer {self.session()}"}
        down = self.connect()
        down.request("GET", f"/{BULK}", headers=fields)
        answer = down.getresponse()
        size = 0
        while part := answer.read(1 << 20):
            size += len(part)
        self.assertEqual(size, BULK)
        up = self.connect()
        up.putrequest("PUT", "/2")
        for name, value in {**fields, "Content-Length": str(BULK)}.items():
            up.putheader(name, value)
        up.endheaders()
        block = bytes(1 << 20)
        left = BULK
        while left:
            up.send(block[: min(left, len(block))])
            left -= min(left, len(block))
        self.assertEqual(up.getresponse().read(), b"\0\0")
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.daemon.pid}/status").read_text())
        assert peak is not None
        self.assertLess(int(peak[1]) * 1024, MEMORY)


class SecretTests(LimitCase):
    def test_no_token_is_in_anything_that_the_daemon_writes(self) -> None:
        self.begin("access_log_format = 'json'")
        token = self.session()
        escaped = "".join(f"%{byte:02X}" for byte in token.encode())
        cookie = f"Cookie: __Host-modal-session-token={token}\r\n"
        bearer = f"Modal-Authorization: Bearer {token}\r\n"
        handshake = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        handshake += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        requests = [
            f"GET /2?modal_session_token={token} HTTP/1.1\r\nHost: h\r\n\r\n",
            f"GET /2?modal_session_token={token} HTTP/1.1\r\nHost: h\r\nSec-Fetch-Mode: cors\r\n\r\n",
            f"GET /2?%6Dodal_session_token={escaped}&a=1 HTTP/1.1\r\nHost: h\r\nSec-Fetch-Mode: cors\r\n\r\n",
            f"GET /2 HTTP/1.1\r\nHost: h\r\n{cookie}Referer: http://h/?modal_session_token={token}\r\nUser-Agent: {token}\r\n\r\n",
            f"GET /2 HTTP/1.1\r\nHost: h\r\n{bearer}Connection: keep-alive\r\n\r\n",
            f"GET /2?x={token} HTTP/1.1\r\nHost: h\r\n{bearer}\r\n",
            f"GET /{token} HTTP/1.1\r\nHost: h\r\nModal-Authorization: Bearer {token}x\r\n\r\n",
            f"GET /2?modal_session_token={token} HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
            f"GE T /{token} HTTP/9.9\r\n{cookie}\r\n",
            f"GET /2 HTTP/1.1\r\nHost: h\r\n{handshake}Sec-WebSocket-Protocol: modal-session-token.{token}\r\n\r\n",
            f"POST /_modal/sessions/terminate?t={token} HTTP/1.1\r\nHost: h\r\nx-modal-server-session-token: {token}\r\n\r\n",
            f"GET /2 HTTP/1.1\r\nHost: h\r\n{cookie}\r\n",
        ]
        for request in requests:
            with socket.create_connection(("127.0.0.1", self.port), 10) as client:
                client.settimeout(10)
                client.sendall(request.encode())
                self.assertTrue(client.recv(65536), request[:30])
        until("all are logged", lambda: self.daemon.output().count('"target"') >= len(requests))
        self.daemon.stop()
        secret = re.compile(b"|".join((re.escape(token[-60:-20].encode()), re.escape(escaped[-180:-60].encode()))))
        self.assertTrue(secret.search(f"planted {token}".encode()))
        written = [path for path in self.folder.rglob("*") if path.is_file()]
        self.assertIn(self.folder / "daemon.log", written)
        for path in written:
            self.assertIsNone(secret.search(path.read_bytes()), path)

"""TLS by endpoint string: real certificates, a client that offers ALPN, WebSockets, and the secure scheme in what Sticky says."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.integration.running_daemon import Daemon

APPS = Path(__file__).parent / "apps"


def certify(folder: Path) -> Path:
    """A certificate of localhost, and its key, in a folder."""
    certificate = folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", str(folder / "key.pem"), "-out", str(certificate), "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return certificate


class TlsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.certificate = certify(self.folder)
        command = json.dumps([sys.executable, str(APPS / "echo_ws.py"), "{port}"])
        (self.folder / "sticky.toml").write_text(
            "[daemon]\n"
            'listen = ["ssl:0:interface=127.0.0.1:privateKey=key.pem:certKey=cert.pem"]\n'
            f"[servers.echo]\ncommand = {command}\n"
        )
        self.daemon = Daemon(self.folder, "--config", str(self.folder / "sticky.toml"), listen=False)
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()
        self.bearer = (self.folder / "state" / "proxy-token").read_text().strip()

    def token(self) -> str:
        answer = requests.post(
            f"{self.url}/_modal/sessions/start",
            headers={"Authorization": f"Bearer {self.bearer}"},
            verify=str(self.certificate),
            timeout=60,
        )
        self.assertEqual(answer.status_code, 200, answer.text)
        return str(answer.json()["token"])

    def test_a_session_over_https_with_the_query_token_and_the_cookie(self) -> None:
        self.assertTrue(self.url.startswith("https://127.0.0.1:"))
        browser = requests.Session()
        trust = str(self.certificate)
        self.addCleanup(browser.close)
        token = self.token()
        moved = browser.get(f"{self.url}/?modal_session_token={token}", allow_redirects=False, timeout=10, verify=trust)
        self.assertEqual((moved.status_code, moved.headers["location"]), (307, f"{self.url}/"))
        page = browser.get(moved.headers["location"], timeout=10, verify=trust)
        self.assertEqual((page.status_code, page.text[:3]), (200, "ct-"))

    def test_a_client_that_offers_alpn_gets_http_1_1(self) -> None:
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.set_alpn_protocols(["h2", "http/1.1"])
        host, port = self.url.removeprefix("https://").split(":")
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            self.assertEqual(secure.selected_alpn_protocol(), "http/1.1")

    def test_a_websocket_over_tls(self) -> None:
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.set_alpn_protocols(["http/1.1"])
        headers = {"Modal-Authorization": f"Bearer {self.token()}"}
        with connect(self.url.replace("https", "wss") + "/ws", additional_headers=headers, ssl=context) as opened:
            self.assertEqual(str(opened.recv())[:3], "ct-")
            opened.send("x" * 100_000)
            self.assertEqual(opened.recv(), "x" * 100_000)


class HostsTests(SynchronousTestCase):
    """Several Servers behind one TLS listener."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        certify(self.folder)
        command = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])
        servers = "".join(
            f'[servers.{name}]\ncommand = {command}\nhosts = ["{name}.localhost"]\nunauthenticated = true\n'
            for name in ("one", "two")
        )
        (self.folder / "sticky.toml").write_text(
            '[daemon]\nlisten = ["ssl:0:interface=127.0.0.1:privateKey=key.pem:certKey=cert.pem"]\n' + servers
        )
        self.daemon = Daemon(self.folder, "--config", str(self.folder / "sticky.toml"), listen=False)
        self.addCleanup(self.daemon.stop)
        self.port = int(self.daemon.url().rpartition(":")[2])

    def ask(self, named: str | None, host: str) -> tuple[int, dict[str, str]]:
        """What is answered for this Host on a connection whose handshake named that one."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=named) as secure,
        ):
            secure.sendall(
                f"POST /_modal/sessions/start HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b""
            while received := secure.recv(65536):
                answer += received
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)

    def test_each_has_its_own_host_and_another_one_is_404_or_421_where_tls_named_one(self) -> None:
        for name in ("one", "two"):
            self.assertEqual(self.ask(f"{name}.localhost", f"{name}.localhost:{self.port}")[0], 200)
        self.assertEqual(self.ask("one.localhost", "two.localhost")[0], 200, "one certificate may hold several names")
        status, said = self.ask("one.localhost", "three.localhost")
        self.assertEqual((status, said["error"]), (421, "misdirected_request"))
        for named in ("three.localhost", None):
            status, said = self.ask(named, "three.localhost")
            self.assertEqual((status, said["error"]), (404, "unknown_host"))

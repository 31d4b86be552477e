"""The curl lines of the documentation that Sticky follows, one after the other, by the real curl against a real daemon."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running_daemon import Daemon

COOKIE = "__Host-modal-session-token"

CONFIG = """
[[proxy_tokens]]
id = "wk-dev"
secret = "env:DEMO_SECRET"
owner = "dev"
servers = ["*"]

[servers.demo]
command = ["python3", "-m", "http.server", "{port}", "--bind", "{host}"]
"""


@attrs.frozen
class Reply:
    """What curl -i printed."""

    status: int
    headers: list[tuple[str, str]]  #: names in lower case
    body: str

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class CurlTranscriptTests(SynchronousTestCase):
    def setUp(self) -> None:
        found = shutil.which("curl")
        assert found is not None, "curl is needed for this test"
        self.curl = found
        folder = Path(self.mktemp()).resolve()
        site = folder / "site"
        (site / "some").mkdir(parents=True)
        (site / "index.html").write_text("the front page\n")
        (site / "some" / "path").write_text("some path\n")
        (site / "sticky.toml").write_text(CONFIG)
        secret = f"ws-{secrets.token_hex(16)}"
        self.proxy_token = f"wk-dev.{secret}"
        self.daemon = Daemon(folder, "--config", str(site / "sticky.toml"), env={"DEMO_SECRET": secret})
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()

    def run_curl(self, *arguments: str) -> Reply:
        done = subprocess.run(
            [self.curl, "--silent", "--show-error", "--include", "--max-time", "40", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        head, _, body = done.stdout.partition("\n\n")  # text mode has made CRLF to LF
        first, *lines = head.splitlines()
        fields = [line.partition(":") for line in lines]
        return Reply(int(first.split()[1]), [(name.lower(), value.strip()) for name, _, value in fields], body)

    def test_the_transcript(self) -> None:
        url, bearer = self.url, f"Authorization: Bearer {self.proxy_token}"

        # Start a session with a 600s idle timeout.
        idle = "x-modal-server-session-idle-timeout: 600"
        reply = self.run_curl("-X", "POST", f"{url}/_modal/sessions/start", "-H", bearer, "-H", idle)
        self.assertEqual(reply.status, 200, reply.body)
        started = json.loads(reply.body)
        self.assertRegex(started["session_id"], r"^sd-")
        token = started["token"]
        with_header = f"Modal-Authorization: Bearer {token}"

        # Make a request to the session.
        reply = self.run_curl(f"{url}/some/path", "-H", with_header)
        self.assertEqual((reply.status, reply.body), (200, "some path\n"))

        # On first visit: authenticate via the query parameter.
        reply = self.run_curl(f"{url}/?modal_session_token={token}")
        self.assertEqual(reply.status, 307)
        self.assertEqual(reply.all("location"), [f"{url}/"])
        self.assertEqual(reply.all("set-cookie"), [f"{COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Lax"])
        self.assertEqual(reply.all("cache-control"), ["no-store"])

        # Subsequent requests need neither the header nor the query parameter.
        reply = self.run_curl(f"{url}/", "--cookie", f"{COOKIE}={token}")
        self.assertEqual((reply.status, reply.body), (200, "the front page\n"))

        # Terminate the session early.
        named = f"x-modal-server-session-token: {token}"
        reply = self.run_curl("-X", "POST", f"{url}/_modal/sessions/terminate", "-H", bearer, "-H", named)
        self.assertEqual(reply.status, 200, reply.body)

        # Every request after that is refused, with the reason.
        for credential in (("-H", with_header), ("--cookie", f"{COOKIE}={token}")):
            reply = self.run_curl(f"{url}/some/path", *credential)
            self.assertEqual((reply.status, json.loads(reply.body)["error"]), (410, "terminated"))
        self.assertNotIn(token, self.daemon.output())
        self.assertNotIn(self.proxy_token, self.daemon.output())

    def test_starting_takes_a_proxy_token_and_a_request_takes_a_session_token(self) -> None:
        self.assertEqual(self.run_curl("-X", "POST", f"{self.url}/_modal/sessions/start").status, 401)
        self.assertEqual(self.run_curl(f"{self.url}/some/path").status, 401)
        proxy_only = self.run_curl(f"{self.url}/some/path", "-H", f"Authorization: Bearer {self.proxy_token}")
        self.assertEqual(proxy_only.status, 401)

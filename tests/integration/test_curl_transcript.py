"""The curl lines of the documentation that Sticky follows, one after the other, by the real curl: against the demo, and against
a Server that takes a proxy token."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running_daemon import Daemon, until

ROOT = Path(__file__).resolve().parents[2]
STYLE = ROOT / "examples" / "game" / "glowworms" / "page" / "style.css"
COOKIE = "__Host-modal-session-token"

CONFIG = """
[[proxy_tokens]]
id = "wk-dev"
secret = "env:DEMO_SECRET"
owner = "dev"
servers = ["*"]

[servers.files]
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


def curl(*arguments: str) -> Reply:
    """Run the real one."""
    found = shutil.which("curl")
    assert found is not None, "curl is needed for this test"
    command = [found, "--silent", "--show-error", "--include", "--max-time", "40", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition("\n\n")  # text mode has made CRLF to LF
    first, *lines = head.splitlines()
    fields = [line.partition(":") for line in lines]
    return Reply(int(first.split()[1]), [(name.lower(), value.strip()) for name, _, value in fields], body)


def follow(test: SynchronousTestCase, url: str, bearer: list[str], front: str, other: tuple[str, str]) -> str:
    """The transcript. `front`: what the front page begins with; `other`: path and beginning of another one. Gives the token."""
    # Start a session with a 600s idle timeout.
    idle = "x-modal-server-session-idle-timeout: 600"
    reply = curl("-X", "POST", f"{url}/_modal/sessions/start", *bearer, "-H", idle)
    test.assertEqual(reply.status, 200, reply.body)
    started = json.loads(reply.body)
    test.assertRegex(started["session_id"], r"^sd-")
    test.assertEqual(started["idle_timeout"], 600)
    token = str(started["token"])
    with_header = f"Modal-Authorization: Bearer {token}"

    # Make a request to the session.
    path, beginning = other
    reply = curl(f"{url}{path}", "-H", with_header)
    test.assertEqual((reply.status, reply.body[: len(beginning)]), (200, beginning))

    # On first visit: authenticate via the query parameter.
    reply = curl(f"{url}/?modal_session_token={token}")
    test.assertEqual(reply.status, 307)
    test.assertEqual(reply.all("location"), [f"{url}/"])
    test.assertEqual(reply.all("set-cookie"), [f"{COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Lax"])
    test.assertEqual(reply.all("cache-control"), ["no-store"])

    # Subsequent requests need neither the header nor the query parameter.
    reply = curl(f"{url}/", "--cookie", f"{COOKIE}={token}")
    test.assertEqual((reply.status, reply.body[: len(front)]), (200, front))

    # Terminate the session early.
    named = f"x-modal-server-session-token: {token}"
    reply = curl("-X", "POST", f"{url}/_modal/sessions/terminate", *bearer, "-H", named)
    test.assertEqual(reply.status, 200, reply.body)

    # Every request after that is refused, with the reason.
    for credential in (("-H", with_header), ("--cookie", f"{COOKIE}={token}")):
        reply = curl(f"{url}{path}", *credential)
        test.assertEqual((reply.status, json.loads(reply.body)["error"]), (410, "terminated"))
    return token


def two_free_ports() -> int:
    """The first of two that follow each other."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


class DemoTests(SynchronousTestCase):
    """`bin/demo`, as README has it."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-demo-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.said = self.folder / "output"
        self.port = two_free_ports()  # the launcher's page is on the next one
        with self.said.open("wb") as output:
            self.demo = subprocess.Popen(
                [str(ROOT / "bin" / "demo"), str(self.port)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.folder)},
                start_new_session=True,
            )
        self.addCleanup(self.end)
        until("the demo is up", lambda: "Ctrl-C ends the demo" in self.said.read_text(), within=60)

    def end(self) -> None:
        """Nothing of it outlives a test that failed."""
        for process in self.left():
            os.kill(process, signal.SIGKILL)
        self.demo.wait(10)

    def left(self) -> list[int]:
        """Whatever still runs of the demo's session, or of its containers."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                mine = entry.name.isdigit() and (
                    os.getsid(int(entry.name)) == self.demo.pid
                    or f"TMPDIR={self.folder}\0".encode() in (entry / "environ").read_bytes()
                )
            except OSError:  # gone meanwhile
                continue
            if mine:
                found.append(int(entry.name))
        return found

    def test_the_transcript_runs_against_it_and_ctrl_c_leaves_nothing(self) -> None:
        url = f"http://localhost:{self.port}"
        (line,) = re.findall(r"^ +(curl .*)$", self.said.read_text(), re.MULTILINE)
        reply = curl(*shlex.split(line)[1:])
        self.assertEqual(reply.status, 200, "the line that it prints")
        (page,) = re.findall(r"Open +(\S+)$", self.said.read_text(), re.MULTILINE)
        self.assertIn("<!doctype html>", curl(page).body.lower())

        token = follow(self, url, [], "<!doctype html>", ("/style.css", STYLE.read_text()))
        said = self.said.read_text()
        self.assertNotIn(token, said)
        self.assertNotIn("GET /style.css", said)
        (line,) = re.findall(r"^ +(\S+/sticky logs .*)$", said, re.MULTILINE)
        shown = subprocess.run(
            shlex.split(line.replace(" -f ", " ")), cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        self.assertIn("GET /style.css", shown.stdout, "the command that it prints")
        os.killpg(self.demo.pid, signal.SIGINT)  # Ctrl-C reaches all of the foreground
        self.assertEqual(self.demo.wait(60), 0, self.said.read_text())
        until("all of it is gone", lambda: not self.left())
        self.assertEqual(list(self.folder.iterdir()), [self.said])


class TokenTests(SynchronousTestCase):
    """A Server that takes a proxy token."""

    def setUp(self) -> None:
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

    def test_the_transcript(self) -> None:
        bearer = ["-H", f"Authorization: Bearer {self.proxy_token}"]
        token = follow(self, self.url, bearer, "the front page\n", ("/some/path", "some path\n"))
        self.assertNotIn(token, self.daemon.output())
        self.assertNotIn(self.proxy_token, self.daemon.output())

    def test_starting_takes_a_proxy_token_and_a_request_takes_a_session_token(self) -> None:
        self.assertEqual(curl("-X", "POST", f"{self.url}/_modal/sessions/start").status, 401)
        self.assertEqual(curl(f"{self.url}/some/path").status, 401)
        proxy_only = curl(f"{self.url}/some/path", "-H", f"Authorization: Bearer {self.proxy_token}")
        self.assertEqual(proxy_only.status, 401)

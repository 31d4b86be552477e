"""The admin API over TCP, proxy tokens and signing keys: the command against a real daemon, from its own user and from elsewhere."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import requests

import sticky
from sticky.exception import SessionEndedError
from tests.integration import preloaded
from tests.integration.daemon_case import ECHO, DaemonCase, server
from tests.integration.running_daemon import ROOT, until
from tests.integration.test_cli import DEADLINE


class NetworkCase(DaemonCase):
    def setUp(self) -> None:
        # An endpoint with port 0 would have to be found out; this one is free now, and ours in a moment.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.admin = f"http://127.0.0.1:{port}"
        self.serve(f'[daemon]\nadmin_listen = ["tcp:{port}:interface=127.0.0.1"]\n\n' + server("echo", ECHO))
        until("the admin socket is there", (self.folder / "state" / "admin.sock").exists)

    def run_(
        self, *arguments: str, status: int = 0, elsewhere: str | None = None, url: str | None = None
    ) -> tuple[str, str]:
        """What it says; as the daemon's own user, or from `elsewhere` with this admin token."""

        names = ("STICKY_STATE_DIR", "STICKY_ADMIN_URL", "STICKY_ADMIN_TOKEN", "STICKY_PROXY_TOKEN", "STICKY_URL")
        env = {name: value for name, value in os.environ.items() if name not in names}
        where = ["--url", url or self.admin] if elsewhere is not None else ["--state-dir", str(self.folder / "state")]
        if elsewhere:
            env["STICKY_ADMIN_TOKEN"] = elsewhere
        done = preloaded.run("sticky", [*arguments, *where], folder=Path("/"), environ=env, timeout=DEADLINE)
        self.assertEqual(status, done.returncode, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout, done.stderr

    def token(self, *more: str) -> str:  # type: ignore[override]
        """Of the command."""
        return self.run_("tokens", "create", "--owner", "ops", *more)[0].strip()


class UrlTests(NetworkCase):
    def test_an_admin_token_is_the_way_in_from_elsewhere(self) -> None:
        bearer = self.token("--admin")
        found = json.loads(self.run_("status", "--json", elsewhere=bearer)[0])
        self.assertEqual("echo", found["servers"][0]["name"])
        out, _ = self.run_("sessions", "start", "echo", "--json", elsewhere=bearer)
        session = json.loads(out)["session_id"]
        self.assertIn(session, self.run_("sessions", "list", elsewhere=bearer)[0])
        self.run_("sessions", "terminate", session, elsewhere=bearer)
        self.assertIn("echo is unchanged", self.run_("deploy", elsewhere=bearer)[0])
        self.assertIn("holder of wk-", self.daemon.output())
        self.assertNotIn(bearer.partition(".")[2], self.daemon.output())

    def test_who_is_not_let_in_reads_why(self) -> None:
        bearer, plain = self.token("--admin"), self.token()
        for token, text, status in (
            ("", "STICKY_ADMIN_TOKEN is not set", 2),
            (plain, "may not use the admin API", 1),
            (bearer + "x", "token is malformed, forged or no longer valid", 1),
            ("hunter2", "token is malformed, forged or no longer valid", 1),
        ):
            out, err = self.run_("status", status=status, elsewhere=token)
            self.assertEqual("", out)
            self.assertIn(text, err)
            for secret in (token, token.partition(".")[2]):
                self.assertTrue(not secret or secret not in err, err)
        self.run_("tokens", "revoke", bearer.partition(".")[0])
        self.run_("status", status=1, elsewhere=bearer)
        _, err = self.run_("doctor", status=2, elsewhere=plain)
        self.assertIn("only where the daemon runs", err)
        _, err = self.run_("deploy", "sticky.toml", status=2, elsewhere=plain)
        self.assertIn("give absolute paths", err)

    def test_nobody_there_and_somebody_else_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        _, err = self.run_("status", status=3, elsewhere="wk-a.ws-b", url=f"http://127.0.0.1:{port}")
        self.assertIn("cannot reach the daemon at http://127.0.0.1", err)
        _, err = self.run_("status", status=3, elsewhere="wk-a.ws-b", url=self.url)
        self.assertIn("is no Sticky daemon", err)
        _, err = self.run_("status", status=2, elsewhere="wk-a.ws-b", url="ftp://x/y")
        self.assertIn("--url is no URL of a daemon", err)

    def test_a_page_of_elsewhere_does_not_get_in(self) -> None:
        bearer = self.token("--admin")
        headers = {"Authorization": f"Bearer {bearer}"}
        self.assertEqual(200, requests.get(f"{self.admin}/v1/status", headers=headers, timeout=30).status_code)
        rebound = requests.get(f"{self.admin}/v1/status", headers={**headers, "Host": "evil.example"}, timeout=30)
        self.assertEqual((404, "unknown_host"), (rebound.status_code, rebound.json()["error"]))

    def test_the_sdk_from_elsewhere(self) -> None:
        bearer = self.token("--admin")
        program = (
            "import sticky\n"
            "server = sticky.Server.from_name('echo', 'echo')\n"
            "session = server.sessions.start()\n"
            "print(server.sessions.status(session.token).state, server.autoscaler.settings().max_containers)\n"
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("STICKY_")}
        env |= {"STICKY_ADMIN_URL": self.admin, "STICKY_ADMIN_TOKEN": bearer, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd="/", env=env, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(("active 8\n", ""), (done.stdout, done.stderr))


class TokenTests(NetworkCase):
    def test_a_token_that_is_made_counts_at_once_and_after_a_crash(self) -> None:
        bearer = self.token("--server", "echo")
        self.bearer = bearer
        self.assertEqual(200, self.start().status_code)
        self.daemon.kill()
        self.run_daemon()
        self.bearer = bearer
        self.assertEqual(200, self.start().status_code)
        listed, _ = self.run_("tokens", "list")
        self.assertIn(bearer.partition(".")[0], listed)
        self.assertNotIn(bearer.partition(".")[2], listed)
        self.run_("tokens", "revoke", bearer.partition(".")[0])
        self.assertEqual(401, self.start().status_code)
        self.run_("tokens", "revoke", bearer.partition(".")[0], status=4)


class KeyTests(NetworkCase):
    def session(self) -> str:
        return str(self.start().json()["token"])

    def test_a_rotation_keeps_sessions_and_a_revocation_ends_their_tokens(self) -> None:
        before = self.session()
        self.run_("keys", "rotate")
        after = self.session()
        kid = re.compile(r"\.([^.]+)$")
        self.assertNotEqual(kid.findall(before), kid.findall(after))
        self.assertEqual([200, 200], [self.get(token).status_code for token in (before, after)])
        self.assertEqual("rolled" in self.run_("deploy")[0], False, "deployments keep their names")
        self.daemon.kill()
        self.run_daemon()
        self.assertEqual([200, 200], [self.get(token).status_code for token in (before, after)])
        self.run_("keys", "rotate", "--revoke", "--yes")
        self.assertEqual([401, 401], [self.get(token).status_code for token in (before, after)])
        self.assertEqual(200, self.get(self.session()).status_code)
        found = json.loads(self.run_("keys", "list", "--json")[0])
        self.assertEqual([], found["retired"])

    def test_the_sdk_says_that_a_token_is_no_longer_good(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_STATE_DIR": str(self.folder / "state")})
        sessions = sticky.Server.from_name("echo", "echo").sessions
        token = sessions.start().token
        sessions.terminate(token)
        self.assertRaises(SessionEndedError, sessions.status, token)
        self.run_("keys", "rotate", "--revoke", "--yes")
        self.assertRaises(sticky.exception.AuthError, sessions.status, token)


class TakenTests(NetworkCase):
    def test_an_admin_port_that_is_taken_is_one_line(self) -> None:
        from tests.integration.running_daemon import Daemon

        other = Path(self.folder / "other")
        other.mkdir()
        (other / "sticky.toml").write_text((self.folder / "sticky.toml").read_text())
        daemon = Daemon(other, "--config", str(other / "sticky.toml"))
        self.addCleanup(daemon.stop)
        self.assertEqual(1, daemon.wait(60))
        (line,) = [line for line in daemon.output().splitlines() if line.startswith("sticky: ")]
        self.assertIn("cannot open the admin port tcp:", line)
        self.assertIn("daemon.admin_listen", line)

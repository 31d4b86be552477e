"""The state directory as an operator handles it: backed up and restored, moved away; and a port that somebody else holds open."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

from tests.docs.pages import load
from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import ROOT, TWISTD, Running, until

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])

#: What systemd does: the socket is descriptor 3, and the environment says for whom (sd_listen_fds(3)).
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class BackupTests(DaemonCase):
    def test_a_backup_of_a_running_daemon_brings_keys_tokens_and_endings_back(self) -> None:
        """By the very commands of docs/operating.md."""
        back_up, restore = (block.text for block in load("operating.md").blocks if "backup" in block.text)
        self.serve(server("one", COUNTER))
        ended, alive = self.token(), self.token()
        self.terminate(ended)
        self.run_commands(back_up)
        self.daemon.kill()
        self.kill_children()  # the machine is lost, and everything on it
        self.run_commands(restore)
        others = [path for path in (self.folder / "state").rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
        self.assertEqual(others, [], "nobody else may read what is secret")
        bearer = self.bearer
        self.run_daemon()
        self.assertEqual(self.bearer, bearer)
        refused = self.get(ended)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "terminated"))
        lost = self.get(alive)
        self.assertEqual((lost.status_code, lost.json()["error"]), (410, "container_lost"))
        self.assertEqual(self.get(self.token()).status_code, 200)

    def run_commands(self, text: str) -> None:
        done = subprocess.run(["sh", "-e", "-c", text], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class MovedTests(DaemonCase):
    def test_a_state_directory_that_was_moved_and_a_journal_that_was_removed_are_noticed_and_sessions_go_on(
        self,
    ) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        state, elsewhere = self.folder / "state", self.folder / "elsewhere"
        state.rename(elsewhere)
        until("starts are refused", lambda: self.start().status_code == 503)
        self.assertEqual(self.start().json()["error"], "storage_failed")
        self.assertEqual(self.get(token).status_code, 200)
        self.assertIn("was moved or replaced", self.daemon.output())
        elsewhere.rename(state)
        until("starts work again", lambda: self.start().status_code == 200)
        for name in ("journal.db", "journal.db-wal"):  # as whoever tidies up does
            (state / name).unlink()
        until("it is written anew", lambda: self.start().status_code == 200 and (state / "journal.db").exists())
        self.daemon.kill()
        self.run_daemon()
        self.assertEqual(self.get(token).status_code, 200)


class ActivatedTests(DaemonCase):
    def test_a_port_that_systemd_holds_is_taken_and_connections_wait_while_no_daemon_runs(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        self.daemon.kill()
        held = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(held.close)
        self.url = f"http://127.0.0.1:{held.getsockname()[1]}"
        waiting = socket.create_connection(held.getsockname())
        self.addCleanup(waiting.close)
        waiting.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nModal-Authorization: Bearer {token}\r\n\r\n".encode())
        arguments = ["-n", "--pidfile=", "sticky", "--config", "sticky.toml", "--state-dir", str(self.folder / "state")]
        arguments += ["--listen", f"tcp:{held.getsockname()[1]}:interface=127.0.0.1"]
        command = [sys.executable, "-c", ACTIVATE, str(held.fileno()), *TWISTD, *arguments]
        self.run_activated(command, held)
        waiting.settimeout(30)
        self.assertIn(b"200", waiting.recv(4096))
        self.assertEqual(self.get(token).status_code, 200)

    def run_activated(self, command: list[str], held: socket.socket) -> None:
        held.set_inheritable(True)
        self.daemon = Running(  # type: ignore[assignment]
            command, self.folder / "daemon.log", {"PYTHONPATH": str(ROOT)}, pass_fds=(held.fileno(),)
        )
        self.addCleanup(self.daemon.stop)

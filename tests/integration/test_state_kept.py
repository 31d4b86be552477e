"""The state directory as an operator handles it: backed up and restored, moved away; and a port that somebody else holds open."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import sys

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
        """What docs/operating.md says, command by command."""
        self.serve(server("one", COUNTER))
        state, backup = self.folder / "state", self.folder / "backup"
        ended, alive = self.token(), self.token()
        self.terminate(ended)
        backup.mkdir(mode=0o700)
        for name in os.listdir(state):
            if (state / name).is_file() and name not in ("lock", "url") and not name.startswith("journal.db"):
                shutil.copy2(state / name, backup / name)
        with sqlite3.connect(state / "journal.db") as live, sqlite3.connect(backup / "journal.db") as copy:
            live.backup(copy)
        live.close()
        copy.close()
        (backup / "journal.db").chmod(0o600)
        self.daemon.kill()
        self.kill_children()  # the machine is lost, and everything on it
        shutil.rmtree(state)
        shutil.copytree(backup, state)
        bearer = self.bearer
        self.run_daemon()
        self.assertEqual(self.bearer, bearer)
        refused = self.get(ended)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "terminated"))
        lost = self.get(alive)
        self.assertEqual((lost.status_code, lost.json()["error"]), (410, "container_lost"))
        self.assertEqual(self.get(self.token()).status_code, 200)


class MovedTests(DaemonCase):
    def test_a_state_directory_that_was_moved_is_noticed_and_sessions_go_on(self) -> None:
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

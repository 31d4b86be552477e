"""A daemon that is killed, and the next one: what a client has must be worth as much as before."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import Daemon, until

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])


class CrashTests(DaemonCase):
    def crash(self) -> None:
        """SIGKILL, and a new daemon on the same state."""
        self.daemon.kill()
        self.run_daemon()

    def ask(self, token: str) -> tuple[str, int]:
        """(container, how often it was asked)."""
        answer = self.get(token)
        self.assertEqual(answer.status_code, 200, answer.text)
        container, count = answer.text.split()
        return container, int(count)

    def test_sessions_live_on_in_the_same_container_with_all_it_remembers(self) -> None:
        self.serve(server("one", COUNTER, max_concurrency=2))
        tokens = [self.token() for _ in range(3)]
        before = [self.ask(token) for token in tokens]
        processes = self.children()
        self.crash()
        self.assertEqual(self.children(), processes)
        after = [self.ask(token) for token in tokens]
        self.assertEqual([container for container, _ in after], [container for container, _ in before])
        self.assertEqual(max(count for _, count in after), max(count for _, count in before) * 2)
        self.assertEqual(self.ask(self.token())[0], before[2][0], "the adopted container has a place left")

    def test_how_sessions_ended_is_remembered(self) -> None:
        self.serve(server("one", COUNTER))
        kept, ended = self.token(), self.token()
        self.terminate(ended)
        self.crash()
        refused = self.get(ended)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "terminated"))
        self.assertEqual(self.terminate(ended).status_code, 404)
        self.ask(kept)

    def test_a_container_that_died_meanwhile_is_known_to_be_lost(self) -> None:
        self.serve(server("one", COUNTER, max_concurrency=1))
        lost, kept = self.token(), self.token()
        container, _ = self.ask(lost)
        self.daemon.kill()
        self.kill_container(container)
        self.run_daemon()
        refused = self.get(lost)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "container_lost"))
        self.ask(kept)

    def test_an_adopted_container_that_dies_ends_its_sessions_at_once(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        container, _ = self.ask(token)
        self.crash()
        self.kill_container(container)
        until("the session is lost", lambda: self.get(token).status_code == 410)
        self.assertEqual(self.get(token).json()["error"], "container_lost")
        self.assertNotEqual(self.ask(self.token())[0], container)

    def test_an_idempotency_key_finds_its_session_again(self) -> None:
        self.serve(server("one", COUNTER))
        key = {"x-idempotency-key": "a-key-of-sixteen-or-more"}
        first = self.start(**key).json()
        self.crash()
        again = self.start(**key).json()
        self.assertEqual((again["session_id"], again["created"]), (first["session_id"], False))
        self.ask(again["token"])

    def test_idle_clocks_go_on_after_the_crash(self) -> None:
        self.serve(server("one", COUNTER, scaledown_window=2))
        token = self.token(**{"x-modal-server-session-idle-timeout": "1"})
        self.ask(token)
        self.crash()
        fields = {"Modal-Authorization": f"Bearer {token}"}
        status = f"{self.url}/_modal/sessions/status"
        until("it expires", lambda: self.http.get(status, headers=fields, timeout=5).status_code == 410)
        self.assertEqual(self.get(token).json()["error"], "idle_timeout")
        until("the adopted container goes as any other", lambda: not self.children())

    def test_a_tidy_stop_takes_containers_along_and_says_so_afterwards(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        self.daemon.stop()
        self.assertEqual(self.children(), [])
        self.run_daemon()
        refused = self.get(token)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "server_stopped"))

    def test_a_changed_program_is_a_new_deployment_and_old_sessions_keep_theirs(self) -> None:
        self.serve(server("one", COUNTER, max_concurrency=5))
        token = self.token()
        container, _ = self.ask(token)
        config = self.folder / "sticky.toml"
        config.write_text(config.read_text() + 'env = { LEVEL = "2" }\n')
        self.crash()
        self.assertEqual(self.ask(token)[0], container)
        self.assertNotEqual(self.ask(self.token())[0], container)

    def test_ten_crashes_in_a_row_lose_nothing(self) -> None:
        self.serve(server("one", COUNTER, max_concurrency=3, max_containers=4))
        tokens: list[str] = []
        for _ in range(10):
            tokens.append(self.token())
            self.crash()
        containers = {self.ask(token)[0] for token in tokens}
        self.assertEqual(len(containers), 4)
        self.assertEqual(len(self.children()), 4)


class StateDirTests(DaemonCase):
    def test_a_second_daemon_on_one_state_directory_is_refused_with_the_pid_of_the_first(self) -> None:
        self.serve(server("one", COUNTER))
        other = subprocess.run(
            [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "sticky", "--config", "sticky.toml"]
            + ["--listen", "tcp:0:interface=127.0.0.1"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(other.returncode, 1)
        self.assertIn(f"pid {self.daemon.pid}", other.stderr)
        self.assertEqual(len(other.stderr.splitlines()), 1, other.stderr)
        self.assertEqual(self.get(self.token()).status_code, 200)

    def test_a_damaged_journal_is_put_aside_and_the_daemon_says_so(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        self.daemon.kill()
        (self.folder / "state" / "journal.db").write_bytes(b"nonsense" * 1000)
        for name in ("journal.db-wal", "journal.db-shm"):
            (self.folder / "state" / name).unlink(missing_ok=True)
        self.run_daemon()
        self.assertIn("damaged", self.daemon.output())
        self.assertTrue((self.folder / "state" / "journal.db.damaged-1").exists())
        self.assertEqual(self.get(token).json()["error"], "container_lost")
        self.assertEqual(self.get(self.token()).status_code, 200)
        until("nobody's container is reaped", lambda: len(self.children()) == 1)

    def test_the_state_directory_is_the_owners_alone(self) -> None:
        self.serve(server("one", COUNTER))
        self.token()
        state = self.folder / "state"
        self.assertEqual(state.stat().st_mode & 0o077, 0)
        for name in ("signing-key", "proxy-token", "journal.db"):
            self.assertEqual((state / name).stat().st_mode & 0o177, 0, name)

    def test_no_token_is_in_the_journal(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token(**{"x-idempotency-key": "a-key-of-sixteen-or-more"})
        self.daemon.kill()
        held = b"".join(file.read_bytes() for file in (self.folder / "state").glob("journal.db*"))
        self.assertIn(b"SessionCreated", held)
        self.assertNotIn(token.split(".")[2].encode(), held)


class FullDiskTests(DaemonCase):
    def setUp(self) -> None:
        if os.geteuid() != 0:
            raise SkipTest("mounting a small file system needs root")

    def test_starts_are_refused_while_the_disk_is_full_and_sessions_go_on(self) -> None:
        self.serve(server("one", COUNTER))
        self.daemon.stop()
        state = self.folder / "state"
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", state], check=False)
        if mounted.returncode:
            raise SkipTest("this machine mounts nothing for us")
        self.addCleanup(lambda: subprocess.run(["umount", "-l", state], check=False) and None)
        self.run_daemon()
        token = self.token()
        self.assertEqual(self.get(token).status_code, 200)
        ballast = state / "ballast"
        self.fill(ballast)
        refused = until("starts are refused", lambda: self.refused_start())
        self.assertEqual(refused, (503, "storage_failed"))
        self.assertEqual(self.get(token).status_code, 200)
        self.assertIn("cannot write the journal", self.daemon.output())
        self.daemon.kill()
        (state / "url").unlink()  # as a daemon does at its start: what that leaves is taken, too
        self.fill(ballast)
        self.run_without_room()
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(until("starts are refused", lambda: self.refused_start()), (503, "storage_failed"))
        ballast.unlink()
        until("starts work again", lambda: self.start().status_code == 200)
        self.assertEqual(self.get(token).status_code, 200)
        begun = self.token()
        self.daemon.kill()
        self.run_daemon()
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(self.get(begun).status_code, 200)

    def fill(self, ballast: Path) -> None:
        try:
            with ballast.open("ab", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
        except OSError:
            pass

    def run_without_room(self) -> None:
        """The next daemon: there is no room for the file that says where it listens."""
        self.daemon = Daemon(self.folder, "--config", str(self.folder / "sticky.toml"))
        self.addCleanup(self.daemon.stop)
        self.daemon.wait_for("it listens", lambda: len(self.addresses()) == 3, within=60)
        self.assertFalse((self.folder / "state" / "url").exists())
        self.url = self.addresses()[-1]

    def addresses(self) -> list[str]:
        """Of all daemons so far."""
        return re.findall(r"listening on (http\S+)", self.daemon.output())

    def refused_start(self) -> tuple[int, str] | None:
        answer = self.start()
        return None if answer.status_code == 200 else (answer.status_code, answer.json()["error"])


class RebootTests(DaemonCase):
    def test_after_a_reboot_sessions_are_lost_once_and_later_crashes_lose_nothing(self) -> None:
        self.serve(server("one", COUNTER))
        before = self.token()
        self.daemon.kill()
        self.kill_children()
        journal = sqlite3.connect(self.folder / "state" / "journal.db")
        journal.execute("UPDATE meta SET value = 'an earlier boot' WHERE name = 'boot'")
        journal.commit()
        journal.close()
        self.run_daemon()
        refused = self.get(before)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "container_lost"))
        after = self.token()
        container = self.get(after).text.split()[0]
        for _ in range(2):
            self.daemon.kill()
            self.run_daemon()
            self.assertEqual(self.get(after).text.split()[0], container)
            self.assertEqual(self.get(before).json()["error"], "container_lost")

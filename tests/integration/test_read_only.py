"""A daemon that comes to a file system that can only be read: sessions of before go on, starts are refused, and it mends."""

from __future__ import annotations

import os
import subprocess

import requests

from tests.integration.daemon_case import ECHO, DaemonCase, server
from tests.integration.running_daemon import TWISTD, Daemon, Running, until
from tests.integration.test_workers import COUNTER, TWO

ONE = server("one", COUNTER, max_containers=2, min_containers=2, max_concurrency=10)


class ReadOnlyTests(DaemonCase):
    if os.geteuid() != 0:
        skip = "mounting takes root"

    def mount(self, *arguments: str) -> None:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            self.skipTest(f"mount: {done.stderr.strip()}")  # where not even root may

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder / "state")], capture_output=True, timeout=60, check=False)

    def only_read(self) -> None:
        """The state directory, for whoever opens a file in it from now on."""
        state = str(self.folder / "state")
        self.mount("--bind", state, state)
        self.addCleanup(self.unmount)
        self.mount("-o", "remount,bind,ro", state)

    def crash_and_come_back(self) -> None:
        """On the port of before: nothing can be written about another one."""
        self.daemon.kill()
        self.only_read()
        listen = f"tcp:{self.url.rsplit(':', 1)[1]}:interface=127.0.0.1"
        command = [*TWISTD, "-n", "--pidfile=", "sticky", "--config", "sticky.toml", "--state-dir", "state"]
        self.daemon = Running([*command, "--listen", listen], self.folder / "daemon.log")  # type: ignore[assignment]
        self.addCleanup(self.daemon.stop)
        self.daemon.wait_for("it answers", self.answers)

    def answers(self) -> bool:
        try:
            return self.get(None).status_code == 401
        except requests.ConnectionError:
            return False

    def test_sessions_of_before_are_served_and_starts_are_refused_until_it_can_be_written(self) -> None:
        for config in (ONE, TWO + ONE):
            self.serve(config)
            kept, ended = self.token(), self.token()
            container, count = self.get(kept).text.split()
            self.assertEqual(self.terminate(ended).status_code, 200)
            self.crash_and_come_back()
            self.assertEqual(self.get(kept).text.split(), [container, str(int(count) + 1)])
            self.assertEqual(self.get(ended).json()["error"], "terminated")
            for refused in (self.start(), self.terminate(kept)):
                self.assertEqual((refused.status_code, refused.json()["error"]), (503, "storage_failed"))
            for said in (
                "its file system can only be read; starts are refused until it works again, sessions go on",
                "there is no admin socket as long as",
                "cannot write",
            ):
                self.assertIn(said, self.daemon.output())
            self.assertNotIn("Traceback", self.daemon.output())
            self.unmount()
            until("starts are answered again", lambda: self.start().status_code == 200)
            until("the admin socket is there", lambda: (self.folder / "state" / "admin.sock").is_socket())
            self.assertIn("ready", self.sticky("status"))
            self.daemon.kill()
            self.run_daemon()
            self.assertEqual(self.get(kept).text.split(), [container, str(int(count) + 2)])
            self.assertEqual(self.terminate(kept).status_code, 200)
            self.daemon.stop()

    def test_one_that_finds_nothing_there_says_on_one_line_that_it_cannot_start(self) -> None:
        for missing, status in (("lock", 1), ("journal.db", 1), ("signing-key", 2)):
            self.serve(server("one", ECHO))
            self.daemon.stop()
            (self.folder / "state" / missing).unlink()
            self.only_read()
            before = self.daemon.output()
            daemon = Daemon(self.folder, "--config", "sticky.toml")
            self.addCleanup(daemon.stop)
            self.assertEqual(daemon.wait(60), status)
            said = daemon.output().removeprefix(before)
            (line,) = [line for line in said.splitlines() if line.startswith("sticky: ")]
            self.assertIn(missing, line)
            self.assertIn("Read-only file system", line)
            self.assertNotIn("Traceback", said)

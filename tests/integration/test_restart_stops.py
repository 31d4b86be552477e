"""`sticky restart` and, in the middle of it, a signal to end, another restart, or a change: one daemon is in charge at each moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from websockets.exceptions import ConnectionClosed

from sticky.cli.advice import advice_for
from sticky.cli.client import Admin
from tests.integration.daemon_case import APPS, ECHO, server
from tests.integration.running_daemon import ROOT, until
from tests.integration.test_restart import RestartCase

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])

#: Found by Python at its start. A daemon that is to take over waits while a file is there, and leaves another one where it does.
HOLDS = """
import os, pathlib, sys, time

here = pathlib.Path(os.environ["HOLD_IN"])


def hold(where):
    (here / f"reached-{where}").touch()
    while (here / f"hold-{where}").exists():
        time.sleep(0.02)


if "STICKY_HANDOVER" in os.environ and "sticky" in sys.orig_argv:
    hold("start")
    import sticky.journal.service as journal

    opened = journal.JournalService.open

    def held(self):
        hold("take-over")
        return opened(self)

    journal.JournalService.open = held
"""


class StopCase(RestartCase):
    def begin(self, config: str, hold: str) -> None:
        """A daemon whose restart is held up there, and a restart that is."""
        self.hooks = Path(self.mktemp()).resolve()
        self.hooks.mkdir()
        (self.hooks / "sitecustomize.py").write_text(HOLDS)
        self.env = {"PYTHONPATH": f"{self.hooks}{os.pathsep}{ROOT}", "HOLD_IN": str(self.hooks)}
        self.serve(config, self.env)
        self.hold = hold
        (self.hooks / f"hold-{hold}").touch()
        self.addCleanup(self.let_go)

    def restarting(self) -> subprocess.Popen[str]:
        doing = self.command("restart")
        until(f"the new daemon is at {self.hold}", lambda: (self.hooks / f"reached-{self.hold}").exists(), within=60)
        return doing

    def command(self, *words: str) -> subprocess.Popen[str]:
        doing = subprocess.Popen(
            [sys.executable, "-m", "sticky.cli", *words, "--state-dir", str(self.folder / "state")],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(doing.communicate)
        self.addCleanup(doing.kill)
        return doing

    def let_go(self) -> None:
        (self.hooks / f"hold-{self.hold}").unlink(missing_ok=True)

    def refused(self, doing: subprocess.Popen[str]) -> str:
        said = doing.communicate(timeout=90)
        self.assertEqual(doing.returncode, 1, said)
        return said[1]


class StartingTests(StopCase):
    def test_ctrl_c_ends_the_command_and_the_restart_goes_on_without_it(self) -> None:
        self.begin(server("one", ECHO), "start")
        token, before = self.token(), self.lock_pid()
        doing = self.restarting()
        doing.send_signal(signal.SIGINT)
        said = doing.communicate(timeout=60)
        self.assertEqual(doing.returncode, 130, said)
        self.assertNotIn("Traceback", said[1])
        self.let_go()
        until("the new one is in charge", lambda: self.lock_pid() != before)
        until("the old one has ended", lambda: len(self.daemons()) == 1)
        self.assertEqual(self.get(token).status_code, 200)
        self.stop(self.lock_pid())

    def test_a_signal_ends_the_new_one_and_then_this_one_in_order(self) -> None:
        self.begin(server("one", ECHO), "start")
        token = self.token()
        opened = self.websocket(token)
        doing = self.restarting()
        self.assertEqual(len(self.daemons()), 2)
        self.assertIn(self.daemon.stop(), (0, -signal.SIGTERM))
        self.assertNotEqual(doing.wait(90), 0)
        self.assertEqual((self.daemons(), self.children()), ([], []))
        with self.assertRaises(ConnectionClosed) as closed:
            while True:
                opened.recv(timeout=60)
        assert closed.exception.rcvd is not None
        self.assertEqual((closed.exception.rcvd.code, closed.exception.rcvd.reason), (1001, "server_stopped"))
        self.let_go()
        self.run_daemon(self.env)  # nobody holds the state directory
        refused = self.get(token)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "server_stopped"))

    def test_a_second_restart_and_changes_are_refused_and_nothing_is_lost(self) -> None:
        self.begin(server("one", COUNTER), "start")
        before = self.token()
        doing = self.restarting()
        for words in (("restart",), ("keys", "rotate"), ("deploy",), ("tokens", "create", "--owner", "alice")):
            said = self.refused(self.command(*words))
            self.assertIn("A new daemon is about to take over", said)
            self.assertIn(advice_for("restart_under_way").rstrip("."), said)
        after = self.token()
        self.let_go()
        done = doing.communicate(timeout=120)
        self.assertEqual(doing.returncode, 0, done)
        self.http.close()
        for token in (before, after):
            self.assertEqual(self.get(token).status_code, 200)
        rotate = self.command("keys", "rotate")
        self.assertEqual(rotate.wait(60), 0)
        self.assertEqual(self.get(self.token()).status_code, 200)


class TakingOverTests(StopCase):
    def test_a_signal_leaves_this_one_in_charge_and_then_ends_it_in_order(self) -> None:
        self.begin(server("one", COUNTER), "take-over")
        token, old = self.token(), self.lock_pid()
        doing = self.restarting()
        self.assertEqual(len(self.daemons()), 2)
        self.assertIn(self.daemon.stop(), (0, -signal.SIGTERM))
        self.assertNotEqual(doing.wait(90), 0)
        self.assertEqual((self.daemons(), self.children(), self.lock_pid()), ([], [], old))
        self.let_go()
        self.run_daemon(self.env)
        refused = self.get(token)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "server_stopped"))
        self.assertEqual(self.get(self.token()).status_code, 200)

    def test_a_second_restart_waits_for_the_new_one_and_replaces_that(self) -> None:
        self.begin(server("one", COUNTER), "take-over")
        token = self.token()
        container, count = self.get(token).text.split()
        first = self.restarting()
        second = self.command("restart")
        self.let_go()
        for doing in (first, second):
            said = doing.communicate(timeout=150)
            self.assertEqual(doing.returncode, 0, said)
        self.http.close()
        self.assertEqual(self.get(token).text.split(), [container, str(int(count) + 1)])
        third = self.lock_pid()
        until("only the third one is left", lambda: self.daemons() == [third], within=60)
        self.stop(third)

    def test_requests_and_starts_of_that_moment_are_answered_by_whoever_stays_in_charge(self) -> None:
        self.begin(server("one", COUNTER), "take-over")
        token = self.token()
        self.get(token)
        doing = self.restarting()
        (pid,) = set(self.daemons()) - {self.lock_pid(), self.daemon.pid}
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(self.start().status_code, 200)
        self.assertNotEqual(doing.wait(90), 0)
        self.assertEqual(self.lock_pid(), self.daemon.pid)

    def test_what_ends_in_that_moment_has_ended_and_nothing_else_has_for_whoever_comes_after(self) -> None:
        """The one that goes on has decided what it could not write: that is not to be damage to the next one's journal."""
        self.begin(server("one", COUNTER, max_concurrency=1, target_concurrency=1, max_containers=2), "take-over")
        kept, lost = self.token(), self.token()
        container, count = self.get(kept).text.split()
        gone = self.get(lost).text.split()[0]
        found = {box["id"]: box["pid"] for box in Admin(self.folder / "state").status()["servers"][0]["containers"]}
        doing = self.restarting()
        os.kill(found[gone], signal.SIGKILL)
        until("it has been seen to end", lambda: not Path(f"/proc/{found[gone]}").exists())
        (pid,) = set(self.daemons()) - {self.lock_pid(), self.daemon.pid}
        os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(doing.wait(90), 0)
        self.assertEqual(self.start().status_code, 200)
        self.daemon.kill()
        self.assertNotIn("Traceback", self.daemon.output())
        self.let_go()
        self.run_daemon(self.env)
        self.assertEqual(self.get(kept).text.split(), [container, str(int(count) + 1)])
        self.assertEqual(self.get(lost).json()["error"], "container_lost")


class LeftTests(StopCase):
    def test_a_signal_to_the_old_one_ends_the_connections_that_it_serves_and_nothing_else(self) -> None:
        self.begin(server("one", ECHO), "nowhere")
        token = self.token()
        opened = self.websocket(token)
        new = self.restarted()
        os.kill(self.daemon.pid, signal.SIGTERM)
        self.assertIn(self.daemon.wait(60), (0, -signal.SIGTERM))
        with self.assertRaises(ConnectionClosed) as closed:
            while True:
                opened.recv(timeout=60)
        if self.workers == 1:
            assert closed.exception.rcvd is not None
            self.assertEqual(closed.exception.rcvd.code, 1012)
        self.assertEqual(self.lock_pid(), new)
        self.http.close()
        self.assertEqual(self.get(token).status_code, 200)
        self.websocket(token).send("there?")
        self.stop(new)
        self.assertEqual(self.children(), [])

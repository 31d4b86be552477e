"""Sandboxes from a snapshot: forked, isolated from each other, adopted, and the way back when a fork server dies."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import sticky
from sticky import exception
from tests.integration.calls_case import CallsCase
from tests.integration.running_daemon import until


@sticky.remote
def facts() -> tuple[int, int, str, bool]:
    return os.getpid(), os.getppid(), os.environ["STICKY_CONTAINER_ID"], "decimal" in sys.modules


@sticky.remote(disable_optimized_execution=True)
def cold() -> int:
    return os.getpid()


@sticky.remote
def chance() -> float:
    import random

    return random.random()


@sticky.remote
def die() -> None:
    os._exit(3)


def forks(pid: int) -> bool:
    """Whether this process is a fork server."""
    try:
        return b"sticky.sandbox.forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class SnapshotTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve_calls('preimport = ["decimal"]', max_containers=8, scaledown_window=2)

    def forked(self) -> sticky.Session:
        """A session whose sandbox was forked: the first ones may come while the fork server still imports."""
        found: list[sticky.Session] = []

        def look() -> bool:
            session = sticky.Session()
            if forks(facts.bind(session)()[1]) or forks(facts.bind(session)()[0]):
                found.append(session)
                return True
            session.release()
            return False

        until("a sandbox is forked", look)
        return found[0]

    def test_a_forked_sandbox_has_its_imports_and_its_own_environment(self) -> None:
        pid, parent, container, imported = facts.bind(self.forked())()
        self.assertTrue(forks(parent) and imported)
        self.assertIn(
            f"STICKY_CONTAINER_ID={container}".encode(), Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        )

    def test_two_of_them_do_not_have_the_same_chance(self) -> None:
        one, other = self.forked(), self.forked()
        self.assertNotEqual(chance.bind(one)(), chance.bind(other)())

    def test_rule_21_a_call_that_must_not_run_in_one_is_refused(self) -> None:
        session = self.forked()
        error = self.assertRaises(exception.InvalidRequestError, cold.bind(session))
        self.assertIn("snapshot", str(error))
        facts.bind(session)()

    def test_a_death_is_seen_and_retires_the_session(self) -> None:
        session = self.forked()
        self.assertRaises(exception.SessionExpiredError, die.bind(session))

    def test_a_fork_server_that_is_killed_is_rebuilt_and_its_sandboxes_go_on(self) -> None:
        session = self.forked()
        pid, parent, _, _ = facts.bind(session)()
        os.kill(parent, signal.SIGKILL)
        until("it is gone", lambda: not forks(parent))
        self.assertEqual(facts.bind(session)()[0], pid)
        again = facts.bind(self.forked())()[1]
        self.assertNotEqual(again, parent)
        os.kill(pid, signal.SIGKILL)
        until("its end is heard all the same", lambda: self._expired(session))

    def _expired(self, session: sticky.Session) -> bool:
        try:
            facts.bind(session)()
        except exception.SessionExpiredError:
            return True
        except exception.Error:
            return False
        return False

    def test_a_crash_of_the_daemon_keeps_a_forked_sandbox(self) -> None:
        session = self.forked()
        before = facts.bind(session)()
        self.daemon.kill()
        until("the fork server ends with its daemon", lambda: not forks(before[1]))
        self.run_daemon()
        self.point()
        session._idle.clear()
        self.assertEqual(facts.bind(session)()[0], before[0])
        session.release()
        until("it ends with its session", lambda: not os.path.exists(f"/proc/{before[0]}"))


class UnfitTests(CallsCase):
    def test_what_cannot_be_forked_says_why_and_calls_run_all_the_same(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        module = folder / "busy_module.py"
        module.write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        )
        self.serve_calls('preimport = ["busy_module"]', env=f'{{ PYTHONPATH = "{folder}" }}')
        with sticky.Session() as session:
            self.assertFalse(forks(facts.bind(session)()[1]))
        until("the log says why", lambda: "has started threads" in self.daemon.output())

"""Sandboxes from a snapshot: forked, isolated from each other, adopted, and the way back when a fork server dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import sticky
from sticky import exception
from tests.forking.forking_case import ForkingCase
from tests.integration.calls_case import CallsCase
from tests.integration.children import alive
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


@sticky.remote
def open_files() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the listing's own
    return found


def parent(pid: int) -> int:
    """The process that started this one; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def open_files_of(pid: int) -> list[str]:
    """What its descriptors lead to."""
    folder = Path(f"/proc/{pid}/fd")
    return [os.readlink(folder / name) for name in os.listdir(folder)]


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
        door = self.folder / "state" / "run" / container / "http.sock"
        self.assertEqual(door.stat().st_mode & 0o777, 0o600)
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

    def test_it_is_there_before_the_first_call_and_again_when_it_died_without_one(self) -> None:
        first = self.some_fork_server()
        os.kill(first, signal.SIGKILL)
        until("there is another one", lambda: self.fork_server() not in (None, first))

    def some_fork_server(self) -> int:
        """Once there is one."""
        found = until("there is one", self.fork_server)
        assert found is not None
        return found

    def fork_server(self) -> int | None:
        """The daemon's, none of its children."""
        found = [pid for pid in self.children() if forks(pid) and parent(pid) == self.daemon.pid]
        return found[0] if found else None

    def test_a_deployment_with_other_imports_has_another_one_and_a_removed_server_none(self) -> None:
        first = self.some_fork_server()
        config = self.folder / "sticky.toml"
        config.write_text(config.read_text().replace('"decimal"', '"fractions"'))
        os.kill(self.daemon.pid, signal.SIGHUP)
        second = until("there is another one", lambda: self.fork_server() not in (None, first))
        self.assertTrue(second)
        until("the first has ended", lambda: not os.path.exists(f"/proc/{first}"))
        config.write_text('[servers.other]\ncommand = ["sleep", "1000"]\n')
        os.kill(self.daemon.pid, signal.SIGHUP)
        until("there is none", lambda: self.fork_server() is None)

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


class PreimportTests(CallsCase):
    """What modules that are imported before a fork may leave behind."""

    def serve_with(self, name: str, source: str) -> None:
        """Sandboxes from a snapshot that has imported this."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / f"{name}.py").write_text(source)
        self.serve_calls(f'preimport = ["{name}"]', env=f'{{ PYTHONPATH = "{folder}" }}')

    def test_what_cannot_be_forked_says_why_and_calls_run_all_the_same(self) -> None:
        busy = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        self.serve_with("busy_module", busy)
        until("the log says why", lambda: "has started threads" in self.daemon.output())
        with sticky.Session() as session:
            self.assertFalse(forks(facts.bind(session)()[1]))

    def test_a_file_that_is_open_is_closed_in_sandboxes_whatever_its_number(self) -> None:
        left = "import os\nleft = open(__file__)\nfor number in (100, 300, 900):\n    os.dup2(left.fileno(), number)\n"
        self.serve_with("leaving_module", left)
        until("a sandbox is forked", lambda: forks(facts()[1]))
        self.assertEqual([name for name in open_files().values() if name.endswith("leaving_module.py")], [])


class ForkServerTests(ForkingCase):
    """A fork server by itself, asked as the daemon asks."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        with open(self.folder / "log", "wb") as self.log:
            self.begin(sys.executable, "-m", "sticky.sandbox.forkserver", log=self.log)

    def fork(self, name: str) -> int:
        """A sandbox whose door is the socket of this name."""
        asked: dict[str, object] = {
            "env": {**os.environ, "STICKY_CONTAINER_ID": "ct-1111"},
            "directory": str(self.folder),
        }
        pid, waiting = self.forked()
        with waiting, open(self.folder / "log", "ab") as log, socket.socket(socket.AF_UNIX) as door:
            door.bind(str(self.folder / name))
            door.listen()
            asked |= {"descriptors": ["log", "door"], "cgroups": [], "rlimits": {}}
            socket.send_fds(waiting, [json.dumps(asked).encode()], [log.fileno(), door.fileno()])
        return pid

    def test_who_is_forked_and_not_wanted_any_more_ends_before_it_is_a_sandbox(self) -> None:
        pid, waiting = self.forked()
        waiting.close()
        self.assertEqual(self.said(), {"exited": pid, "status": 0, "signal": None})

    def test_who_waits_ends_with_the_daemon_though_the_fork_server_may_be_dead_before(self) -> None:
        pid, waiting = self.forked()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self.assertTrue(alive(pid))
        waiting.close()
        until("it has ended", lambda: not alive(pid))

    def test_a_fork_has_no_way_to_whom_other_forks_are_told_by(self) -> None:
        _, first = self.forked()
        pid, second = self.forked()
        with first, second:
            until(
                "it has its own one only", lambda: sum(name.startswith("socket:") for name in open_files_of(pid)) == 1
            )

    def test_nobody_else_gets_to_the_door_of_the_fork_that_is_tried(self) -> None:
        """What comes to a door is run, as whoever runs the daemon."""
        program = (
            "import os, sys, time\n"
            "from sticky.forking.serving import Control\n"
            "def visit(connection):\n"
            "    door = connection.getpeername()\n"
            "    print(door, oct(os.stat(os.path.dirname(door)).st_mode & 0o777), file=sys.stderr, flush=True)\n"
            "Control().serve(lambda: None, lambda given: time.sleep(600), visit)\n"
        )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            env = {**os.environ, "STICKY_CONTAINER_ID": "ct-0000"}
            command = [sys.executable, "-c", program]
            trying = subprocess.Popen(command, stdin=theirs.fileno(), stderr=subprocess.PIPE, env=env, text=True)
            self.addCleanup(trying.communicate)
            self.addCleanup(trying.kill)
            theirs.close()
            ours.settimeout(60)
            self.assertEqual(json.loads(ours.recv(1 << 17)), {"warm": True})
            assert trying.stderr is not None
            door, mode = trying.stderr.readline().split()
        self.assertEqual((os.path.isabs(door), mode), (True, "0o700"))
        self.assertFalse(os.path.exists(os.path.dirname(door)), "left behind")

    def test_who_is_waited_for_takes_what_has_come_to_its_door_before_it_was_there(self) -> None:
        pid = self.fork("wanted")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(self.folder / "wanted"))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 404 "))
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(self.said(), {"exited": pid, "status": None, "signal": int(signal.SIGTERM)})

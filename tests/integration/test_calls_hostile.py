"""Functions that attack what carries their calls: they get an error at most, and everybody else's calls go on."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sticky
from sticky import exception
from tests.integration.calls_case import CallsCase
from tests.integration.isolation_case import possible
from tests.integration.running_daemon import until

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.sticky.call\r\n"
FRAMES = ANSWER + b"transfer-encoding: chunked\r\n\r\n"


@sticky.remote
def pid() -> int:
    return os.getpid()


@sticky.remote
def answer_with(data: bytes, text: str = "") -> None:
    """Past the interpreter, into the connection that this call came by."""
    if text:
        print(text, flush=True)
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    copy.sendall(data)
        except OSError:
            continue


@sticky.remote
def leave_a_child_with_the_connection(seconds: float) -> None:
    if not os.fork():
        os.setsid()
        time.sleep(seconds)
    os._exit(3)


@sticky.remote
def stop_who_forks() -> int:
    if "forkserver" in Path(f"/proc/{os.getppid()}/cmdline").read_text():  # not the daemon, while that has none yet
        os.kill(os.getppid(), signal.SIGSTOP)
        return os.getppid()
    return 0


@sticky.remote
def look_around(port: int, state: str, neighbour: int) -> dict[str, object]:
    """What of the daemon, of the machine and of the neighbour is reached from here."""

    def possible(work: Callable[[], object]) -> bool:
        try:
            work()
        except OSError:
            return False
        return True

    def listed(folder: Path) -> list[str]:
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    machines, own = (possible(Path(folder, "sticky-was-here").touch) for folder in ("/etc", "/tmp"))
    return {
        "the daemon's port": possible(lambda: socket.create_connection(("127.0.0.1", port), 5).close()),
        "the daemon's files": listed(Path(state)),
        "scratch folders": len(listed(Path(state, "run"))),
        "the neighbour": possible(lambda: os.kill(neighbour, 0)),
        "processes": sum(name.isdigit() for name in os.listdir("/proc")) < 10,
        "/etc": machines,
        "/tmp": own,
    }


class WireTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve_calls("preimport = []", max_containers=20, scaledown_window=2)

    def test_what_a_function_writes_to_its_own_connection_is_an_error_and_reaches_nobody_else(self) -> None:
        other = sticky.Session()
        home = pid.bind(other)()
        frame = b"V\xff\xff\xff\xff"
        begun = "the answer has begun"
        cases = [
            (b"\0garbage\r\n\r\n", ""),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", ""),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", ""),
            (ANSWER + b"content-length: 0\r\n\r\n", ""),
            (ANSWER + b"content-length: 0\r\n\r\n" + ANSWER + b"content-length: 0\r\n\r\n", ""),
            (ANSWER + b"x: y\r\n" * 100_000, ""),
            (FRAMES + b"5\r\n" + frame + b"\r\n0\r\n\r\n", ""),
            (FRAMES + b"0\r\n\r\n", ""),
            (b"zz\r\n", begun),
            (b"5\r\n" + frame + b"\r\n0\r\n\r\n", begun),
            (b"0\r\n\r\n", begun),
        ]

        def attack(case: tuple[bytes, str]) -> BaseException | None:
            try:
                answer_with.bind(sticky.Session())(*case)
            except exception.Error as error:
                return error
            return None

        with ThreadPoolExecutor(len(cases)) as pool:  # whether a sandbox has died is waited for a while
            attacks = pool.map(attack, cases)
            for _ in range(20):
                self.assertEqual(pid.bind(other)(), home)
            for case, error in zip(cases, attacks, strict=True):
                self.assertIsNotNone(error, case[0][:80])
        self.assertEqual(pid.bind(other)(), home)

    def test_a_child_that_keeps_the_connection_does_not_keep_the_caller(self) -> None:
        error = self.assertRaises(
            exception.SessionExpiredError, leave_a_child_with_the_connection.bind(sticky.Session()), 600
        )
        self.assertEqual(error.detail, "exited")


class ForkServerTests(CallsCase):
    def test_who_stops_the_process_that_forks_holds_nobody_up(self) -> None:
        self.serve_calls("preimport = []", max_containers=8, scaledown_window=2, min_containers=0)
        until("one is forked, and has stopped it", stop_who_forks)
        found = [pid.bind(sticky.Session())() for _ in range(3)]
        self.assertEqual(len(set(found)), 3)


class IsolatedTests(CallsCase):
    def test_sandboxes_are_kept_from_the_daemon_and_from_each_other(self) -> None:
        possible(network=True, read_only=True, descendants="pid_namespace")
        self.serve_calls(isolation='{ network = true, read_only = true, descendants = "pid_namespace" }')
        port, state = int(self.url.rpartition(":")[2]), str(self.folder / "state")
        one, other = sticky.Session(), sticky.Session()
        pid.bind(other)()
        neighbour = max(self.children())
        self.assertEqual(
            look_around.bind(one)(port, state, neighbour),
            {
                "the daemon's port": False,
                "the daemon's files": ["run"],
                "scratch folders": 1,
                "the neighbour": False,
                "processes": True,
                "/etc": False,
                "/tmp": True,
            },
        )
        self.assertIsInstance(pid.bind(other)(), int)

"""Sandboxes that die: the session's end says why, in the middle of a call and between two, to whoever asks next and by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import sticky
from sticky import exception
from tests.integration.calls_case import CallsCase
from tests.integration.isolation_case import possible
from tests.integration.running_daemon import until


@sticky.remote
def pid() -> int:
    return os.getpid()


@sticky.remote
def leave(status: int) -> None:
    os._exit(status)


@sticky.remote
def say_and_leave(text: str) -> None:
    print(text)
    os._exit(3)


@sticky.remote
def leave_later() -> None:
    threading.Timer(0.2, os._exit, (3,)).start()


@sticky.remote
def kill_myself(number: int) -> None:
    os.kill(os.getpid(), number)


@sticky.remote
def wait_and_leave(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)
    os._exit(3)


@sticky.remote
def allocate(size: int) -> int:
    return len(b"x" * size)


@sticky.remote
def allocate_later(size: int) -> None:
    threading.Timer(0.2, bytes.__mul__, (b"x", size)).start()


@sticky.remote(timeout=0.3)
def sleep_too_long() -> None:
    time.sleep(60)


@sticky.remote(timeout=0.3)
def swallow_interrupts() -> None:
    while True:
        try:
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            pass


@sticky.remote(timeout=0.3)
def never_give_the_lock_back(text: str = "") -> None:
    if text:
        print(text, flush=True)
    sum(range(10**18))  # one call into C


class DeathCase(CallsCase):
    def assertOver(self, session: sticky.Session, detail: str | None, reason: str = "container_lost") -> None:
        """It is over for that, and says so again and again, to others by its name too."""
        other = sticky.Session(session.name) if session.name is not None else session
        for one in (session, session, other):
            error = self.assertRaises(exception.SessionExpiredError, pid.bind(one))
            self.assertEqual((error.reason, error.detail), (reason, detail))

    def assertComesToBeOver(self, session: sticky.Session, detail: str) -> None:
        def over() -> bool:
            try:
                pid.bind(session)()
            except exception.SessionExpiredError:
                return True
            except exception.Error:
                return False
            return False

        until("it is over", over)
        self.assertOver(session, detail)


class DeathTests(DeathCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve_calls(max_containers=6, scaledown_window=2)

    def test_an_exit_in_the_middle_of_a_call(self) -> None:
        session = sticky.Session("notebook")
        error = self.assertRaises(exception.SessionExpiredError, leave.bind(session), 3)
        self.assertEqual((error.reason, error.detail), ("container_lost", "exited"))
        self.assertIn("exited", str(error))
        self.assertOver(session, "exited")
        # A start is answered when it would survive a crash, and so does then whatever came before it: the journal is one log.
        pid.bind(sticky.Session())()
        self.daemon.kill()
        self.run_daemon()
        self.point()
        self.assertOver(sticky.Session("notebook"), "exited")

    def test_an_exit_between_two_calls(self) -> None:
        session = sticky.Session("notebook")
        leave_later.bind(session)()
        self.assertComesToBeOver(session, "exited")

    def test_a_signal_in_the_middle_of_a_call(self) -> None:
        for number in (signal.SIGSEGV, signal.SIGKILL):
            session = sticky.Session()
            error = self.assertRaises(exception.SessionExpiredError, kill_myself.bind(session), int(number))
            self.assertEqual(error.detail, "killed")
            self.assertOver(session, "killed")

    def test_a_signal_between_two_calls(self) -> None:
        session = sticky.Session("notebook")
        os.kill(pid.bind(session)(), signal.SIGKILL)
        self.assertComesToBeOver(session, "killed")

    def test_a_function_that_gives_in_to_its_time_limit(self) -> None:
        session = sticky.Session("notebook")
        self.assertRaises(exception.FunctionTimeoutError, sleep_too_long.bind(session))
        self.assertComesToBeOver(sticky.Session("notebook"), "call_timeout")
        self.assertOver(session, "call_timeout")

    def test_one_that_does_not_give_in(self) -> None:
        session = sticky.Session("notebook")
        self.assertRaises(exception.FunctionTimeoutError, swallow_interrupts.bind(session))
        self.assertComesToBeOver(sticky.Session("notebook"), "call_timeout")

    def test_one_that_never_gives_the_interpreters_lock_back(self) -> None:
        session, printed = sticky.Session("notebook"), sticky.Session()
        with ThreadPoolExecutor(3) as pool:
            calls = [
                pool.submit(never_give_the_lock_back.bind(session)),
                pool.submit(never_give_the_lock_back.bind(printed), "the answer has begun"),
                pool.submit(never_give_the_lock_back, "and so it has without a session"),
            ]
            for call in calls:
                self.assertIsInstance(call.exception(), exception.FunctionTimeoutError)
        for one in (session, printed):
            self.assertOver(one, "call_timeout")

    def test_a_call_that_waited_behind_it_is_told_that_its_session_is_over(self) -> None:
        session, gate = sticky.Session(), str(self.folder / "gate")
        pid.bind(session)()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(wait_and_leave.bind(session), gate)
            until("it runs", lambda: self._in_flight() == 1)
            second = pool.submit(sleep_too_long.bind(session))
            until("the second one waits", lambda: self._in_flight() == 2)
            open(gate, "w").close()
            for call in (first, second):
                error = call.exception()
                assert isinstance(error, exception.SessionExpiredError), error
                self.assertEqual(error.detail, "exited")

    def _in_flight(self) -> int:
        fields = {"Authorization": f"Bearer {self.bearer}"}
        listed = self.http.get(f"{self.url}/_modal/sessions", headers=fields, timeout=30).json()["sessions"]
        return sum(session["in_flight"] for session in listed)

    def test_a_call_without_a_session_says_it_too(self) -> None:
        error = self.assertRaises(exception.ExecutionError, leave, 3)
        self.assertIn("exited", str(error))
        error = self.assertRaises(exception.ExecutionError, say_and_leave, "the answer has begun")
        self.assertIn("exited", str(error))
        self.assertRaises(exception.FunctionTimeoutError, sleep_too_long)

    def test_functions_that_end_their_sandboxes_do_not_count_as_sandboxes_that_cannot_start(self) -> None:
        for number in range(5):
            session = sticky.Session(f"notebook {number}")
            self.assertRaises(exception.SessionExpiredError, leave.bind(session), 3)
        self.assertIsInstance(pid(), int)

    def test_a_status_of_a_functions_own_is_no_reason_but_its_own(self) -> None:
        session = sticky.Session()
        self.assertRaises(exception.SessionExpiredError, leave.bind(session), 0)
        self.assertOver(session, "exited")

    def test_an_end_that_is_no_death_has_no_detail(self) -> None:
        session = sticky.Session("notebook")
        pid.bind(session)()
        token = session.credential()
        self.assertEqual(self.terminate(token).status_code, 200)
        self.assertOver(session, None, "terminated")


class MemoryTests(DeathCase):
    def setUp(self) -> None:
        possible(memory=200 << 20)
        super().setUp()

    def die_of_it(self) -> None:
        session = sticky.Session("greedy")
        error = self.assertRaises(exception.SessionExpiredError, allocate.bind(session), 10 << 30)
        self.assertEqual((error.reason, error.detail), ("container_lost", "out_of_memory"))
        self.assertOver(session, "out_of_memory")
        later = sticky.Session("greedy later")
        allocate_later.bind(later)(10 << 30)
        self.assertComesToBeOver(later, "out_of_memory")

    def test_the_memory_limit_in_the_middle_of_a_call_and_between_two(self) -> None:
        self.serve_calls(memory='"200Mi"', max_containers=3, scaledown_window=2)
        self.die_of_it()

    def test_of_a_sandbox_from_a_snapshot(self) -> None:
        self.serve_calls("preimport = []", memory='"200Mi"', max_containers=3, scaledown_window=2)
        self.die_of_it()

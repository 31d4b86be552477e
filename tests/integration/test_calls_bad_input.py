"""Functions that misbehave, and clients that do: clear errors, and nothing of anybody else is lost."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

import sticky
from sticky import exception
from sticky.sandbox.frames import CONTENT_TYPE, Kind, document, frame
from tests.integration.calls_case import CallsCase
from tests.integration.isolation_case import possible
from tests.integration.running_daemon import until


@sticky.remote
def ok() -> str:
    return "ok"


@sticky.remote
def recurse(depth: int = 0) -> int:
    return recurse.local(depth + 1)


@sticky.remote
def not_at_home() -> Any:
    class Trap:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    return Trap()


@sticky.remote
def unpicklable() -> Any:
    return threading.Lock()


@sticky.remote
def allocate(size: int) -> int:
    return len(b"x" * size)


@sticky.remote(memory="300Mi")
def allocate_within_a_budget(size: int) -> int:
    return len(b"x" * size)


@sticky.remote
def fork_bomb() -> int:
    children = 0
    try:
        while children < 10_000:
            if not os.fork():
                signal.pause()
            children += 1
    except OSError:
        return children
    return -1


@sticky.remote
def babble() -> None:
    while True:
        print("x" * 1000)


@sticky.remote
def ignore_interrupts() -> str:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return "ignored"


@sticky.remote
def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@sticky.remote
def close_every_socket() -> None:
    for found in gc.get_objects():
        if isinstance(found, socket.socket):
            found.close()
    for number in range(3, 256):
        try:
            os.close(number)
        except OSError:
            pass


@sticky.remote
def leave() -> None:
    sys.exit(3)


@sticky.remote
def close_stdout() -> None:
    sys.stdout.close()


@sticky.remote(packages=["no-such-package-anywhere"])
def needs_a_package() -> None:
    pass


@sticky.remote(memory="64Gi")
def needs_memory() -> None:
    pass


class FunctionTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve_calls(max_containers=6, scaledown_window=2)
        self.session = sticky.Session()

    def run_ok(self) -> None:
        self.assertEqual(ok.bind(self.session)(), "ok")

    def test_a_recursion_without_end_is_an_exception(self) -> None:
        error = self.assertRaises(exception.RemoteExecutionError, recurse.bind(self.session))
        self.assertEqual(error.type, "RecursionError")
        self.run_ok()

    def test_what_cannot_be_pickled_back_or_unpickled_at_home_says_so(self) -> None:
        self.assertIn(
            "cannot be pickled", str(self.assertRaises(exception.ExecutionError, unpicklable.bind(self.session)))
        )
        self.assertIn(
            "unpickled here", str(self.assertRaises(exception.ExecutionError, not_at_home.bind(self.session)))
        )
        self.run_ok()

    def test_an_argument_that_cannot_be_pickled_is_refused_before_anything_is_sent(self) -> None:
        self.assertRaises(exception.InvalidError, allocate.bind(self.session), threading.Lock())
        self.run_ok()

    def test_a_budget_of_memory_is_held_and_the_session_stays(self) -> None:
        error = self.assertRaises(exception.RemoteExecutionError, allocate_within_a_budget.bind(self.session), 1 << 30)
        self.assertEqual(error.type, "MemoryError")
        self.run_ok()

    def test_what_a_sandbox_does_not_offer_is_refused(self) -> None:
        self.assertIn(
            "no-such-package", str(self.assertRaises(exception.InvalidRequestError, needs_a_package.bind(self.session)))
        )
        self.run_ok()

    def test_output_without_end_is_cut_with_its_caller(self) -> None:
        said: list[str] = []

        class Enough(Exception):
            pass

        class Screen:
            def write(self, text: str) -> None:
                said.append(text)
                if len(said) > 50:
                    raise Enough

            def flush(self) -> None:
                pass

        before, sys.stdout = sys.stdout, Screen()
        try:
            self.assertRaises(Enough, babble.bind(self.session))
        finally:
            sys.stdout = before
        self.run_ok()

    def test_signal_games_do_not_keep_the_next_call_from_being_interrupted_nor_the_sandbox_from_ending(self) -> None:
        self.assertEqual(ignore_interrupts.bind(self.session)(), "ignored")
        self.run_ok()
        self.session.release()
        self.assertRaises(exception.SessionExpiredError, kill_myself.bind(self.session))

    def test_sys_exit_is_an_exception_like_any_other(self) -> None:
        error = self.assertRaises(exception.RemoteExecutionError, leave.bind(self.session))
        self.assertEqual(error.type, "SystemExit")
        self.run_ok()

    def test_a_function_that_closes_its_output_has_some_again_in_the_next_call(self) -> None:
        close_stdout.bind(self.session)()
        self.run_ok()

    def test_a_function_that_closes_the_sandboxes_sockets_costs_its_own_session_only(self) -> None:
        other = sticky.Session()
        self.assertEqual(ok.bind(other)(), "ok")
        with self.assertRaises(exception.Error):
            close_every_socket.bind(self.session)()
        self.assertEqual(ok.bind(other)(), "ok")

    def test_release_and_use_at_the_same_time_give_a_session_or_say_that_it_is_over(self) -> None:
        def use(number: int) -> str:
            session = sticky.Session("contested")
            try:
                if number % 4 == 0:
                    session.release()
                    return "released"
                return ok.bind(session)()
            except (exception.SessionExpiredError, exception.ResourceExhaustedError) as error:
                return type(error).__name__

        with ThreadPoolExecutor(6) as pool:
            outcomes = set(pool.map(use, range(24)))
        self.assertLessEqual(outcomes, {"ok", "released", "SessionExpiredError", "ResourceExhaustedError"})
        sticky.Session("contested").release()
        self.assertEqual(ok.bind(sticky.Session("contested"))(), "ok")

    def test_what_is_no_call_gets_an_answer_and_costs_nothing(self) -> None:
        self.run_ok()
        headers = {"Modal-Authorization": f"Bearer {self.session._token}", "content-type": CONTENT_TYPE}
        sizes = document(Kind.CALL, {"sizes": {"function": 3, "arguments": 0}})
        bodies = [
            b"",
            b"junk",
            frame(Kind.VALUE, b"x"),
            document(Kind.CALL, {}),
            document(Kind.CALL, {"sizes": {"function": 1 << 40, "arguments": 0}}),
            sizes,
            sizes + frame(Kind.FUNCTION, b"xxxx"),
            sizes + frame(Kind.FUNCTION, b"xxx") + b"more",
            sizes + struct.pack("!cI", b"F", 1 << 31),
            sizes + frame(Kind.FUNCTION, b"xxx"),
        ]
        for body in bodies:
            answer = requests.post(f"{self.url}/_modal/calls", data=body, headers=headers, timeout=20)
            self.assertEqual(answer.status_code, 200, body)
            self.assertIn(b'"outcome":"error"', answer.content, body)
        self.run_ok()

    def test_other_methods_and_other_paths_are_no_calls(self) -> None:
        self.run_ok()
        headers = {"Modal-Authorization": f"Bearer {self.session._token}"}
        self.assertEqual(requests.get(f"{self.url}/_modal/calls", headers=headers, timeout=20).status_code, 405)
        self.assertEqual(requests.post(f"{self.url}/other", headers=headers, timeout=20).status_code, 404)
        self.assertEqual(requests.post(f"{self.url}/_modal/calls", timeout=20).status_code, 401)
        self.run_ok()


class LimitTests(CallsCase):
    def setUp(self) -> None:
        possible(memory=200 << 20, pids=40)
        super().setUp()
        self.serve_calls(memory='"200Mi"', pids=40, max_containers=3, scaledown_window=2)

    def test_ten_gigabytes_end_the_sandbox_and_its_session(self) -> None:
        session = sticky.Session("greedy")
        self.assertRaises(exception.SessionExpiredError, allocate.bind(session), 10 << 30)
        error = self.assertRaises(exception.SessionExpiredError, ok.bind(sticky.Session("greedy")))
        self.assertEqual(error.reason, "container_lost")

    def test_a_fork_bomb_stops_at_the_limit_and_nothing_of_it_stays(self) -> None:
        session = sticky.Session()
        children = fork_bomb.bind(session)()
        self.assertTrue(0 < children < 40, children)
        session.release()
        until("nothing is left", lambda: not self.children())

    def test_more_memory_than_there_is_is_refused(self) -> None:
        self.assertRaises(exception.InvalidRequestError, needs_memory.bind(sticky.Session()))

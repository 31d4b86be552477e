"""Function calls over a real daemon, rule by rule of tests/cases/seed003.md."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sticky
from sticky import exception
from tests.integration.calls_case import CallsCase
from tests.integration.running_daemon import until

data: list[int]
counter = 0
ticks: int


@sticky.remote
def load(n: int) -> int:
    global data
    data = list(range(n))
    return len(data)


@sticky.remote
def total() -> int:
    return sum(data)


@sticky.remote
def bump() -> int:
    global counter
    counter += 1
    return counter


def double(n: int) -> int:
    return 2 * n


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def doubled(self) -> int:
        return double(self.x)


@sticky.remote
def uses_a_class(n: int) -> int:
    return Point(n).doubled()


@sticky.remote
def pid() -> int:
    return os.getpid()


@sticky.remote
def fail() -> None:
    print("before it failed")
    raise ValueError("no such thing")


@sticky.remote
def die() -> None:
    os._exit(3)


@sticky.remote
def say(text: str) -> str:
    print(text)
    return text.upper()


@sticky.remote
def wait_for(path: str) -> str:
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.01)
    return "waited"


@sticky.remote
def spin(path: str) -> None:
    open(path, "w").close()
    while True:
        time.sleep(0.01)


@sticky.remote(timeout=0.5)
def too_long() -> None:
    time.sleep(60)


@sticky.remote(result="json")
def as_json(value: Any) -> Any:
    return value


@sticky.remote(disable_optimized_execution=True)
def cold_pid() -> int:
    return os.getpid()


@sticky.remote
def start_thread() -> None:
    global ticks
    ticks = 0

    def tick() -> None:
        global ticks
        while True:
            ticks += 1
            time.sleep(0.005)

    threading.Thread(target=tick, daemon=True).start()


@sticky.remote
def read_ticks() -> int:
    return ticks


@sticky.remote
async def asynchronous(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


class SessionTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve_calls(max_containers=4, scaledown_window=2)

    def test_rule_1_variables_models_and_imports_persist_between_the_calls_of_a_session(self) -> None:
        with sticky.Session() as session:
            self.assertEqual((load.bind(session)(10), total.bind(session)()), (10, 45))
            self.assertEqual([bump.bind(session)() for _ in range(3)], [1, 2, 3])
            self.assertEqual(uses_a_class.bind(session)(4), 8)
            self.assertEqual(asynchronous.bind(session)(1), 2)

    def test_rule_3_a_call_without_a_session_gets_a_fresh_sandbox_that_is_destroyed_after_it(self) -> None:
        self.assertEqual((bump(), bump()), (1, 1))
        first = pid()
        until("its sandbox is gone", lambda: not os.path.exists(f"/proc/{first}"))
        self.assertEqual(load.local(3), 3)

    def test_rules_4_5_and_6_a_name_finds_its_sandbox_again_and_again(self) -> None:
        first, second = sticky.Session("notebook"), sticky.Session("notebook")
        pids = {pid.bind(session)() for session in (first, second, first)}
        self.assertEqual(len(pids), 1)
        self.assertNotEqual(pid.bind(sticky.Session("other"))(), pids.pop())

    def test_rule_7_an_exception_is_a_finished_call(self) -> None:
        with sticky.Session() as session:
            before = pid.bind(session)()
            with contextlib.redirect_stdout(io.StringIO()):
                error = self.assertRaises(exception.RemoteExecutionError, fail.bind(session))
            self.assertEqual((error.type, str(error)), ("ValueError", "ValueError: no such thing"))
            self.assertEqual(error.output, ("before it failed",))
            self.assertIn(
                f'  File "{__file__}", line {fail.__sticky_function__.__code__.co_firstlineno + 3}, in fail\n'
                '    raise ValueError("no such thing")\n',
                error.traceback,
            )
            self.assertEqual(pid.bind(session)(), before)

    def test_rules_8_16_and_17_a_death_in_the_middle_of_a_call_retires_the_session(self) -> None:
        session = sticky.Session("notebook")
        load.bind(session)(3)
        error = self.assertRaises(exception.SessionExpiredError, die.bind(session))
        self.assertEqual(error.reason, "container_lost")
        self.assertRaises(exception.SessionExpiredError, total.bind(session))
        self.assertRaises(exception.SessionExpiredError, total.bind(sticky.Session("notebook")))
        fresh = sticky.Session("notebook 2")
        self.assertEqual(load.bind(fresh)(4), 4)
        session.release()
        self.assertEqual(load.bind(sticky.Session("notebook"))(5), 5)

    def test_rule_8_so_does_a_death_between_calls(self) -> None:
        session = sticky.Session("notebook")
        os.kill(pid.bind(session)(), signal.SIGKILL)
        until("it is expired", lambda: self._expired(session) is not None)
        self.assertEqual(self._expired(sticky.Session("notebook")), "container_lost")

    def _expired(self, session: sticky.Session) -> str | None:
        try:
            pid.bind(session)()
        except exception.SessionExpiredError as error:
            return error.reason
        except exception.Error:
            return None
        return None

    def test_rules_2_and_9_a_second_call_waits_for_the_first_and_rule_11_no_other_session_does(self) -> None:
        one, other = sticky.Session(), sticky.Session()
        gate = str(self.folder / "gate")
        with ThreadPoolExecutor(2) as pool:
            self.assertEqual(load.bind(one)(1), 1)
            first = pool.submit(wait_for.bind(one), gate)
            until("it runs", lambda: self._in_flight() == 1)
            second = pool.submit(total.bind(one))
            until("the second one waits", lambda: self._in_flight() == 2)
            self.assertEqual(load.bind(other)(5), 5)
            self.assertFalse(second.done())
            open(gate, "w").close()
            self.assertEqual((first.result(), second.result()), ("waited", 0))

    def _in_flight(self) -> int:
        fields = {"Authorization": f"Bearer {self.bearer}"}
        listed = self.http.get(f"{self.url}/_modal/sessions", headers=fields, timeout=10).json()["sessions"]
        return sum(session["in_flight"] for session in listed)

    def test_rule_12_close_sends_nothing_and_the_session_stays(self) -> None:
        session = sticky.Session("notebook")
        before = pid.bind(session)()
        session.close()
        self.assertEqual(pid.bind(sticky.Session("notebook"))(), before)

    def test_rule_15_an_idle_sandbox_is_not_paused(self) -> None:
        with sticky.Session() as session:
            start_thread.bind(session)()
            before = read_ticks.bind(session)()
            until("the thread goes on", lambda: read_ticks.bind(session)() > before + 3)

    def test_rule_18_an_unknown_name_starts_a_sandbox(self) -> None:
        self.assertEqual(bump.bind(sticky.Session("never seen"))(), 1)

    def test_rule_20_a_session_call_is_never_retried(self) -> None:
        with sticky.Session() as session:
            self.assertEqual(bump.bind(session)(), 1)
            self.assertRaises(exception.SessionExpiredError, die.bind(session))
            self.assertRaises(exception.SessionExpiredError, bump.bind(session))

    def test_output_streams_while_the_call_runs(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), sticky.Session() as session:
            self.assertEqual(
                say.bind(session)("h\N{LATIN SMALL LETTER E WITH ACUTE}llo"),
                "H\N{LATIN CAPITAL LETTER E WITH ACUTE}LLO",
            )
        self.assertEqual(out.getvalue(), "h\N{LATIN SMALL LETTER E WITH ACUTE}llo\n")

    def test_plain_data_comes_back_as_json_and_nothing_else_does(self) -> None:
        with sticky.Session() as session:
            self.assertEqual(as_json.bind(session)({"a": [1, None]}), {"a": [1, None]})
            error = self.assertRaises(exception.ExecutionError, as_json.bind(session), {1, 2})
            self.assertIn("not plain data", str(error))

    def test_large_arguments_and_values_come_whole(self) -> None:
        blob = os.urandom(1 << 20) * 20
        with sticky.Session() as session:
            self.assertEqual(echo.bind(session)(blob), blob)

    def test_a_timeout_interrupts_and_retires_the_session(self) -> None:
        with sticky.Session() as session:
            before = pid.bind(session)()
            self.assertRaises(exception.FunctionTimeoutError, too_long.bind(session))
            self.assertRaises(exception.SessionExpiredError, pid.bind(session))
            until("its sandbox is gone", lambda: not os.path.exists(f"/proc/{before}"))

    def test_a_cancelled_call_is_interrupted_and_its_session_stays(self) -> None:
        session = sticky.Session()
        before = pid.bind(session)()
        begun = str(self.folder / "begun")

        async def cancelled() -> None:
            task = asyncio.ensure_future(spin.bind(session).aio(begun))
            while not os.path.exists(begun):
                await asyncio.sleep(0.01)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return
            raise AssertionError("it was not cancelled")

        asyncio.run(cancelled())
        self.assertEqual(pid.bind(session)(), before)

    def test_rule_11_calls_of_many_sessions_from_one_asyncio_program_do_not_wait_for_each_other(self) -> None:
        """More than the threads of asyncio's own pool, which the calls that wait would fill."""
        gate, many = str(self.folder / "gate"), 40
        first, other = sticky.Session(), sticky.Session()
        pid.bind(first)()

        async def together() -> list[object]:
            waiting = [asyncio.ensure_future(wait_for.bind(first).aio(gate)) for _ in range(many)]
            try:
                self.assertEqual(await load.bind(other).aio(5), 5)
                self.assertFalse(any(call.done() for call in waiting))
            finally:
                open(gate, "w").close()
            return list(await asyncio.gather(*waiting))

        self.assertEqual(asyncio.run(together()), ["waited"] * many)

    def test_rule_16_a_crash_of_the_daemon_keeps_sandboxes_and_expired_names(self) -> None:
        kept, lost = sticky.Session("kept"), sticky.Session("lost")
        load.bind(kept)(10)
        self.assertRaises(exception.SessionExpiredError, die.bind(lost))
        self.daemon.kill()
        self.run_daemon()
        self.point()
        self.assertEqual(total.bind(sticky.Session("kept"))(), 45)
        self.assertRaises(exception.SessionExpiredError, pid.bind(sticky.Session("lost")))


@sticky.remote
def echo(value: bytes) -> bytes:
    return value


class IdleTests(CallsCase):
    def test_rule_13_a_sandbox_that_is_idle_for_too_long_is_destroyed_within_a_second(self) -> None:
        self.serve_calls("snapshot = false, idle_ttl = 1", scaledown_window=2)
        session = sticky.Session("notebook")
        process = pid.bind(session)()
        until("it is destroyed", lambda: not os.path.exists(f"/proc/{process}"))
        error = self.assertRaises(exception.SessionExpiredError, pid.bind(session))
        self.assertEqual(error.reason, "idle_timeout")

    def test_rule_10_who_waits_too_long_for_a_turn_is_told_that_it_is_busy(self) -> None:
        self.serve_calls(session_wait_timeout=1)
        session, gate = sticky.Session(), str(self.folder / "gate")
        with ThreadPoolExecutor(1) as pool:
            load.bind(session)(1)
            first = pool.submit(wait_for.bind(session), gate)
            until("it runs", lambda: self._busy(session))
            open(gate, "w").close()
            self.assertEqual(first.result(), "waited")

    def _busy(self, session: sticky.Session) -> bool:
        try:
            total.bind(session)()
        except exception.ResourceExhaustedError as error:
            self.assertEqual(error.code, "session_busy")
            return True
        return False

    def test_a_session_without_a_name_ends_with_its_block_and_leaves_its_room_to_the_next(self) -> None:
        self.serve_calls(max_containers=1, queue_timeout=10)
        found: list[int] = []
        for _ in range(2):
            with sticky.Session() as session:
                found.append(pid.bind(session)())
            self.assertRaises(exception.SessionExpiredError, pid.bind(session))

        async def block() -> int:
            async with sticky.Session() as session:
                return await pid.bind(session).aio()

        found.append(asyncio.run(block()))
        with self.assertRaises(ZeroDivisionError), sticky.Session() as session:
            found.append(pid.bind(session)())
            raise ZeroDivisionError
        with sticky.Session("notebook") as session:
            found.append(pid.bind(session)())
        self.assertEqual(pid.bind(sticky.Session("notebook"))(), found[-1])
        self.assertEqual(len(set(found)), 5)

    def test_a_call_that_still_runs_when_the_block_ends_completes(self) -> None:
        self.serve_calls()
        gate = str(self.folder / "gate")
        with ThreadPoolExecutor(1) as pool:
            with sticky.Session() as session:
                call = pool.submit(wait_for.bind(session), gate)
                until("it runs", lambda: os.path.exists(gate + ".begun"))
            open(gate, "w").close()
            self.assertEqual(call.result(), "waited")

    def test_no_room_is_the_same_class_with_another_code(self) -> None:
        self.serve_calls(max_containers=1, queue_timeout=1)
        load.bind(sticky.Session())(1)
        error = self.assertRaises(exception.ResourceExhaustedError, load, 1)
        self.assertEqual(error.code, "queue_timeout")

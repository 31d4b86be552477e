"""One container's ledger: admission, requests, ends, and the heap of deadlines under it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.effects import Admit, EndSession
from sticky.core.events import Admitted, Closed, Full, HasSessions, SessionLeft
from sticky.core.ledger import Ledger
from sticky.core.values import Caller, ContainerId, EndReason, SessionId

HOME = ContainerId("ct-1")
ANN = Caller("ann")


class LedgerTestCase(TestCase):
    def setUp(self) -> None:
        self.answers: list[Any] = []
        self.ends: list[EndSession] = []
        self.ledger = self.make(limit=3)

    def make(self, limit: int) -> Ledger:
        return Ledger(HOME, limit, 9000.0, self.answers.append, self.ends.append)

    def admit(self, name: str, now: float = 100.0, idle_timeout: float = 20.0) -> SessionId:
        self.ledger.admit(now, Admit(HOME, SessionId(name), ANN, idle_timeout))
        return SessionId(name)

    def ended(self) -> list[tuple[str, str, str | None]]:
        return [(end.session, end.reason.value, end.detail) for end in self.ends]


class AdmissionTests(LedgerTestCase):
    def test_a_session_is_taken_and_the_snapshot_says_so(self) -> None:
        self.admit("a")
        self.admit("b")
        self.assertEqual(
            self.answers, [Admitted(HOME, SessionId("a"), ANN, 1, 1), Admitted(HOME, SessionId("b"), ANN, 2, 2)]
        )

    def test_one_more_than_the_limit_is_refused_as_full(self) -> None:
        for name in "abcd":
            self.admit(name)
        self.assertEqual(self.answers[-1], Full(HOME, SessionId("d"), 3, 3))
        self.assertEqual(len(self.ledger), 3)

    def test_a_place_is_free_again_once_a_session_has_ended(self) -> None:
        for name in "abc":
            self.admit(name)
        self.ledger.terminate(101.0, SessionId("a"), None)
        self.admit("d")
        self.assertIsInstance(self.answers[-1], Admitted)

    def test_a_draining_ledger_takes_nothing(self) -> None:
        self.ledger.drain(EndReason.CONTAINER_MAX_AGE)
        self.admit("a")
        self.assertEqual(self.answers, [Closed(HOME, SessionId("a"), 0, 0)])

    def test_an_empty_ledger_closes_and_takes_nothing_after(self) -> None:
        self.ledger.close()
        self.admit("a")
        self.assertEqual(self.answers, [Closed(HOME, None, 0, 0), Closed(HOME, SessionId("a"), 0, 0)])

    def test_a_ledger_with_a_session_refuses_to_close_and_stays_open(self) -> None:
        self.admit("a")
        self.ledger.close()
        self.assertEqual(self.answers[-1], HasSessions(HOME, 1, 1))
        self.admit("b")
        self.assertIsInstance(self.answers[-1], Admitted)


class RequestTests(LedgerTestCase):
    def test_a_session_with_a_request_in_flight_does_not_expire(self) -> None:
        self.ledger.begin(self.admit("a"))
        self.ledger.expire(1e6)
        self.assertEqual(self.ended(), [])
        self.assertIsNone(self.ledger.next_deadline())

    def test_the_idle_clock_restarts_when_the_last_of_several_requests_is_over(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.begin(SessionId("a"))
        self.ledger.finish(200.0, session)
        self.assertIsNone(self.ledger.next_deadline())
        self.ledger.finish(300.0, session)
        self.assertEqual(self.ledger.next_deadline(), 320.0)

    def test_finish_says_when_the_next_deadline_may_have_come_nearer(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.assertIsNone(self.ledger.next_deadline())
        self.assertTrue(self.ledger.finish(200.0, session))
        self.ledger.begin(SessionId("a"))
        self.assertFalse(self.ledger.finish(201.0, session))

    def test_finishing_what_is_not_in_flight_is_illegal_and_changes_nothing(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.finish(101.0, session)
        self.assertRaises(errors.IllegalEvent, self.ledger.finish, 110.0, session)
        self.assertEqual((session.in_flight, session.last_active), (0, 101.0))

    def test_a_request_that_outlives_its_session_may_still_finish(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.cut(EndReason.CONTAINER_LOST, "exited")
        self.assertFalse(self.ledger.finish(101.0, session))
        self.assertEqual(len(self.ends), 1)


class ExpiryTests(LedgerTestCase):
    def test_it_ends_at_its_deadline_and_not_before(self) -> None:
        self.admit("a")
        self.ledger.expire(119.999)
        self.assertEqual(self.ended(), [])
        self.ledger.expire(120.0)
        self.assertEqual(self.ended(), [("a", "idle_timeout", None)])
        self.assertEqual(self.answers[-1], SessionLeft(HOME, SessionId("a"), ANN, 2, 0, EndReason.IDLE_TIMEOUT))

    def test_extend_restarts_the_clock(self) -> None:
        self.admit("a")
        self.ledger.extend(115.0, SessionId("a"))
        self.ledger.expire(134.0)
        self.assertEqual(self.ended(), [])
        self.assertEqual(self.ledger.next_deadline(), 135.0)

    def test_the_tombstone_may_go_when_the_container_could_not_have_tokens_any_more(self) -> None:
        self.admit("a")
        self.ledger.expire(120.0)
        self.assertEqual(self.ends[0].forget_at, 9000.0)

    @given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["begin", "finish", "extend", "cut"])), max_size=40))
    def test_the_next_deadline_is_always_the_earliest_of_all(self, steps: list[tuple[int, str]]) -> None:
        self.setUp()
        self.ledger = self.make(limit=10)
        sessions = {n: self.admit(f"s{n}", 100.0, 10.0 + n) for n in range(6)}
        now = 100.0
        for number, what in steps:
            session = self.ledger.sessions.get(sessions[number])
            if session is None:
                continue
            now += 1.0
            self.ledger.expire(now)
            if session.id not in self.ledger.sessions:
                continue
            if what == "cut":
                self.ledger.terminate(now, session.id, float(number + 1))
            elif session.reason is None and what == "begin":
                self.ledger.begin(session.id)
            elif session.reason is None and what == "extend":
                self.ledger.extend(now, session.id)
            elif what == "finish" and session.in_flight:
                self.ledger.finish(now, session)
            moments = [session.due for session in self.ledger if session.due is not None]
            self.assertEqual(self.ledger.next_deadline(), min(moments, default=None))


class TerminateTests(LedgerTestCase):
    def test_an_idle_session_ends_at_once(self) -> None:
        self.ledger.terminate(101.0, self.admit("a"), None)
        self.assertEqual(self.ended(), [("a", "terminated", None)])

    def test_a_busy_one_refuses_new_requests_and_ends_with_its_last(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.terminate(101.0, session.id, None)
        refusal = self.assertRaises(errors.SessionEnded, self.ledger.begin, session.id)
        self.assertEqual(refusal.code, "terminated")
        self.assertRaises(errors.SessionEnded, self.ledger.extend, 101.0, session.id)
        self.assertEqual(self.ended(), [])
        self.ledger.finish(500.0, session)
        self.assertEqual(self.ended(), [("a", "terminated", None)])

    def test_a_grace_bounds_what_is_in_flight(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.terminate(101.0, session.id, 5.0)
        self.ledger.expire(105.9)
        self.assertEqual(self.ended(), [])
        self.assertEqual(self.ledger.next_deadline(), 106.0)
        self.ledger.expire(106.0)
        self.assertEqual(self.ended(), [("a", "terminated", None)])

    def test_a_grace_of_nothing_cuts_in_the_same_step(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.terminate(101.0, session.id, 0.0)
        self.ledger.expire(101.0)
        self.assertEqual(self.ended(), [("a", "terminated", None)])

    def test_of_two_graces_the_shorter_counts(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.terminate(101.0, session.id, 50.0)
        self.ledger.terminate(102.0, session.id, 5.0)
        self.ledger.terminate(103.0, session.id, 500.0)
        self.ledger.terminate(104.0, session.id, None)
        self.assertEqual(self.ledger.next_deadline(), 107.0)


class ContainerEndTests(LedgerTestCase):
    def test_draining_ends_idle_sessions_and_lets_busy_ones_complete(self) -> None:
        busy = self.ledger.begin(self.admit("a"))
        self.admit("b")
        self.ledger.drain(EndReason.CONTAINER_MAX_AGE)
        self.assertEqual(self.ended(), [("b", "container_max_age", None)])
        self.ledger.drain(EndReason.SERVER_STOPPED)
        self.ledger.finish(101.0, busy)
        self.assertEqual(self.ended()[1:], [("a", "container_max_age", None)])

    def test_a_dead_container_ends_everything_and_says_how(self) -> None:
        self.ledger.begin(self.admit("a"))
        self.admit("b")
        self.ledger.cut(EndReason.CONTAINER_LOST, "killed")
        self.assertEqual(self.ended(), [("a", "container_lost", "killed"), ("b", "container_lost", "killed")])
        self.assertIsNone(self.ledger.next_deadline())

    def test_a_terminated_session_keeps_its_reason_when_its_container_dies(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        self.ledger.terminate(101.0, session.id, None)
        self.ledger.cut(EndReason.CONTAINER_LOST, "killed")
        self.assertEqual(self.ended(), [("a", "terminated", None)])


class HeapTests(LedgerTestCase):
    def test_short_stays_with_a_long_idle_timeout_do_not_pile_up(self) -> None:
        for number in range(2000):
            self.ledger.terminate(100.0, self.admit(f"s{number}", 100.0, 1e6), None)
        self.assertLess(len(self.ledger._heap), 100)

    def test_ever_shorter_graces_do_not_pile_up(self) -> None:
        session = self.ledger.begin(self.admit("a"))
        for number in range(2000):
            self.ledger.terminate(100.0, session.id, 3600.0 - number)
        self.assertLess(len(self.ledger._heap), 100)
        self.assertEqual(self.ledger.next_deadline(), 100.0 + 3600.0 - 1999)

    def test_a_touch_leaves_the_heap_alone(self) -> None:
        session_id = self.admit("a")
        heap = list(self.ledger._heap)
        for now in range(101, 119):
            self.ledger.finish(float(now), self.ledger.begin(session_id))
        self.assertEqual(self.ledger._heap, heap)

"""One session: every row of its table, every input that has none, and when time ends it."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core.session import TRANSITIONS, Session, SessionInput, SessionState
from sticky.core.values import Caller, SessionId
from sticky.errors import IllegalEvent


def session(state: SessionState = SessionState.ACTIVE) -> Session:
    """A session with an idle timeout of 20 s, last active at 100 s."""
    return Session(SessionId("sd-1"), Caller("ann"), 20.0, 90.0, 100.0, state)


class TableTests(TestCase):
    def test_an_input_without_a_row_raises_and_changes_nothing(self) -> None:
        for state in SessionState:
            for what in SessionInput:
                if (state, what) not in TRANSITIONS:
                    moved = session(state)
                    self.assertRaises(IllegalEvent, moved.move, what)
                    self.assertIs(moved.state, state)

    def test_states_only_move_forward(self) -> None:
        order = list(SessionState)
        for (before, _), after in TRANSITIONS.items():
            self.assertLessEqual(order.index(before), order.index(after))

    def test_an_ended_session_takes_no_input_at_all(self) -> None:
        self.assertNotIn(SessionState.ENDED, {state for state, _ in TRANSITIONS})


class IdleClockTests(TestCase):
    def test_it_runs_from_the_last_activity_while_nothing_is_in_flight(self) -> None:
        self.assertEqual(session().due, 120.0)

    def test_it_stands_still_while_a_request_is_in_flight(self) -> None:
        busy = session()
        busy.in_flight = 1
        self.assertIsNone(busy.due)

    def test_a_draining_session_has_no_idle_clock_but_its_grace(self) -> None:
        draining = session(SessionState.DRAINING)
        self.assertIsNone(draining.due)
        draining.cut_at = 105.0
        self.assertEqual(draining.due, 105.0)

    def test_an_ended_session_waits_for_nothing(self) -> None:
        self.assertIsNone(session(SessionState.ENDED).due)

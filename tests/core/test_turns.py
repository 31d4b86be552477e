"""Turns: one request at a time in each session. The numbers are those of tests/cases/seed003.md."""

from __future__ import annotations

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.effects import GiveTurn, RefuseTurn
from sticky.core.session import Session
from sticky.core.turns import TRANSITIONS, Turn, TurnInput, TurnState
from sticky.core.values import ContainerId, EndReason, SessionId, TurnId
from tests.core.stage import Stage


class TurnTestCase(SynchronousTestCase):
    """Two sessions, sd-1 and sd-2, on one container; idle timeout 20 s, a turn is waited for 5 s."""

    def setUp(self) -> None:
        self.numbers = count(1)
        self.stage = Stage(
            idle_timeout=20.0, max_concurrency=2, min_containers=1, session_wait_timeout=5.0, max_session_waiters=3
        )
        self.stage.ready()
        self.stage.start()
        self.stage.start()

    def take(self, session: str = "sd-1") -> tuple[TurnId, Session, bool]:
        turn = TurnId(next(self.numbers))
        stage = self.stage
        core, held = stage.fleet.take_turn(stage.now, stage.home(session), SessionId(session), turn)
        return turn, core, held

    def give_back(self, turn: TurnId, core: Session) -> None:
        self.stage.fleet.give_back(self.stage.now, self.stage.home(core.id), core, turn)
        self.stage.told += self.stage.fleet.take()

    def given(self) -> list[int]:
        return [effect.turn for effect in self.stage.of(GiveTurn)]

    def refused(self) -> dict[int, str]:
        return {effect.turn: effect.error.code for effect in self.stage.of(RefuseTurn)}


class OrderTests(TurnTestCase):
    def test_rule_2_requests_of_one_session_run_one_at_a_time(self) -> None:
        self.assertEqual([self.take()[2] for _ in range(3)], [True, False, False])

    def test_rule_9_each_waits_for_the_one_before_first_come_first_served(self) -> None:
        turns = [self.take() for _ in range(4)]
        for turn, core, _ in turns:
            self.give_back(turn, core)
        self.assertEqual(self.given(), [2, 3, 4])
        self.assertTrue(self.take()[2], "the line is empty again")

    def test_rule_11_sessions_never_wait_on_each_other(self) -> None:
        self.take("sd-1")
        self.assertTrue(self.take("sd-2")[2])

    def test_one_that_leaves_the_line_frees_its_place(self) -> None:
        first, second, third = (self.take() for _ in range(3))
        self.give_back(second[0], second[1])
        self.give_back(first[0], first[1])
        self.assertEqual(self.given(), [third[0]])

    def test_one_that_waits_is_in_flight_and_keeps_the_session_from_being_idle(self) -> None:
        first, second = self.take(), self.take()
        self.assertEqual(first[1].in_flight, 2)
        self.give_back(first[0], first[1])
        self.stage.wait(100.0)
        self.assertIsNone(self.stage.end_of("sd-1"))
        self.give_back(second[0], second[1])
        self.stage.wait(20.0)
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.IDLE_TIMEOUT, None))

    def test_a_request_without_a_turn_goes_beside_the_line(self) -> None:
        self.take()
        websocket = self.stage.begin("sd-1")
        self.assertEqual(websocket.in_flight, 2)
        self.stage.finish(websocket)


class RefusalTests(TurnTestCase):
    def test_rule_10_who_waits_too_long_is_refused_as_busy_and_may_come_again(self) -> None:
        self.take()
        self.take()
        self.stage.wait(4.9)
        self.assertEqual(self.refused(), {})
        self.stage.wait(0.1)
        self.assertEqual(self.refused(), {2: "session_busy"})
        error = self.stage.of(RefuseTurn)[0].error
        self.assertEqual((error.status, error.retry_after), (429, 1.0))

    def test_busy_is_another_error_than_no_room(self) -> None:
        self.assertNotEqual(errors.SessionBusy.status, errors.QueueTimedOut.status)
        self.assertNotEqual(errors.SessionBusy.code, errors.QueueTimedOut.code)

    def test_beyond_the_bound_nobody_waits_and_no_clock_is_touched(self) -> None:
        for _ in range(4):
            self.take()
        session = self.stage.fleet.look(self.stage.now, self.stage.home("sd-1"), SessionId("sd-1"))
        before = (session.in_flight, session.last_active)
        self.stage.now += 1.0
        self.assertRaises(errors.SessionBusy, self.take)
        self.assertEqual((session.in_flight, session.last_active), before)

    def test_terminate_refuses_who_waits_and_lets_the_one_that_is_served_complete(self) -> None:
        first, _, _ = (self.take() for _ in range(3))
        self.stage.terminate("sd-1")
        self.assertEqual(self.refused(), {2: "terminated", 3: "terminated"})
        self.assertIsNone(self.stage.end_of("sd-1"))
        self.give_back(first[0], first[1])
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.TERMINATED, None))
        self.assertEqual(self.given(), [])

    def test_the_containers_death_refuses_who_waits_with_its_reason(self) -> None:
        self.take()
        self.take()
        self.stage.exit("ct-1", "killed")
        self.assertEqual(self.refused(), {2: "container_lost"})
        self.assertEqual(list(self.stage.fleet.turns), [])

    def test_a_turn_that_is_given_back_after_the_end_changes_nothing(self) -> None:
        turn, core, _ = self.take()
        self.stage.exit("ct-1")
        self.give_back(turn, core)
        self.give_back(turn, core)
        self.assertEqual(self.given(), [])

    def test_a_late_timer_refuses_at_the_deadline_all_the_same(self) -> None:
        first = self.take()
        self.take()
        self.stage.now += 50.0
        self.give_back(first[0], first[1])
        self.assertEqual((self.refused(), self.given()), ({2: "session_busy"}, []))

    def test_many_that_leave_long_before_their_deadline_leave_nothing(self) -> None:
        self.take()
        for _ in range(500):
            turn, core, _ = self.take()
            self.give_back(turn, core)
        self.assertLess(len(self.stage.fleet.turns._heap), 100)


class TableTests(SynchronousTestCase):
    def test_an_input_without_a_row_raises_and_changes_nothing(self) -> None:
        core = Session(SessionId("sd-1"), "ann", 20.0, 0.0, 0.0)  # type: ignore[arg-type]
        for state in TurnState:
            for what in TurnInput:
                if (state, what) not in TRANSITIONS:
                    turn = Turn(TurnId(1), ContainerId("ct-1"), core, 5.0, state)
                    self.assertRaises(errors.IllegalEvent, turn.move, what)
                    self.assertIs(turn.state, state)

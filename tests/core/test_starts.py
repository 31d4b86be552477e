"""The start queue by itself: ranks, waiters, keys, limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.events import StartRequested
from sticky.core.starts import TRANSITIONS, Start, StartInput, StartQueue, StartState
from sticky.core.values import Caller, ContainerId, Policy, SessionId, WaiterId

KEY = "k" * 16
HOME = ContainerId("ct-1")


class QueueTestCase(TestCase):
    def setUp(self) -> None:
        self.queue = StartQueue()
        self.policy = Policy()
        self.last = 0

    def add(self, now: float = 0.0, *, holds: int = 0, caller: str = "ann", key: str | None = None) -> Start:
        self.last += 1
        event = StartRequested(WaiterId(self.last), Caller(caller), "ann", None, key)
        return self.queue.add(now, event, 20.0, self.policy, holds)

    def ranks(self) -> list[int]:
        return [start.rank for start in self.queue.waiting()]

    def left_behind(self) -> list[Any]:
        queue = self.queue
        kept = [queue._queue, queue._by_waiter, queue.placed, queue._queued_by, queue.keys, queue._key_of, queue._held]
        return [thing for thing in kept if thing]


class TableTests(TestCase):
    def test_an_input_without_a_row_raises_and_changes_nothing(self) -> None:
        for state in StartState:
            for what in StartInput:
                if (state, what) not in TRANSITIONS:
                    start = Start(1, Caller("ann"), "ann", 20.0, None, 0.0, 60.0, set(), state)
                    self.assertRaises(errors.IllegalEvent, start.move, what)
                    self.assertIs(start.state, state)

    def test_what_is_answered_or_dropped_stays_so(self) -> None:
        over = {StartState.ANSWERED, StartState.DROPPED}
        self.assertEqual(over & {state for state, _ in TRANSITIONS}, set())


class LimitTests(QueueTestCase):
    def test_the_queue_takes_max_queue_starts_and_no_more(self) -> None:
        self.policy = Policy(max_queue=2)
        self.add()
        self.add()
        self.assertRaises(errors.QueueFull, self.add, caller="bob")
        self.assertEqual(self.ranks(), [1, 2])

    def test_one_caller_cannot_fill_the_queue_for_others(self) -> None:
        self.policy = Policy(max_queue_per_caller=1)
        self.add()
        self.assertRaises(errors.QueueFull, self.add)
        self.add(caller="bob")

    def test_sessions_and_waiting_starts_count_together_against_a_callers_limit(self) -> None:
        self.policy = Policy(max_sessions_per_caller=3)
        self.add(holds=1)
        self.add(holds=1)
        self.assertRaises(errors.TooManySessions, self.add, holds=1)

    def test_every_way_out_gives_the_place_back(self) -> None:
        self.policy = Policy(max_queue_per_caller=1)
        self.add()
        self.queue.leave(0.0, WaiterId(self.last))
        refused = self.add()
        self.queue.refuse(refused)
        placed = self.add()
        self.queue.place(placed, HOME, SessionId("sd-1"))
        self.add()
        self.queue.leave(0.0, WaiterId(self.last))
        self.queue.bounced(0.0, SessionId("sd-1"))
        self.assertRaises(errors.QueueFull, self.add)
        self.queue.place(placed, HOME, SessionId("sd-2"))
        self.queue.admitted(0.0, SessionId("sd-2"))
        self.assertEqual(self.left_behind(), [])


class RankTests(QueueTestCase):
    def test_a_start_that_comes_back_has_its_old_rank(self) -> None:
        first = self.add()
        self.add()
        self.queue.place(first, HOME, SessionId("sd-1"))
        self.add()
        self.assertEqual(self.ranks(), [2, 3])
        self.queue.bounced(0.0, SessionId("sd-1"))
        self.assertEqual(self.ranks(), [1, 2, 3])

    def test_a_start_that_comes_back_after_its_deadline_is_out_at_once(self) -> None:
        start = self.add()
        self.queue.place(start, HOME, SessionId("sd-1"))
        self.assertEqual(self.queue.expire(60.0), [])
        self.queue.bounced(61.0, SessionId("sd-1"))
        self.assertEqual(self.queue.expire(61.0), [start])

    def test_it_is_out_at_its_deadline_and_not_before(self) -> None:
        start = self.add(now=5.0)
        self.assertEqual(self.queue.next_deadline(), 65.0)
        self.assertEqual(self.queue.expire(64.9), [])
        self.assertEqual(self.queue.expire(65.0), [start])

    def test_positions_count_those_that_may_be_granted(self) -> None:
        for key in (None, KEY, None, None):
            self.add(key=key)
        self.queue.leave(0.0, WaiterId(2))
        places = [self.queue.position(WaiterId(waiter)) for waiter in (1, 2, 3, 4)]
        self.assertEqual([place and place[0] for place in places], [1, None, 2, 3])

    def test_who_is_being_placed_has_no_position_and_does_not_count(self) -> None:
        first = self.add()
        self.add()
        self.queue.place(first, HOME, SessionId("sd-1"))
        second = self.queue.position(WaiterId(2))
        assert second is not None
        self.assertIsNone(self.queue.position(WaiterId(1)))
        self.assertEqual(second[0], 1)

    @given(st.lists(st.tuples(st.sampled_from(["add", "keyed", "leave", "join", "refuse"]), st.integers(0, 9))))
    def test_positions_are_one_two_three_whatever_happens(self, steps: list[tuple[str, int]]) -> None:
        self.setUp()
        joined = 1000
        for what, number in steps:
            queued = self.queue._queue
            start = queued[number % len(queued)] if queued else None
            if what in ("add", "keyed"):
                self.add(key=f"{self.last:016}" if what == "keyed" else None)
            elif start is not None and what == "leave" and start.waiters:
                self.queue.leave(0.0, min(start.waiters))
            elif start is not None and what == "join" and start.key is not None:
                joined += 1
                self.queue.join(start, WaiterId(joined))
            elif start is not None and what == "refuse" and start.state is StartState.WAITING:
                self.queue.refuse(start)
        waiting = list(self.queue.waiting())
        places = [self.queue.position(min(start.waiters)) for start in waiting]
        self.assertEqual([place and place[0] for place in places], list(range(1, len(waiting) + 1)))


class KeyTests(QueueTestCase):
    def known(self, now: float, owner: str = "ann", idle_timeout: float = 20.0) -> Start | None:
        event = StartRequested(WaiterId(99), Caller("ann"), owner, None, KEY)
        return self.queue.known(now, event, idle_timeout)

    def test_a_key_finds_its_start_and_one_of_another_owner_does_not(self) -> None:
        start = self.add(key=KEY)
        self.assertIs(self.known(0.0), start)
        self.assertIsNone(self.known(0.0, owner="bob"))

    def test_a_key_with_another_idle_timeout_is_refused(self) -> None:
        self.add(key=KEY)
        self.assertRaises(errors.KeyReused, self.known, 0.0, idle_timeout=21.0)

    def test_a_keyed_start_keeps_its_rank_for_five_seconds_without_clients(self) -> None:
        start = self.add(key=KEY)
        self.add()
        self.queue.leave(10.0, WaiterId(1))
        self.assertEqual(self.ranks(), [2])
        self.assertEqual(self.queue.next_deadline(), 15.0)
        self.queue.join(start, WaiterId(99))
        self.assertEqual(self.ranks(), [1, 2])
        self.assertEqual(self.queue.next_deadline(), 60.0)

    def test_a_held_start_is_dropped_after_that_without_an_answer(self) -> None:
        self.add(key=KEY)
        self.queue.leave(10.0, WaiterId(1))
        self.assertEqual(self.queue.expire(14.9), [])
        self.assertIsNotNone(self.known(14.9))
        self.assertEqual(self.queue.expire(15.0), [])
        self.assertIsNone(self.known(15.0))
        self.assertEqual(self.left_behind(), [])

    def test_one_of_two_clients_leaves_and_the_start_stays(self) -> None:
        start = self.add(key=KEY)
        self.queue.join(start, WaiterId(99))
        self.queue.leave(0.0, WaiterId(1))
        self.assertEqual(self.ranks(), [1])
        self.assertEqual(start.waiters, {WaiterId(99)})

    def test_the_key_of_an_owner_counts_as_long_as_the_session(self) -> None:
        start = self.add(key=KEY)
        self.queue.place(start, HOME, SessionId("sd-1"))
        self.queue.admitted(0.0, SessionId("sd-1"))
        self.assertIs(self.known(1e6), start)
        self.queue.session_left(SessionId("sd-1"))
        self.assertIsNone(self.known(1e6))
        self.assertEqual(self.left_behind(), [])

    def test_where_everybody_is_one_owner_the_key_counts_for_sixty_seconds_more(self) -> None:
        event = StartRequested(WaiterId(1), Caller("10.0.0.1"), "", None, KEY)
        start = self.queue.add(0.0, event, 20.0, self.policy, 0)
        self.queue.place(start, HOME, SessionId("sd-1"))
        self.queue.admitted(10.0, SessionId("sd-1"))
        self.assertIs(self.known(69.9, owner=""), start)
        self.assertIsNone(self.known(70.0, owner=""))
        self.assertEqual(self.left_behind(), [])

    def test_a_refused_start_frees_its_key(self) -> None:
        self.queue.refuse(self.add(key=KEY))
        self.assertIsNone(self.known(0.0))
        self.assertEqual(self.left_behind(), [])

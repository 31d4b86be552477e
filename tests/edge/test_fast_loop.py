"""A turn's events: who is read, who is left to Twisted, and what becomes of a failure. In Python, and compiled."""

from __future__ import annotations

import select
from typing import Any

import attrs
from twisted.trial.unittest import SkipTest, TestCase

from sticky.edge import fast_loop

IN, OUT, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP


@attrs.define(eq=False)
class Ours:
    """Reads, and gives what it is to give or raises it."""

    gives: Any = None
    reads: int = 0
    then: Any = None

    def doRead(self) -> Any:
        self.reads += 1
        if self.then is not None:
            self.then()
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


class Others(Ours):
    """Of another kind."""


class ReadReadyTests(TestCase):
    read_ready = staticmethod(fast_loop.read_ready)

    def setUp(self) -> None:
        self.ended: list[tuple[Any, Any, bool]] = []

    def run_turn(self, events: list[tuple[int, int]], selectables: dict[int, Any]) -> Any:
        return self.read_ready(events, selectables, {Ours}, lambda *told: self.ended.append(told))

    def test_ours_are_read_and_nothing_is_left(self) -> None:
        one, two = Ours(), Ours()
        self.assertIsNone(self.run_turn([(3, IN), (4, IN)], {3: one, 4: two}))
        self.assertEqual((one.reads, two.reads, self.ended), (1, 1, []))
        self.assertIsNone(self.run_turn([], {}))

    def test_other_kinds_and_other_events_are_left_in_order(self) -> None:
        ours, other = Ours(), Others()
        events = [(3, IN | HUP), (4, IN), (3, OUT), (3, IN), (9, OUT)]
        self.assertEqual(self.run_turn(events, {3: ours, 4: other}), [(3, IN | HUP), (4, IN), (3, OUT), (9, OUT)])
        self.assertEqual((ours.reads, other.reads), (1, 0))

    def test_one_that_an_earlier_event_took_out_is_passed_over(self) -> None:
        selectables: dict[int, Any] = {}
        second = Ours()
        selectables.update({3: Ours(then=lambda: selectables.pop(4)), 4: second})
        self.assertIsNone(self.run_turn([(3, IN), (4, IN)], selectables))
        self.assertEqual(second.reads, 0)

    def test_an_end_and_a_failure_are_told_and_the_others_go_on(self) -> None:
        error = ZeroDivisionError()
        done, failing, last = Ours("done"), Ours(error), Ours()
        self.assertIsNone(self.run_turn([(3, IN), (4, IN), (5, IN)], {3: done, 4: failing, 5: last}))
        self.assertEqual(self.ended, [(done, "done", False), (failing, error, True)])
        self.assertEqual(last.reads, 1)


class CompiledReadReadyTests(ReadReadyTests):
    """The compiled twin, where there is one."""

    def setUp(self) -> None:
        super().setUp()
        if fast_loop.compiled is None:
            raise SkipTest("the compiled loop is not built")
        self.read_ready = fast_loop.compiled

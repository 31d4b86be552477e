"""A turn's events: who is read, who is left to Twisted, and what becomes of a failure. In Python, and compiled."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.trial.unittest import SkipTest, TestCase

from sticky.edge import fast_loop
from sticky.edge.transport import HELD, READ_SIZE, StreamState

IN, OUT, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP


@attrs.define(eq=False)
class Ours:
    """A stream that gives what it is to give, or raises it, and whose protocol does something with what it gets."""

    gives: Any = b"data"
    then: Callable[[bytes], object] = len
    protocol: Any = None
    state: StreamState = StreamState.OPEN

    def recv(self, size: int) -> bytes:
        assert size == READ_SIZE
        if isinstance(self.gives, BaseException):
            raise self.gives
        return bytes(self.gives)


class Others(Ours):
    """Of another kind."""


@attrs.define
class Taker:
    stream: Ours
    taken: list[Ours]

    def dataReceived(self, data: bytes) -> None:
        self.taken.append(self.stream)
        self.stream.then(data)


class AnotherTaker(Taker):
    """A protocol of another kind."""


class FirstTaker(Taker):
    """One of the kind that is to be first."""


class ReadReadyTests(TestCase):
    read_ready = staticmethod(fast_loop.read_ready)

    def setUp(self) -> None:
        self.ended: list[tuple[Any, Any, bool]] = []
        self.taken: list[Ours] = []

    def run_turn(self, events: list[tuple[int, int]], selectables: dict[int, Ours]) -> Any:
        for stream in selectables.values():
            if stream.protocol is None:
                stream.protocol = Taker(stream, self.taken)
        return self.read_ready(events, selectables, {Ours}, (FirstTaker,), lambda *told: self.ended.append(told))

    def test_ours_are_read_and_nothing_is_left(self) -> None:
        one, two = Ours(), Ours()
        self.assertIsNone(self.run_turn([(3, IN), (4, IN)], {3: one, 4: two}))
        self.assertEqual((self.taken, self.ended), ([one, two], []))
        self.assertIsNone(self.run_turn([], {}))

    def test_other_kinds_and_other_events_are_left_in_order(self) -> None:
        ours, other = Ours(), Others()
        events = [(3, IN | HUP), (4, IN), (3, OUT), (3, IN), (9, OUT)]
        self.assertEqual(self.run_turn(events, {3: ours, 4: other}), [(3, IN | HUP), (4, IN), (3, OUT), (9, OUT)])
        self.assertEqual(self.taken, [ours])

    def test_all_are_read_before_any_is_handed_on_and_protocols_of_a_kind_follow_each_other(self) -> None:
        one, two, three = Ours(), Ours(), Ours()
        one.then = lambda data: setattr(three, "gives", b"")  # too late
        two.protocol = AnotherTaker(two, self.taken)
        self.run_turn([(3, IN), (4, IN), (5, IN)], {3: one, 4: two, 5: three})
        self.assertEqual((self.taken, self.ended), ([one, three, two], []))

    def test_the_kind_that_is_to_be_first_is(self) -> None:
        one, two, three = Ours(), Ours(), Ours()
        two.protocol = FirstTaker(two, self.taken)
        self.run_turn([(3, IN), (4, IN), (5, IN)], {3: one, 4: two, 5: three})
        self.assertEqual(self.taken, [two, one, three])

    def test_much_is_handed_on_before_more_is_read(self) -> None:
        much, later, last = Ours(b"x" * HELD), Ours(), Ours()
        much.then = lambda data: setattr(later, "gives", b"")
        self.run_turn([(3, IN), (4, IN), (5, IN)], {3: much, 4: later, 5: last})
        self.assertEqual((self.taken, [stream for stream, *_ in self.ended]), ([much, last], [later]))

    def test_one_that_is_not_there_any_more_is_passed_over(self) -> None:
        one = Ours()
        self.assertIsNone(self.run_turn([(4, IN), (3, IN)], {3: one}))
        self.assertEqual(self.taken, [one])

    def test_what_was_read_of_one_that_was_closed_since_is_dropped(self) -> None:
        for state in (StreamState.CLOSING, StreamState.DOOMED, StreamState.GONE):
            second = Ours()
            first = Ours(then=partial(self.close, second, state))
            self.run_turn([(3, IN), (4, IN)], {3: first, 4: second})
            self.assertEqual((self.taken.pop(), self.taken), (first, []))

    def close(self, stream: Ours, state: StreamState, data: bytes) -> None:
        stream.state = state

    def test_ends_and_failures_are_told_and_the_others_go_on(self) -> None:
        def fails(data: bytes) -> None:
            raise ZeroDivisionError

        ended, broken, failing, last = Ours(b""), Ours(ConnectionResetError()), Ours(then=fails), Ours()
        early, interrupted = Ours(BlockingIOError()), Ours(InterruptedError())
        streams = (failing, ended, early, broken, interrupted, last)
        self.run_turn([(fd, IN) for fd in range(6)], dict(enumerate(streams)))
        told = [(stream, type(why), failed) for stream, why, failed in self.ended]
        self.assertEqual(
            told, [(ended, ConnectionDone, False), (broken, ConnectionLost, False), (failing, ZeroDivisionError, True)]
        )
        self.assertEqual(self.taken, [failing, last])


class CompiledReadReadyTests(ReadReadyTests):
    """The compiled twin, where there is one."""

    def setUp(self) -> None:
        super().setUp()
        if fast_loop.compiled is None:
            raise SkipTest("the compiled loop is not built")
        self.read_ready = fast_loop.compiled

"""The journal's thread: in order, with what comes of it in the reactor's thread, and nothing left for the garbage collector."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky.journal.thread import JournalThread
from tests.fakes.garbage import left_to_the_collector


@implementer(IReactorFromThreads)
class Calls:
    """What a reactor is asked from other threads; `turn` waits for the next one and does it."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        self._waiting.put((callable, args))

    def turn(self) -> None:
        call, arguments = self._waiting.get(timeout=60)
        call(*arguments)


class JournalThreadTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Calls()
        self.thread = JournalThread(self.reactor)
        self.addCleanup(self.thread.stop)

    def test_what_is_returned_comes_in_order_and_was_run_in_one_other_thread(self) -> None:
        threads: list[threading.Thread] = []

        def run(number: int) -> int:
            threads.append(threading.current_thread())
            return number

        asked: list[Deferred[int]] = [self.thread.run(run, number) for number in range(3)]
        self.reactor.turn()
        self.assertEqual(self.successResultOf(asked[0]), 0)
        self.assertNoResult(asked[1])
        self.reactor.turn()
        self.reactor.turn()
        self.assertEqual([self.successResultOf(one) for one in asked[1:]], [1, 2])
        self.assertEqual(len(set(threads)), 1)
        self.assertNotIn(threading.current_thread(), threads)

    def test_what_is_raised_comes_as_a_failure_and_the_next_one_is_run(self) -> None:
        broken, whole = self.thread.run(int, "seven"), self.thread.run(int, "7")
        self.reactor.turn()
        self.reactor.turn()
        self.failureResultOf(broken, ValueError)
        self.assertEqual(self.successResultOf(whole), 7)

    def test_it_is_stopped_when_all_is_done(self) -> None:
        done: list[int] = []
        thread = JournalThread(self.reactor)
        for number in range(3):
            thread.run(done.append, number)
        thread.stop()
        self.assertEqual(done, [0, 1, 2])

    def test_whoever_leaves_it_does_not_wait_and_it_ends_with_what_is_under_way(self) -> None:
        hangs = threading.Event()
        thread = JournalThread(self.reactor)
        thread.run(hangs.wait, 60)
        thread.leave()
        self.assertTrue(thread._thread.is_alive())
        hangs.set()
        thread._thread.join(60)
        self.assertFalse(thread._thread.is_alive())

    def test_nothing_is_left_to_the_collector(self) -> None:
        def work() -> None:
            for _ in range(5):
                asked = self.thread.run(list)
                self.reactor.turn()
                self.assertEqual(self.successResultOf(asked), [])

        self.assertEqual(left_to_the_collector(work), {})

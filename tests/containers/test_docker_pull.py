"""One pull for all who wait for an image, whatever becomes of who asked for it."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.docker.dock import Dock
from sticky.containers.docker.faults import EngineError
from sticky.containers.ports import Ports


class SlowEngine:
    """Answers when a test says so."""

    socket = "/e.sock"

    def __init__(self) -> None:
        self.asked: list[Deferred[bytes]] = []

    def raw(self, *what: object) -> Deferred[bytes]:
        self.asked.append(Deferred())
        return self.asked[-1]


class PullTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = SlowEngine()
        nothing: Any = None
        reactor: Any = Clock()
        engine: Any = self.engine
        self.dock = Dock(reactor, engine, "label", Ports(), nothing, nothing)

    def pull(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.dock.pull("game"))

    def test_all_hear_of_its_success(self) -> None:
        waiting = [self.pull() for _ in range(3)]
        self.assertEqual(len(self.engine.asked), 1)
        self.engine.asked[0].callback(b"{}")
        for one in waiting:
            self.successResultOf(one)

    def test_all_hear_of_a_failure(self) -> None:
        waiting = [self.pull() for _ in range(3)]
        self.engine.asked[0].errback(EngineError("no route"))
        for one in waiting:
            self.failureResultOf(one, EngineError)

    def test_when_who_asked_is_stopped_another_one_asks_again(self) -> None:
        first, second, third = (self.pull() for _ in range(3))
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertNoResult(second)
        self.assertEqual(len(self.engine.asked), 2)
        self.engine.asked[1].callback(b"{}")
        self.successResultOf(second)
        self.successResultOf(third)

    def test_a_fault_of_ours_tells_nobody_that_the_image_is_there(self) -> None:
        first, second = self.pull(), self.pull()
        self.engine.asked[0].errback(RuntimeError("a bug"))
        self.failureResultOf(first, RuntimeError)
        self.assertNoResult(second)
        self.engine.asked[1].errback(EngineError("no route"))
        self.failureResultOf(second, EngineError)

    def test_who_waits_may_leave(self) -> None:
        first, second = self.pull(), self.pull()
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.engine.asked[0].callback(b"{}")
        self.successResultOf(first)

"""Workers that are ready before anybody may be served: they are counted, and heard when they are let in and not before."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from sticky.workers import messages
from sticky.workers.frames import LinkLost
from tests.fakes.links import Wire
from tests.workers.test_proxies import ProxiesCase


class EarlyTests(ProxiesCase):
    def setUp(self) -> None:
        super().setUp()
        self.proxies.early.expect(lambda pid: True)

    def hello(self, wire: Wire) -> Deferred[Any]:
        self.proxies.enter(wire.near)
        hello = wire.far.ask(
            messages.HELLO, versions=[messages.VERSION], name="worker", moved=False, holds=[], turns=[]
        )
        wire.run()
        return hello

    def test_none_is_heard_before_it_is_let_in(self) -> None:
        wires = [Wire(self.clock) for _ in range(2)]
        hellos = [self.hello(wire) for wire in wires]
        for hello in hellos:
            self.assertNoResult(hello)
        self.proxies.let_in()
        for wire, hello in zip(wires, hellos, strict=True):
            wire.run()
            self.successResultOf(hello)
        self.assertEqual(len(self.proxies.members), 2)
        self.successResultOf(self.hello(Wire(self.clock)))

    def test_it_is_known_when_all_are_there(self) -> None:
        ready = self.proxies.early.ready(2, 15.0)
        gone = Wire(self.clock)
        lost = self.hello(gone)
        gone.lose()
        self.failureResultOf(lost, LinkLost)
        self.hello(Wire(self.clock))
        self.assertNoResult(ready)
        self.hello(Wire(self.clock))
        self.successResultOf(ready)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(self.proxies.early.ready(2, 15.0))

    def test_one_that_does_not_come_up_is_not_waited_for_for_ever(self) -> None:
        ready = self.proxies.early.ready(1, 15.0)
        self.clock.advance(15.0)
        self.successResultOf(ready)
        self.hello(Wire(self.clock))

    def test_others_are_heard_meanwhile(self) -> None:
        self.proxies.early.expect(lambda pid: False)
        self.successResultOf(self.hello(Wire(self.clock)))

    def test_a_rest_for_yet_another_daemon_neither_hears_nor_forgets_them(self) -> None:
        wire = Wire(self.clock)
        hello = self.hello(wire)
        self.proxies.rest()
        self.proxies.wake()
        wire.run()
        self.assertNoResult(hello)
        self.proxies.rest()
        self.proxies.let_in()
        wire.run()
        self.assertNoResult(hello)
        self.proxies.wake()
        wire.run()
        self.successResultOf(hello)

"""What was held for a proxy is gone when it is over: no lease and its holder wait for the garbage collector, which looks rarely."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import EndReason
from sticky.isticky import Visit
from sticky.workers.routing import FarRouting
from sticky.workers.turns import FarTurns
from sticky.workers.visits import FarVisits
from tests.fakes.garbage import left_to_the_collector
from tests.fakes.routing import at_once
from tests.test_service import Holder
from tests.workers.test_leases_machine import IDLE, SESSIONS
from tests.workers.test_take_over import NearDaemon, of
from tests.workers.test_visits import BOX, SERVER, Daemon


class LeaseGarbageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.daemon = NearDaemon(self.clock)
        self.turns = FarTurns()
        self.turns.connect(self.daemon.wire.far, [])
        self.far = FarRouting(self.clock, self.turns)
        self.addCleanup(self.far.stop)
        self.daemon.wire.far.serves = {**self.far.calls(), "end": self.ended}
        self.far.connect(self.daemon.wire.far, [])

    def ended(self, message: dict[str, str]) -> None:
        self.turns.ended(SESSIONS[0], message["reason"], None)
        self.far.ended(SESSIONS[0], message["reason"], None)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.daemon.wire.run()

    def test_one_that_is_given_back(self) -> None:
        def work() -> None:
            asked = self.far.begin(of(SESSIONS[0]), Holder())
            self.daemon.wire.run()
            at_once(self.successResultOf(asked)).release()  # type: ignore[arg-type]
            self.pass_time(2)
            self.assertEqual((self.daemon.in_flight(), self.daemon.proxy.held), ({}, {}))

        self.assertEqual(left_to_the_collector(work), {})

    def test_one_whose_session_ends(self) -> None:
        def work() -> None:
            asked = self.far.begin(of(SESSIONS[0]), Holder())
            self.daemon.wire.run()
            self.successResultOf(asked)  # type: ignore[arg-type]
            self.daemon.book.end(SESSIONS[0], EndReason.TERMINATED, None)
            self.daemon.wire.run()
            self.assertEqual((self.daemon.proxy.held, self.far.holds), ({}, {}))

        self.assertEqual(left_to_the_collector(work), {})

    def test_one_that_is_set_aside_and_wanted_again_too_late(self) -> None:
        def work() -> None:
            asked = self.far.begin(of(SESSIONS[0]), Holder())
            self.daemon.wire.run()
            lease = at_once(self.successResultOf(asked))  # type: ignore[arg-type]
            lease.suspend()
            self.pass_time(2)
            self.clock.advance(IDLE)
            lease.resume()
            self.daemon.wire.run()
            self.assertEqual((self.daemon.proxy.held, self.far.holds), ({}, {}))

        self.assertEqual(left_to_the_collector(work), {})

    def test_those_of_a_proxy_that_is_lost(self) -> None:
        def work() -> None:
            asked = [self.far.begin(of(session), Holder()) for session in SESSIONS]
            self.daemon.wire.run()
            self.assertEqual(len(self.daemon.proxy.held), len(asked))
            self.daemon.proxy._free()
            self.assertEqual(self.daemon.in_flight(), {})

        found = left_to_the_collector(work)
        self.assertEqual([kind for kind in found if kind.endswith((".Held", ".Lease"))], [])

    def test_turns_that_are_over_given_up_or_cut_short(self) -> None:
        def work() -> None:
            for end in ("over", "given up", "cut short"):
                asked = self.turns.take(of(SESSIONS[0]), Holder())
                if end == "given up":
                    asked.cancel()
                    self.failureResultOf(asked)
                    self.daemon.wire.run()
                    continue
                self.daemon.wire.run()
                lease = self.successResultOf(asked)
                if end == "over":
                    lease.release()
                else:
                    self.daemon.book.end(SESSIONS[0], EndReason.TERMINATED, None)
                self.daemon.wire.run()
                self.assertEqual((self.daemon.turns.in_flight, self.turns._requests), (0, {}))

        self.assertEqual(left_to_the_collector(work), {})


class VisitGarbageTests(SynchronousTestCase):
    def test_visits_that_are_over_given_up_or_cut_short(self) -> None:
        daemon, far = Daemon(Clock()), FarVisits()
        daemon.wire.far.serves = far.calls()
        far.connect(daemon.wire.far, ())

        def work() -> None:
            for end in ("over", "given up", "cut short"):
                asked = far.take(Visit(SERVER), Holder())
                if end == "given up":
                    asked.cancel()
                    self.failureResultOf(asked)
                    daemon.wire.run()
                    continue
                daemon.wire.run()
                lease = self.successResultOf(asked)
                if end == "over":
                    lease.release()
                else:
                    daemon.book.end(BOX, EndReason.CONTAINER_LOST, None)
                daemon.wire.run()
                self.assertEqual((daemon.visits.in_flight, far._requests, far._of), (0, {}, {}))

        self.assertEqual(left_to_the_collector(work), {})

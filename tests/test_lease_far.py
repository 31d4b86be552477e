"""Holders in other processes: a terminate is answered when they have acknowledged, and containers go when they know."""

from __future__ import annotations

import gc

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky.core.container import KILL_AFTER
from sticky.core.events import StopRequested
from sticky.core.values import EndReason
from sticky.isticky import IFarHolder
from sticky.lease import Lease
from tests.test_service import ServiceCase


@implementer(IFarHolder)
@attrs.define(eq=False)
class Far:
    """Acknowledges when the test says so."""

    told: list[tuple[str, EndReason]] = attrs.field(factory=list)
    waiting: list[Deferred[None]] = attrs.field(factory=list)
    in_flight: int = 3
    idle_for: float = 0.0

    def session_drains(self, reason: EndReason) -> None:
        self.told.append(("drains", reason))

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        self.told.append(("ended", reason))

    def settled(self) -> Deferred[None]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def acknowledge(self) -> None:
        while self.waiting:
            self.waiting.pop(0).callback(None)


class FarHolderTests(ServiceCase):
    def hold(self) -> Far:
        self.build()
        self.about = self.session()
        far = Far()
        lease = self.service.begin(self.about, far)
        assert isinstance(lease, Lease)
        self.lease = lease
        return far

    def test_a_terminate_is_answered_when_it_has_acknowledged(self) -> None:
        far = self.hold()
        done = self.service.terminate(self.about, None)
        self.assertEqual(far.told, [("drains", EndReason.TERMINATED)])
        self.assertNoResult(done)
        far.acknowledge()
        self.successResultOf(done)
        self.lease.release()
        self.assertEqual(list(self.service.fleet.ledgers[self.about.container]), [])

    def test_a_client_that_does_not_wait_for_that_leaves_no_fault_behind(self) -> None:
        far = self.hold()
        done = self.service.terminate(self.about, None)
        done.cancel()
        self.successResultOf(done)  # nobody hears of it
        far.acknowledge()
        del done
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_requests_elsewhere_are_counted_as_told_and_the_idle_clock_as_well(self) -> None:
        far = self.hold()
        self.assertEqual(self.service.status(self.about).in_flight, 3)
        self.assertIsNone(self.service.status(self.about).idle_left)
        far.in_flight, far.idle_for = 0, 0.5
        status = self.service.status(self.about)
        self.assertEqual((status.in_flight, status.idle_left), (0, status.idle_timeout - 0.5))

    def test_one_that_cannot_be_asked_to_go_is_said_and_killed_when_its_time_is_up(self) -> None:
        far = self.hold()
        (container,) = self.backend.spawned

        def broken() -> None:
            raise LookupError("a fault of this backend")

        container.terminate = broken  # type: ignore[method-assign]
        self.service._step(StopRequested())
        far.acknowledge()
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.clock.pump([KILL_AFTER, 0])
        self.assertEqual((container.signals, container.state.value), (["KILL"], "gone"))

    def test_a_container_is_asked_to_go_when_it_knows(self) -> None:
        far = self.hold()
        (container,) = self.backend.spawned
        self.service._step(StopRequested())
        self.assertIn(("ended", EndReason.SERVER_STOPPED), far.told)
        self.assertEqual(container.state.value, "ready")
        far.acknowledge()
        self.assertNotEqual(container.state.value, "ready")

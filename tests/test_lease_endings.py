"""Whoever holds a lease hears of the session's end before the container is asked to go: a WebSocket still gets its Close out."""

from __future__ import annotations

import attrs
from zope.interface import implementer

from sticky.containers.memory import MemoryContainer
from sticky.core.events import Deployed, Event, StopRequested
from sticky.core.values import DeploymentId, EndReason
from sticky.isticky import ILeaseHolder
from tests.test_service import ServiceCase


@implementer(ILeaseHolder)
@attrs.define(eq=False)
class Watcher:
    """Notes what its container was doing when the end was told."""

    container: MemoryContainer
    told: list[tuple[EndReason, str]] = attrs.field(factory=list)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        self.told.append((reason, self.container.state.value))


class OrderTests(ServiceCase):
    def watch(self, **policy: object) -> Watcher:
        self.build(**policy)
        claims = self.session()
        (container,) = self.backend.spawned
        watcher = Watcher(container)
        self.service.begin(claims, watcher)
        return watcher

    def happens(self, event: Event) -> None:
        self.service._step(event)

    def test_recreate(self) -> None:
        for grace in (0.0, 5.0):
            watcher = self.watch(exit_grace_period=grace)
            self.happens(Deployed(DeploymentId("dp-2"), self.service.fleet.policy, recreate=True))
            self.assertEqual(bool(watcher.told), not grace)
            self.clock.advance(grace)
            self.assertEqual(watcher.told, [(EndReason.DEPLOYMENT_ENDED, "ready")])
            self.assertNotEqual(watcher.container.state.value, "ready")

    def test_maximum_age(self) -> None:
        watcher = self.watch(container_max_age=100.0, idle_timeout=10.0)
        self.clock.advance(100)
        self.assertEqual(watcher.told, [(EndReason.CONTAINER_MAX_AGE, "ready")])
        self.assertNotEqual(watcher.container.state.value, "ready")

    def test_the_daemons_stop(self) -> None:
        for grace in (0.0, 5.0):
            watcher = self.watch(exit_grace_period=grace)
            self.happens(StopRequested())
            self.clock.advance(grace)
            self.assertEqual(watcher.told, [(EndReason.SERVER_STOPPED, "ready")])
            self.assertNotEqual(watcher.container.state.value, "ready")

"""What the books of the Hypothesis machine know of containers: births, moves, and failed starts with their back-off."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sticky.core.container import ContainerState
from sticky.core.effects import CutRequests
from sticky.core.events import ContainerExited, ContainerStopRequested, ContainerUnhealthy, Deployed, StopRequested
from sticky.core.fleet import TOKEN_LEEWAY
from sticky.core.records import ContainerCreated, ContainerMoved
from sticky.core.values import ContainerId, DeploymentId, EndReason, Policy, StopCause
from tests.core.entries import FOREVER, Box, Stay
from tests.core.turn_books import TurnBooks

SCALING = frozenset({StopCause.SCALED_DOWN, StopCause.TOO_OLD})  #: why it may stop one of the newest deployment
STOPPED = frozenset({StopCause.ASKED, StopCause.DAEMON_STOPS})


class ContainerBooks(TurnBooks):
    """The base of `tests.core.books.Books`."""

    def __init__(self, policy: Policy, jitter: float) -> None:
        super().__init__()
        self.policy = policy
        self.jitter = jitter
        self.now = 100.0
        self.newest = DeploymentId("d1")
        self.seen: Counter[str] = Counter()
        self.boxes: dict[ContainerId, Box] = {}
        self.tokens_end: dict[ContainerId, float] = {}
        self.failures = 0
        self.failed_by = ""
        self.next_attempt = 0.0
        self.refused = False
        self.stopping = False
        self.spawned: list[Box] = []
        self.closed: list[tuple[Box, float]] = []  #: by scaling in this step, and since when they had been empty
        #: Containers beyond the maximum that are there since it was lowered, or an earlier one came back.
        self.excess = FOREVER
        self._births = 0

    def ours(self) -> list[Box]:
        """Containers of the newest deployment."""
        return [box for box in self.boxes.values() if box.deployment == self.newest]

    def load(self, box: Box) -> int:
        """Its sessions, and requests that belong to none."""
        return box.requests + sum(stay.container == box.id for stay in self.stays.values())

    def hopeless(self) -> bool:
        """Whether starts fail fast."""
        return self.failures >= 3 and not any(box.state is ContainerState.READY for box in self.ours())

    def limit_containers(self) -> None:
        """The newest deployment's containers have the policy's limits; what is beyond them may stay until it ends."""
        for box in self.ours():
            box.limit = self.policy.max_concurrency
            box.excess = max(0, self.load(box) - box.limit)
        self.excess = FOREVER

    def _born(self, effect: ContainerCreated) -> None:
        assert effect.deployment == self.newest and effect.born == self.now
        starting = [box for box in self.ours() if box.state is ContainerState.STARTING]
        if self.failures:
            assert self.now >= self.next_attempt and not starting, "started while backing off"
            self.seen["tried again"] += 1
        self._births += 1
        box = Box(
            effect.container,
            self._births,
            effect.deployment,
            self.now,
            effect.max_age,
            self.policy.max_concurrency,
            self.policy.startup_timeout,
            self.now,
        )
        self.boxes[box.id] = box
        self.tokens_end[box.id] = box.born + box.max_age + TOKEN_LEEWAY
        self.spawned.append(box)

    def _moved(self, effect: ContainerMoved) -> None:
        box = self.boxes[effect.container]
        live = [stay for stay in self.stays.values() if stay.container == box.id]
        match box.state, effect.state:
            case ContainerState.STARTING, ContainerState.READY:
                self.refused = False
            case ContainerState.READY, ContainerState.DRAINING:
                self._drained(box, effect, live)
            case ContainerState.STARTING, ContainerState.STOPPING:
                late = box.since + box.startup_timeout <= self.now
                asked = isinstance(self.cause, StopRequested) or self._causes(ContainerStopRequested, box)
                assert late or asked or box.deployment != self.newest
                box.causes = frozenset({self._stop_cause() if asked else StopCause.REPLACED})
                if late:
                    box.causes = frozenset({StopCause.STARTUP_TIMEOUT})
                    self._failed("startup_timeout")
            case ContainerState.READY, ContainerState.STOPPING if self._causes(ContainerUnhealthy, box):
                assert not live, "a session outlived its container's health"
                self._doubt(box, "unhealthy")
            case ContainerState.READY, ContainerState.STOPPING:
                # Invariant 6: only scaling does this, and never to one that has a session.
                assert not live and not box.requests, "scaling stopped a container with a session"
                self.closed.append((box, box.empty_since))
                box.causes = SCALING if box.deployment == self.newest else frozenset({StopCause.REPLACED})
                self.prove(box)
            case ContainerState.DRAINING, ContainerState.STOPPING:
                if box.causes & STOPPED:  # which of the two, does not outlive a restart
                    box.causes = frozenset({StopCause.DAEMON_STOPS if self.stopping else StopCause.ASKED})
                rest = live or box.requests
                assert not rest or box.drained_by <= self.now, "its time to drain was cut short"
            case before, ContainerState.GONE:
                assert isinstance(self.cause, ContainerExited) and self.cause.container == box.id
                assert not live, "a session outlived its container"
                if before is ContainerState.STARTING:
                    self._failed(self.cause.detail)
                if before is ContainerState.READY:
                    self._doubt(box, self.cause.detail)
                del self.boxes[box.id]
            case _:
                raise AssertionError(f"{box.state} became {effect.state}")
        box.state, box.since = effect.state, self.now

    def _drained(self, box: Box, effect: ContainerMoved, live: list[Stay]) -> None:
        reasons: dict[type[Any], EndReason] = {
            StopRequested: EndReason.SERVER_STOPPED,
            Deployed: EndReason.DEPLOYMENT_ENDED,
            ContainerStopRequested: EndReason.SERVER_STOPPED,
        }
        too_old = box.born + box.max_age <= self.now
        assert effect.reason is (EndReason.CONTAINER_MAX_AGE if too_old else reasons[type(self.cause)])
        if isinstance(self.cause, Deployed) and not too_old:
            assert self.cause.recreate and box.deployment != self.newest
        box.causes = frozenset({StopCause.TOO_OLD if too_old else self._stop_cause()})
        self.prove(box)
        box.drained_by = self.now + self.policy.exit_grace_period
        for stay in live:
            stay.drains = stay.drains or effect.reason

    def _requests_cut(self, effect: CutRequests) -> None:
        box = self.boxes[effect.container]
        died = self._causes(ContainerExited, box) or self._causes(ContainerUnhealthy, box)
        assert died or box.state is ContainerState.STOPPING
        assert not box.requests or died or box.drained_by <= self.now, "requests were cut before their time"
        self.seen["cut requests in flight"] += box.requests > 0
        box.requests = 0

    def _stop_cause(self) -> StopCause:
        """As what was told to the fleet wants it."""
        causes = {
            StopRequested: StopCause.DAEMON_STOPS,
            Deployed: StopCause.REPLACED,
            ContainerStopRequested: StopCause.ASKED,
        }
        return causes[type(self.cause)]

    def _causes(self, kind: type[Any], box: Box) -> bool:
        """Whether this is what was told to the fleet, of this container."""
        return isinstance(self.cause, kind) and getattr(self.cause, "container", None) == box.id

    def prove(self, box: Box) -> None:
        """Its start has succeeded: back-off is over, if it was for the like of it."""
        if not box.proven and box.deployment == self.newest:
            self.seen["proved in the end"] += self.failures > 0
            self.failures, self.next_attempt = 0, 0.0
        box.proven = True

    def _doubt(self, box: Box, cause: str) -> None:
        if not box.proven and box.deployment == self.newest:
            self.seen["died young"] += 1
            self._failed(cause)
        box.proven = True

    def _failed(self, cause: str) -> None:
        self.failures += 1
        self.failed_by = cause
        self.next_attempt = self.now + min(2.0 ** (self.failures - 1), 60.0) * (0.5 + self.jitter)

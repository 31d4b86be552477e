"""The containers of one Server as admission sees them: births, moves, counts, and which to start or close. Knows no ledger."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sticky.core.backoff import Backoff
from sticky.core.container import KILL_AFTER, Container, ContainerInput, ContainerState
from sticky.core.effects import Effect, KillContainer, SpawnContainer, TerminateContainer
from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated, ContainerMoved, DeploymentMade, Record
from sticky.core.scaling import wanted_open
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, EndReason, Policy
from sticky.errors import IllegalEvent


@attrs.frozen
class Demand:
    """What admission wants of the containers at this moment."""

    queued: int  #: starts that wait, refused ones as 1
    idle_timeout: float  #: seconds that a container must still be able to give in order to count as open


class Capacity:
    """All containers that are not GONE, by id, oldest first."""

    def __init__(
        self,
        policy: Policy,
        deployment: DeploymentId,
        backoff: Backoff,
        new_id: Callable[[], ContainerId],
        emit: Callable[[Effect | Record], None],
    ) -> None:
        self.policy = policy
        self.deployment = deployment
        self.containers: dict[ContainerId, Container] = {}
        self._backoff = backoff
        self._new_id = new_id
        self._emit = emit
        self._born = 0
        self._short_since = UNBOUNDED  # since when there have been fewer open ones than wanted
        emit(DeploymentMade(deployment))

    # --- moves

    def deploy(self, deployment: DeploymentId, policy: Policy) -> None:
        """This deployment is the newest from now on."""
        self.deployment = deployment
        self.policy = policy
        self._backoff.succeeded()
        self._emit(DeploymentMade(deployment))

    def find(self, container: ContainerId) -> Container:
        """Raises `IllegalEvent` for one that is not known, or not any more."""
        try:
            return self.containers[container]
        except KeyError:
            raise IllegalEvent("unknown container") from None

    def ready(self, now: float, container: Container) -> None:
        """Its port answers. A no-op for one that is being stopped."""
        self._move(container, ContainerInput.READY)
        if container.state is ContainerState.READY:
            container.stop_at = UNBOUNDED
            container.note_empty(now)
            self._backoff.succeeded()

    def drain(self, now: float, container: Container, reason: EndReason) -> None:
        """It takes nothing new; what is in flight has `exit_grace_period`."""
        container.reason = reason
        self._move(container, ContainerInput.DRAIN)
        container.empty_since = UNBOUNDED
        container.stop_at = now + self.policy.exit_grace_period

    def stop(self, now: float, container: Container) -> None:
        """Ask it to end; SIGKILL follows."""
        if container.state is ContainerState.STARTING and container.stop_at <= now:
            self._backoff.failed(now)
        self._move(container, ContainerInput.STOP)
        container.empty_since = UNBOUNDED
        container.stop_at = now + KILL_AFTER
        self._emit(TerminateContainer(container.id))

    def kill(self, container: Container) -> None:
        """It was asked and did not end. Nothing more can be done than this, so no time is set."""
        container.stop_at = UNBOUNDED
        self._emit(KillContainer(container.id))

    def exited(self, now: float, container: Container) -> None:
        """Its process is gone."""
        if container.state is ContainerState.STARTING:
            self._backoff.failed(now)
        self._move(container, ContainerInput.EXIT)
        del self.containers[container.id]

    def recall(self, now: float, memory: Memory) -> None:
        """Take up the containers that an earlier daemon left; the clocks of their present states start anew."""
        if memory.deployment is not None:
            self.deployment = memory.deployment
        for identity, kept in memory.containers.items():
            self._born += 1
            container = Container(
                identity,
                kept.deployment,
                kept.born,
                kept.max_age,
                self.policy.max_concurrency,
                self._born,
                kept.state,
                kept.reason,
            )
            container.stop_at = now + {
                ContainerState.STARTING: self.policy.startup_timeout,
                ContainerState.DRAINING: self.policy.exit_grace_period,
                ContainerState.STOPPING: KILL_AFTER,
            }.get(kept.state, UNBOUNDED)
            self.containers[identity] = container
            container.note_empty(now)

    # --- counts

    def newest(self) -> list[Container]:
        """Containers of the newest deployment, oldest first."""
        return [container for container in self.containers.values() if container.deployment == self.deployment]

    def any_ready(self) -> bool:
        """Whether any container of the newest deployment takes, or could later take, sessions."""
        return any(container.state is ContainerState.READY for container in self.newest())

    def has_room(self, now: float) -> bool:
        """Whether some start, however short its idle timeout, could be placed now."""
        return any(container.takes(now, 0.0) for container in self.newest())

    def open(self, now: float, demand: Demand) -> list[Container]:
        """Newest deployment, STARTING or READY, not asked to close, and young enough for the demand."""
        return [
            container
            for container in self.newest()
            if container.state in (ContainerState.STARTING, ContainerState.READY)
            and not container.close_asked
            and now < container.fits_until(demand.idle_timeout)
        ]

    def closing(self) -> int:
        """Containers of the newest deployment that are STOPPING, or asked to close and thus about to."""
        return sum(container.state is ContainerState.STOPPING or container.close_asked for container in self.newest())

    # --- scaling

    def scale_up(self, now: float, demand: Demand) -> list[Container]:
        """Spawn what is wanted and allowed."""
        count, _ = self._shortage(now, demand)
        return [self._spawn(now) for _ in range(count)]

    def scale_down(self, now: float, demand: Demand) -> list[Container]:
        """Containers whose ledgers should be asked to close: marked so, newest first, never below what is wanted."""
        chosen = [container for container, since in self._closable(now, demand) if since <= now]
        for container in chosen:
            container.close_asked = True
        return chosen

    def life_deadline(self) -> float:
        """When time alone moves some container on: start-up time-out, age, end of draining, SIGKILL."""
        moments = [container.stop_at for container in self.containers.values()]
        moments += [c.dies_at for c in self.containers.values() if c.state is ContainerState.READY]
        return min(moments, default=UNBOUNDED)

    def scale_deadline(self, now: float, demand: Demand) -> float:
        """When time alone asks for a start or a close. Later than `now` once `scale_up` and `scale_down` have run."""
        moments = [container.fits_until(demand.idle_timeout) for container in self.open(now, demand)]
        moments += [since for _, since in self._closable(now, demand)]
        moments.append(self._shortage(now, demand)[1])
        return min(moments)

    def _wanted(self, open_now: list[Container], demand: Demand) -> int:
        return wanted_open(self.policy, sum(container.load for container in open_now), demand.queued)

    def _shortage(self, now: float, demand: Demand) -> tuple[int, float]:
        """(containers to start now, when time alone would allow more)."""
        policy = self.policy
        open_now = self.open(now, demand)
        lacking = self._wanted(open_now, demand) - len(open_now)
        if lacking <= 0:
            self._short_since = UNBOUNDED
            return 0, UNBOUNDED
        self._short_since = min(self._short_since, now)
        allowed = min(
            lacking,
            policy.max_containers - len(open_now) - self.closing(),
            policy.total - len(self.containers),
        )
        if allowed <= 0:
            return 0, UNBOUNDED
        later = UNBOUNDED
        window_ends = self._short_since + policy.scaleup_window
        if now < window_ends:
            at_once = min(allowed, max(policy.min_containers - len(open_now), 0 if open_now else 1))
            if at_once < allowed:
                later = window_ends
            allowed = at_once
        if self._backoff.failures:
            if any(container.state is ContainerState.STARTING for container in self.newest()):
                return 0, UNBOUNDED  # one attempt at a time; its end is an event
            if now < self._backoff.next_attempt:
                return 0, self._backoff.next_attempt
            allowed = min(allowed, 1)
        return allowed, later

    def _closable(self, now: float, demand: Demand) -> list[tuple[Container, float]]:
        """(container, when it may be asked to close) for those that scale-down would take, newest first."""
        open_now = self.open(now, demand)
        spare = len(open_now) - self._wanted(open_now, demand)
        found: list[tuple[Container, float]] = []
        for container in reversed(self.containers.values()):
            if container.state is not ContainerState.READY or container.close_asked or container.load:
                continue
            if container.deployment != self.deployment:
                found.append((container, container.empty_since))
            elif container not in open_now:
                found.append((container, container.empty_since + self.policy.scaledown_window))
        idle = [c for c in reversed(open_now) if c.state is ContainerState.READY and not c.load]
        # Those whose time has come go first, newest first; among the others the one that is due next is the deadline.
        idle.sort(key=lambda c: max(now, c.empty_since + self.policy.scaledown_window))
        found += [(c, c.empty_since + self.policy.scaledown_window) for c in idle[: max(spare, 0)]]
        return found

    def _spawn(self, now: float) -> Container:
        self._born += 1
        container = Container(
            self._new_id(),
            self.deployment,
            now,
            self.policy.container_max_age,
            self.policy.max_concurrency,
            self._born,
            stop_at=now + self.policy.startup_timeout,
        )
        self.containers[container.id] = container
        self._emit(ContainerCreated(container.id, container.deployment, now, container.max_age))
        self._emit(SpawnContainer(container.id, container.deployment))
        return container

    def _move(self, container: Container, what: ContainerInput) -> None:
        before = container.state
        container.move(what)
        if container.state is not before:
            self._emit(ContainerMoved(container.id, container.state, container.reason))

"""The containers of one Server as admission sees them: births, moves, counts, and which to start or close. Knows no ledger."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sticky.core.backoff import Backoff
from sticky.core.container import KILL_AFTER, PROVEN_AFTER, Container, ContainerInput, ContainerState
from sticky.core.effects import Effect, KillContainer, SpawnContainer, TerminateContainer
from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated, ContainerMoved, DeploymentMade, Record
from sticky.core.scaling import wanted_open
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, EndReason, Policy, StopCause
from sticky.errors import IllegalEvent


@attrs.frozen
class Demand:
    """What admission wants of the containers at this moment."""

    queued: int  #: starts that wait, refused ones as 1
    idle_timeout: float  #: seconds that a container must still be able to give in order to count as open


@attrs.define
class Survey:
    """What there is, seen with the eyes of a demand."""

    open: int = 0  #: newest deployment, STARTING or READY, not asked to close, and young enough for the demand
    wanted: int = 0  #: so many should be open
    demand: int = 0  #: for what: sessions, starts that wait, requests
    closing: int = 0  #: newest deployment, STOPPING, or asked to close and thus about to
    starting: bool = False  #: whether any of the newest deployment is STARTING
    stays_open_until: float = UNBOUNDED  #: when the first open one becomes too old for the demand
    idle: list[Container] = attrs.field(factory=list)  #: open, READY and empty, oldest first
    surplus: list[tuple[Container, float]] = attrs.field(factory=list)  #: READY, empty, not open; when each may close


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
            container.proven_at = now + PROVEN_AFTER
            container.note_empty(now)

    def prove(self, container: Container) -> None:
        """Its start has succeeded: it lived, a session came to its own end on it, or it was asked to go."""
        if container.proven_at != UNBOUNDED:
            container.proven_at = UNBOUNDED
            if container.deployment == self.deployment:
                self._backoff.succeeded()

    def drain(self, now: float, container: Container, reason: EndReason) -> None:
        """It takes nothing new; what is in flight has `exit_grace_period`."""
        self.prove(container)
        container.reason = reason
        self._move(container, ContainerInput.DRAIN)
        container.empty_since = UNBOUNDED
        container.stop_at = now + self.policy.exit_grace_period

    def stop(self, now: float, container: Container, cause: StopCause) -> None:
        """Ask it to end; SIGKILL follows."""
        if cause is StopCause.STARTUP_TIMEOUT:
            self._backoff.failed(now, cause.value)
        self.prove(container)
        self._move(container, ContainerInput.STOP)
        container.empty_since = UNBOUNDED
        container.stop_at = now + KILL_AFTER
        self._emit(TerminateContainer(container.id, cause))

    def why_closed(self, now: float, container: Container, demand: Demand) -> StopCause:
        """Why scaling has closed it."""
        if container.spent:
            return StopCause.SPENT
        if container.deployment != self.deployment:
            return StopCause.REPLACED
        too_old = now >= container.fits_until(demand.idle_timeout)
        return StopCause.TOO_OLD if too_old else StopCause.SCALED_DOWN

    def kill(self, container: Container) -> None:
        """It was asked and did not end. Nothing more can be done than this, so no time is set."""
        container.stop_at = UNBOUNDED
        self._emit(KillContainer(container.id))

    def lose(self, now: float, container: Container, detail: str) -> None:
        """It does not answer any more: no use in asking it to end, nor in waiting for that."""
        self._doubt(now, container, detail)
        self._move(container, ContainerInput.STOP)
        container.empty_since = UNBOUNDED
        self.kill(container)

    def exited(self, now: float, container: Container, detail: str) -> None:
        """Its process is gone."""
        if container.state is ContainerState.STARTING:
            self._backoff.failed(now, detail)
        self._doubt(now, container, detail)
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
            # Whether one that is empty has had a session nobody noted: it is taken for used.
            container.single_use = self.policy.single_use
            container.used = kept.state is not ContainerState.STARTING
            container.stop_at = now + {
                ContainerState.STARTING: self.policy.startup_timeout,
                ContainerState.DRAINING: self.policy.exit_grace_period,
                ContainerState.STOPPING: KILL_AFTER,
            }.get(kept.state, UNBOUNDED)
            if kept.state is ContainerState.READY:
                container.proven_at = now + PROVEN_AFTER
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

    # --- scaling

    def survey(self, now: float, demand: Demand) -> Survey:
        """What there is now. Good until something changes."""
        # One pass over all containers, and no property is asked: this runs for each start and each end of a session.
        seen = Survey()
        load = 0
        plain, any_ready = not self.policy.sessioned, False
        old: list[Container] = []
        for container in self.containers.values():
            state, sessions = container.state, container.sessions + len(container.grants) + container.requests
            ready = state is ContainerState.READY
            if container.deployment != self.deployment:
                if ready and not container.close_asked:
                    # Nothing binds requests to it: they will go to the newest, so their number counts there.
                    load += sessions if plain else 0
                    if not sessions:
                        old.append(container)
            elif container.close_asked or state is ContainerState.STOPPING:
                seen.closing += 1
            elif ready and not sessions and container.spent:
                seen.closing += 1
                seen.surplus.append((container, container.empty_since))
            elif ready or state is ContainerState.STARTING:
                seen.starting = seen.starting or not ready
                any_ready = any_ready or ready
                until = container.born + container.max_age - demand.idle_timeout
                if now < until:
                    seen.open += 1
                    load += sessions
                    if until < seen.stays_open_until:
                        seen.stays_open_until = until
                    if ready and not sessions:
                        seen.idle.append(container)
                elif ready and not sessions:
                    seen.surplus.append((container, container.empty_since + self.policy.scaledown_window))
                elif plain:
                    load += sessions
        # Of a plain Server those of an old deployment serve until one of the newest does.
        stay = self.policy.scaledown_window if plain and not any_ready else 0.0
        seen.surplus += [(container, container.empty_since + stay) for container in old]
        seen.demand = load + demand.queued
        seen.wanted = wanted_open(self.policy, load, demand.queued)
        return seen

    def scale_up(self, now: float, seen: Survey) -> list[Container]:
        """Spawn what is wanted and allowed."""
        count, _ = self._shortage(now, seen)
        return [self._spawn(now) for _ in range(count)]

    def scale_down(self, now: float, seen: Survey) -> list[Container]:
        """Containers whose ledgers should be asked to close: marked so, newest first, never below what is wanted."""
        chosen = [container for container, since in self._closable(now, seen) if since <= now]
        for container in chosen:
            container.close_asked = True
        return chosen

    def scale_deadline(self, now: float, seen: Survey) -> float:
        """When time alone asks for a start or a close. Later than `now` once `scale_up` and `scale_down` have run."""
        moments = [since for _, since in self._closable(now, seen)]
        return min(seen.stays_open_until, self._shortage(now, seen)[1], *moments)

    def due(self, now: float) -> list[Container]:
        """Those that time may move on now, and those that drain: they move on when their last session has ended."""
        return [
            container
            for container in self.containers.values()
            if container.stop_at <= now
            or container.state is ContainerState.DRAINING
            or (container.state is ContainerState.READY and min(container.dies_at, container.proven_at) <= now)
        ]

    def life_deadline(self) -> float:
        """When time alone moves some container on, or proves it: start-up time-out, age, end of draining, SIGKILL."""
        earliest = UNBOUNDED
        for container in self.containers.values():
            ready = container.state is ContainerState.READY
            moment = min(container.born + container.max_age, container.proven_at) if ready else container.stop_at
            if moment < earliest:
                earliest = moment
        return earliest

    def _shortage(self, now: float, seen: Survey) -> tuple[int, float]:
        """(containers to start now, when time alone would allow more)."""
        policy = self.policy
        lacking = seen.wanted - seen.open
        if lacking <= 0:
            self._short_since = UNBOUNDED
            return 0, UNBOUNDED
        self._short_since = min(self._short_since, now)
        allowed = min(
            lacking,
            policy.max_containers - seen.open - seen.closing,
            policy.total - len(self.containers),
        )
        if allowed <= 0:
            return 0, UNBOUNDED
        later = UNBOUNDED
        window_ends = self._short_since + policy.scaleup_window
        if now < window_ends:
            at_once = min(allowed, max(policy.min_containers - seen.open, 0 if seen.open else 1))
            if at_once < allowed:
                later = window_ends
            allowed = at_once
        if self._backoff.failures:
            if seen.starting:
                return 0, UNBOUNDED  # one attempt at a time; its end is an event
            if now < self._backoff.next_attempt:
                return 0, self._backoff.next_attempt
            allowed = min(allowed, 1)
        return allowed, later

    def _closable(self, now: float, seen: Survey) -> list[tuple[Container, float]]:
        """(container, when it may be asked to close) for those that scale-down would take, newest first."""
        window = self.policy.scaledown_window
        # Those whose time has come go first, newest first; among the others the one that is due next is the deadline.
        idle = seen.idle[::-1]
        idle.sort(key=lambda container: max(now, container.empty_since + window))
        spare = max(seen.open - seen.wanted, 0)
        return seen.surplus[::-1] + [(c, c.empty_since + window) for c in idle[:spare]]

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
            single_use=self.policy.single_use,
        )
        self.containers[container.id] = container
        self._emit(ContainerCreated(container.id, container.deployment, now, container.max_age))
        self._emit(SpawnContainer(container.id, container.deployment))
        return container

    def _doubt(self, now: float, container: Container, detail: str) -> None:
        """It ends unasked. So soon after it was ready that is a start that failed: a program that dies at its first work.

        Unless it is there for one session's own code and has had that: then the code has ended it, and the start was good.
        """
        if container.spent:
            self.prove(container)
        if container.proven_at != UNBOUNDED:
            container.proven_at = UNBOUNDED
            if container.deployment == self.deployment:
                self._backoff.failed(now, detail)

    def _move(self, container: Container, what: ContainerInput) -> None:
        before = container.state
        container.move(what)
        if container.state is not before:
            self._emit(ContainerMoved(container.id, container.state, container.reason))

"""A fleet on a test's clock: events by short names, and who was answered what. Checks nothing."""

from __future__ import annotations

from itertools import count
from typing import Any, TypeVar, get_args

from sticky import errors
from sticky.core.container import Container, ContainerState
from sticky.core.effects import Effect, EndSession, GrantStart, RefuseStart, SpawnContainer
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    Event,
    StartAbandoned,
    StartRequested,
    TimePassed,
)
from sticky.core.fleet import Fleet, Ids
from sticky.core.memory import Memory
from sticky.core.recall import recall
from sticky.core.records import Record
from sticky.core.session import Session
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, Policy, SessionId, WaiterId

T = TypeVar("T")


class Stage:
    """`now` starts at 1000 s. Containers are `ct-1`, `ct-2`..., sessions `sd-1`, `sd-2`..., jitter is none.

    `after`: an earlier daemon's stage, whose records this one takes up; it counts in thousands.
    """

    def __init__(self, *, prompt: bool = True, after: Stage | None = None, **limits: Any) -> None:
        self.now: float = 1000.0 if after is None else after.now
        first = 1 if after is None else 1001
        sessions, containers, self._waiters = count(first), count(first), count(first)
        ids = Ids(lambda: SessionId(f"sd-{next(sessions)}"), lambda: ContainerId(f"ct-{next(containers)}"), lambda: 0.5)
        self.fleet = Fleet(Policy(**limits), DeploymentId(f"dp-{first}"), ids, prompt=prompt)
        self.told: list[Effect | Record] = []
        if after is None:
            self.step(TimePassed())
        else:
            self.told += after.of(GrantStart)
            self.told += recall(self.fleet, self.now, Memory.of(after.records()))

    def step(self, event: Event) -> list[Effect | Record]:
        """Tell the fleet, at `now`."""
        effects = self.fleet.step(self.now, event)
        self.told += effects
        return effects

    def start(
        self,
        idle_timeout: float | None = None,
        key: str | None = None,
        caller: str = "ann",
        owner: str = "ann",
        name: str | None = None,
    ) -> WaiterId:
        """A client asks for a session."""
        waiter = WaiterId(next(self._waiters))
        self.step(StartRequested(waiter, Caller(caller), owner, idle_timeout, key, name))
        return waiter

    def leave(self, waiter: WaiterId) -> None:
        """A client leaves."""
        self.step(StartAbandoned(waiter))

    def ready(self, *containers: str) -> None:
        """These, or all that are starting, answer on their ports."""
        for container in containers or self.in_state(ContainerState.STARTING):
            self.step(ContainerReady(ContainerId(container)))

    def exit(self, container: str, detail: str = "exited") -> None:
        """A container's process is gone."""
        self.step(ContainerExited(ContainerId(container), detail))

    def wait(self, seconds: float) -> None:
        """Time passes, with one late step at its end."""
        self.now += seconds
        self.step(TimePassed())

    def begin(self, session: str) -> Session:
        """A request of a session that lives."""
        return self.fleet.begin(self.now, self.home(session), SessionId(session))

    def finish(self, session: Session) -> None:
        """A request is over."""
        self.fleet.finish(self.now, self.home(session.id), session)
        self.told += self.fleet.take()

    def terminate(self, session: str, grace: float | None = None) -> None:
        """A session is to end."""
        self.fleet.terminate(self.now, self.home(session), SessionId(session), grace)
        self.told += self.fleet.take()

    def release(self, name: str, owner: str = "ann", grace: float | None = None) -> None:
        """A name is to be forgotten."""
        self.fleet.release(self.now, owner, name, grace)
        self.told += self.fleet.take()

    # --- what came of it

    def of(self, kind: type[T]) -> list[T]:
        """All effects of this kind so far."""
        return [effect for effect in self.told if isinstance(effect, kind)]

    def records(self) -> list[Record]:
        """What a journal would hold."""
        return [effect for effect in self.told if isinstance(effect, get_args(Record))]

    def home(self, session: str) -> ContainerId:
        """The container of a session that was granted."""
        return next(grant.container for grant in self.of(GrantStart) if grant.session == session)

    def session_of(self, waiter: WaiterId) -> str | None:
        """What a client was granted."""
        return next((grant.session for grant in self.of(GrantStart) if waiter in grant.waiters), None)

    def refusal_of(self, waiter: WaiterId) -> errors.Refusal | None:
        """What a client was refused with."""
        return next((refusal.error for refusal in self.of(RefuseStart) if waiter in refusal.waiters), None)

    def end_of(self, session: str) -> tuple[EndReason, str | None] | None:
        """Why a session has ended."""
        return next(((end.reason, end.detail) for end in self.of(EndSession) if end.session == session), None)

    def spawned(self) -> int:
        """Containers started so far."""
        return len(self.of(SpawnContainer))

    def in_state(self, *states: ContainerState) -> list[ContainerId]:
        """Containers in these states, oldest first."""
        return [container.id for container in self.containers() if container.state in states]

    def containers(self) -> list[Container]:
        """All that are not gone."""
        return list(self.fleet.capacity.containers.values())

    def loads(self) -> dict[str, int]:
        """Sessions by container."""
        return {ledger.container: len(ledger) for ledger in self.fleet.ledgers}

"""What the books of the Hypothesis machine know of a session, a container, a start and a key. Knows no fleet."""

from __future__ import annotations

import attrs

from sticky.core.container import ContainerState
from sticky.core.session import Session
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId, StopCause, TurnId, WaiterId

FOREVER = float("inf")
OPEN = (ContainerState.STARTING, ContainerState.READY)


@attrs.define(eq=False)
class Stay:
    """A session."""

    container: ContainerId
    caller: Caller
    idle_timeout: float
    last: float
    open: list[Session] = attrs.field(factory=list)
    drains: EndReason | None = None
    cut_at: float = FOREVER

    @property
    def due(self) -> float:
        """When time ends it."""
        if self.drains is not None:
            return self.cut_at
        return FOREVER if self.open else self.last + self.idle_timeout


@attrs.define(eq=False)
class Box:
    """A container."""

    id: ContainerId
    order: int
    deployment: DeploymentId
    born: float
    max_age: float
    limit: int
    startup_timeout: float
    since: float  #: when it entered its state
    state: ContainerState = ContainerState.STARTING
    empty_since: float = FOREVER
    drained_by: float = FOREVER
    killed: bool = False
    requests: int = 0  #: in flight, of a plain Server
    causes: frozenset[StopCause] = frozenset()  #: why it may be asked to go, once it is STOPPING
    proven: bool = False  #: its start is known to have succeeded
    excess: int = 0  #: sessions that it has beyond its limit, since that was lowered

    @property
    def proves_at(self) -> float:
        """When having lived shows that its start has succeeded."""
        return FOREVER if self.proven or self.state is not ContainerState.READY else self.since + 30.0

    def fits(self, now: float, idle_timeout: float) -> bool:
        """Whether its age limit is farther away than this."""
        return now < self.born + self.max_age - idle_timeout


@attrs.define(eq=False)
class Ask:
    """A start that is not answered; several clients may wait for it."""

    rank: int
    caller: Caller
    owner: str
    idle_timeout: float
    key: str | None
    deadline: float
    waiters: set[WaiterId]
    name: str | None = None
    held_until: float = FOREVER


@attrs.frozen
class Bound:
    """What a key stands for after the answer."""

    session: SessionId
    idle_timeout: float
    expires_at: float


@attrs.define(eq=False)
class Place:
    """A request's place in the line of its session."""

    id: TurnId
    deadline: float
    held: bool

"""What must survive a restart, as facts in one order. Frozen; a journal keeps them, `Memory` folds them. Times are those of `now`."""

from __future__ import annotations

import attrs

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId


@attrs.frozen
class DeploymentMade:
    """This deployment is the newest."""

    deployment: DeploymentId


@attrs.frozen
class ContainerCreated:
    """A container is about to be spawned: intent comes before the deed, so that no orphan is unknown."""

    container: ContainerId
    deployment: DeploymentId
    born: float
    max_age: float


@attrs.frozen
class ContainerMoved:
    """It is READY, DRAINING, STOPPING or GONE now."""

    container: ContainerId
    state: ContainerState
    reason: EndReason  #: for its sessions, from DRAINING on


@attrs.frozen
class SessionCreated:
    """A ledger took a session."""

    session: SessionId
    container: ContainerId
    caller: Caller
    idle_timeout: float
    created_at: float


@attrs.frozen
class SessionDrains:
    """It takes no new requests."""

    session: SessionId
    container: ContainerId
    reason: EndReason


@attrs.frozen
class KeyBound:
    """An idempotency key stands for this session."""

    owner: str
    key: str = attrs.field(repr=False)
    caller: Caller
    session: SessionId
    container: ContainerId
    idle_timeout: float
    expires_at: float


@attrs.frozen
class NameBound:
    """A client's name stands for this session."""

    owner: str
    name: str = attrs.field(repr=False)
    session: SessionId
    container: ContainerId
    idle_timeout: float


@attrs.frozen
class NameExpired:
    """The session of this name is over; the name answers with the reason until it is released."""

    owner: str
    name: str = attrs.field(repr=False)
    reason: EndReason
    detail: str | None


@attrs.frozen
class NameReleased:
    """Nobody knows this name any more."""

    owner: str
    name: str = attrs.field(repr=False)


#: `EndSession` is an effect and a fact at once: the world is told, and the tombstone is set from it.
Record = (
    DeploymentMade
    | ContainerCreated
    | ContainerMoved
    | SessionCreated
    | SessionDrains
    | KeyBound
    | NameBound
    | NameExpired
    | NameReleased
    | EndSession
)

"""What a restart must find again: the fold of a journal's records into one value. Knows no clock and decides nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import attrs

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.names import Names
from sticky.core.records import (
    ContainerCreated,
    ContainerMoved,
    DeploymentMade,
    KeyBound,
    NameBound,
    NameExpired,
    NameReleased,
    Record,
    SessionCreated,
    SessionDrains,
)
from sticky.core.tombstones import CAPACITY
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId


@attrs.frozen
class RememberedContainer:
    """A container that is not GONE."""

    deployment: DeploymentId
    born: float
    max_age: float
    state: ContainerState = ContainerState.STARTING
    reason: EndReason = EndReason.CONTAINER_LOST


@attrs.frozen
class RememberedSession:
    """A session that has not ended; `drains`: why it takes no new requests, None while it does."""

    container: ContainerId
    caller: Caller
    idle_timeout: float
    created_at: float
    drains: EndReason | None = None


End = tuple[EndReason, str | None, float]  #: reason, detail, when it may be forgotten


def _ordered(ended: Mapping[SessionId, End]) -> OrderedDict[SessionId, End]:
    """Oldest first. A plain dict is slow where what was first is taken away again and again (`Tombstones`)."""
    return OrderedDict(ended)


@attrs.define(eq=True)
class Memory:
    """Containers, sessions, ended sessions, idempotency keys and names of one Server, as its journal tells them."""

    deployment: DeploymentId | None = None
    containers: dict[ContainerId, RememberedContainer] = attrs.field(factory=dict)
    sessions: dict[SessionId, RememberedSession] = attrs.field(factory=dict)
    ended: OrderedDict[SessionId, End] = attrs.field(factory=OrderedDict, converter=_ordered, eq=dict)
    keys: dict[SessionId, KeyBound] = attrs.field(factory=dict, repr=False)
    names: Names = attrs.field(factory=Names, repr=False)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Memory:
        """Fold records, in their order. Any prefix of a journal is a valid memory."""
        memory = cls()
        for record in records:
            memory.add(record)
        return memory

    def add(self, record: Record) -> None:
        """One more record."""
        match record:  # the most frequent ones first: a daemon that starts folds tens of thousands of them
            case SessionCreated():
                self.sessions[record.session] = RememberedSession(
                    record.container, record.caller, record.idle_timeout, record.created_at
                )
                self._forget(record.created_at)
            case EndSession():
                # A log that was shortened keeps the tombstone alone.
                self.sessions.pop(record.session, None)
                self.keys.pop(record.session, None)
                self.ended[record.session] = (record.reason, record.detail, record.forget_at)
                if len(self.ended) > CAPACITY:
                    self.ended.popitem(last=False)
            case KeyBound():
                self.keys[record.session] = record
            case NameBound() | NameExpired() | NameReleased():
                self.names.add(record)
            case SessionDrains():
                self.sessions[record.session] = attrs.evolve(self.sessions[record.session], drains=record.reason)
            case DeploymentMade():
                self.deployment = record.deployment
            case ContainerCreated():
                self.containers[record.container] = RememberedContainer(record.deployment, record.born, record.max_age)
            case ContainerMoved() if record.state is ContainerState.GONE:
                del self.containers[record.container]
            case ContainerMoved():
                self._moved(record)

    def _forget(self, now: float) -> None:
        """Drop those at the old end whose tokens have expired, as `Tombstones.forget` does: a fold knows the time by its records."""
        while self.ended:
            oldest = next(iter(self.ended))
            if self.ended[oldest][2] > now:
                return
            del self.ended[oldest]

    def _moved(self, record: ContainerMoved) -> None:
        old = self.containers[record.container]
        self.containers[record.container] = attrs.evolve(old, state=record.state, reason=record.reason)
        if record.state is ContainerState.DRAINING:
            for session, kept in self.sessions.items():
                if kept.container == record.container and kept.drains is None:
                    self.sessions[session] = attrs.evolve(kept, drains=record.reason)

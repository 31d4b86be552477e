"""Taking a fleet across a restart: what it must be able to find again, and a fresh fleet taking that up. Reads no journal."""

from __future__ import annotations

from sticky.core.container import ContainerState
from sticky.core.effects import Effect
from sticky.core.fleet import Fleet
from sticky.core.memory import Memory, RememberedContainer, RememberedSession
from sticky.core.records import NameExpired, Record
from sticky.core.session import Session
from sticky.core.tombstones import Tombstone
from sticky.core.values import EndReason


def memory_of(fleet: Fleet) -> Memory:
    """What a restart must find again, as it is now. Equal to `Memory.of` all records so far."""
    return Memory(
        fleet.capacity.deployment,
        {
            container.id: RememberedContainer(
                container.deployment, container.born, container.max_age, container.state, container.reason
            )
            for container in fleet.capacity.containers.values()
        },
        {
            session.id: RememberedSession(
                ledger.container, session.caller, session.idle_timeout, session.created_at, session.reason
            )
            for ledger in fleet.ledgers
            for session in ledger
        },
        {session: (stone.reason, stone.detail, stone.forget_at) for session, stone in fleet.ledgers.tombstones.items()},
        {bound.session: bound for bound in fleet.starts.bound()},
        fleet.names.copy(),
    )


def recall(fleet: Fleet, now: float, memory: Memory) -> list[Effect | Record]:
    """Let a fresh fleet take up what an earlier one remembered: nothing in flight, idle clocks restarted.

    Sessions that drained end: what they waited for died with the earlier daemon. Containers that were STARTING get their
    start-up time again. Whoever calls this reports containers that did not survive as exited afterwards.
    """
    if memory.deployment is not None:
        fleet.take()  # its birth made the deployment of its own known, which is not the newest after all
    fleet.capacity.recall(now, memory)
    for session, (reason, detail, forget_at) in memory.ended.items():
        fleet.ledgers.tombstones.add(session, Tombstone(reason, detail, forget_at))
    for container in fleet.capacity.containers.values():
        fleet.open_ledger(container)
    named = memory.names.live
    for session, kept in memory.sessions.items():
        ledger = fleet.ledgers[kept.container]
        name = named[session].name if session in named else None
        ledger.restore(now, Session(session, kept.caller, kept.idle_timeout, kept.created_at, now, name=name))
        fleet.post.count(kept.caller, 1)
        fleet.capacity.containers[kept.container].saw(now, ledger.version, len(ledger))
    for bound in memory.keys.values():
        fleet.starts.recall(bound)
    _recall_names(fleet, memory)
    for session, kept in memory.sessions.items():
        if kept.drains is not None:
            fleet.ledgers[kept.container].end_drained(session, kept.drains)
    for container in fleet.capacity.containers.values():
        if container.state in (ContainerState.DRAINING, ContainerState.STOPPING):
            fleet.ledgers.drain(container.id, container.reason)
    fleet.settle(now)
    return fleet.take()


def _recall_names(fleet: Fleet, memory: Memory) -> None:
    for names in memory.names.expired.values():
        for gone in names.values():
            fleet.names.add(gone)
    for session, bound in memory.names.live.items():
        fleet.names.add(bound)
        if session not in memory.sessions:
            # The log ends between the session's end and that of its name.
            reason, detail, _ = memory.ended.get(session, (EndReason.UNKNOWN, None, 0.0))
            expired = NameExpired(bound.owner, bound.name, reason, detail)
            fleet.names.add(expired)
            fleet.effects.append(expired)


def buried(memory: Memory, forget_at: float) -> Memory:
    """What is left of a memory when the machine was restarted: no container, and every session lost with its own.

    Points in time of another boot mean nothing in this one, so tombstones get a new end.
    """
    lost = dict.fromkeys(memory.sessions, (EndReason.CONTAINER_LOST, "killed", forget_at))
    ended = {session: (reason, detail, forget_at) for session, (reason, detail, _) in memory.ended.items()}
    names = memory.names.copy()
    for session, bound in memory.names.live.items():
        reason, detail, _ = ended.get(session, (EndReason.CONTAINER_LOST, "killed", 0.0))
        names.add(NameExpired(bound.owner, bound.name, reason, detail))
    return Memory(memory.deployment, {}, {}, ended | lost, {}, names)

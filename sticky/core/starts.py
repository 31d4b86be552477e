"""Starts that wait for a container: states, ranks, waiters, idempotency keys, limits. Knows no container and no ledger."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from enum import Enum

import attrs

from sticky import errors
from sticky.core.events import StartRequested
from sticky.core.records import KeyBound
from sticky.core.values import UNBOUNDED, Caller, ContainerId, Policy, SessionId, WaiterId

HELD_FOR = 5.0  #: seconds that a keyed or named start keeps its rank after its last client left
UNOWNED_KEY_FOR = 60.0  #: seconds that a key counts after the answer where everybody is one owner


class StartState(Enum):
    """Where a start stands."""

    WAITING = "waiting"  # in the queue, may be granted
    HELD = "held"  # its clients left; its rank is kept for a moment, it may not be granted
    PLACED = "placed"  # a ledger is asked; the queue clock stands still
    ANSWERED = "answered"  # its clients have credentials or a refusal
    DROPPED = "dropped"  # nobody waits for it any more


class StartInput(Enum):
    """What can move a start."""

    PLACE = "place"  # admission asks a ledger
    ADMIT = "admit"  # the ledger took the session
    BOUNCE = "bounce"  # the ledger did not, or died: back to the same rank
    HOLD = "hold"  # the last client of a keyed start left
    JOIN = "join"  # a client with the same key came
    REFUSE = "refuse"  # time ran out, or the Server stops
    DROP = "drop"  # the last client left for good


TRANSITIONS: dict[tuple[StartState, StartInput], StartState] = {
    (StartState.WAITING, StartInput.PLACE): StartState.PLACED,
    (StartState.WAITING, StartInput.JOIN): StartState.WAITING,
    (StartState.WAITING, StartInput.HOLD): StartState.HELD,
    (StartState.WAITING, StartInput.REFUSE): StartState.ANSWERED,
    (StartState.WAITING, StartInput.DROP): StartState.DROPPED,
    (StartState.HELD, StartInput.JOIN): StartState.WAITING,
    (StartState.HELD, StartInput.DROP): StartState.DROPPED,
    (StartState.PLACED, StartInput.ADMIT): StartState.ANSWERED,
    (StartState.PLACED, StartInput.JOIN): StartState.PLACED,
    (StartState.PLACED, StartInput.BOUNCE): StartState.WAITING,
}


@attrs.define(eq=False)
class Start:
    """One request for a session, by one client, or by several with one idempotency key.

    `rank` is its place in the order of arrival and never changes. `session` and `container` are set while PLACED.
    """

    rank: int
    caller: Caller
    owner: str
    idle_timeout: float
    key: str | None = attrs.field(repr=False)
    asked_at: float
    deadline: float
    waiters: set[WaiterId]
    state: StartState = StartState.WAITING
    held_until: float = UNBOUNDED
    session: SessionId | None = None
    container: ContainerId | None = None
    name: str | None = attrs.field(default=None, repr=False)

    def move(self, what: StartInput) -> None:
        """Take one row of the table. Raises `IllegalEvent`, having changed nothing, where there is none."""
        try:
            self.state = TRANSITIONS[self.state, what]
        except KeyError:
            raise errors.IllegalEvent(f"start in {self.state.value} cannot {what.value}") from None

    @property
    def due(self) -> float:
        """When time alone ends it, while it is in the queue."""
        return min(self.deadline, self.held_until)


@attrs.frozen
class KeyRecord:
    """What an idempotency key stands for: a start under way, or the session that it got."""

    idle_timeout: float
    start: Start
    expires_at: float = UNBOUNDED


class StartQueue:
    """The starts of one Server, in order of rank."""

    def __init__(self) -> None:
        self._queue: list[Start] = []  # WAITING and HELD, by rank
        self._by_waiter: dict[WaiterId, Start] = {}  # until answered or dropped
        self.placed: dict[SessionId, Start] = {}  #: by the session that a ledger is asked to take
        self._held = 0  # of the queue, those that are HELD
        self._ranks = 0
        self._queued_by = Counter[Caller]()
        self.keys: dict[tuple[str, str], KeyRecord] = {}
        self._key_of: dict[SessionId, tuple[str, str]] = {}
        self.named: dict[tuple[str, str], Start] = {}  #: by owner and name, until answered or dropped

    # --- coming and going

    def known(self, now: float, event: StartRequested, idle_timeout: float) -> Start | None:
        """The start that this name or idempotency key stands for, if any.

        Raises `KeyReused` when the key had other parameters; of a name the first use decides them.
        """
        if event.name is not None:
            return self.named.get((event.owner, event.name))
        if event.key is None:
            return None
        record = self.keys.get((event.owner, event.key))
        if record is None:
            return None
        if record.expires_at <= now:
            self._forget(event.owner, event.key)
            return None
        if record.idle_timeout != idle_timeout:
            raise errors.KeyReused
        return record.start

    def add(self, now: float, event: StartRequested, idle_timeout: float, policy: Policy, holds: int) -> Start:
        """Queue a start. Raises `QueueFull` or `TooManySessions`; `holds`: sessions the caller has already."""
        queued = self._queued_by[event.caller]
        if len(self._queue) >= policy.max_queue:
            raise errors.QueueFull(retry_after=policy.queue_timeout)
        if queued >= policy.queue_per_caller:
            raise errors.QueueFull("This caller has too many session starts waiting.", retry_after=policy.queue_timeout)
        if queued + holds >= policy.max_sessions_per_caller:
            raise errors.TooManySessions(retry_after=policy.queue_timeout)
        self._ranks += 1
        start = Start(
            self._ranks,
            event.caller,
            event.owner,
            idle_timeout,
            event.key if event.name is None else None,
            now,
            now + policy.queue_timeout,
            {event.waiter},
            name=event.name,
        )
        self._by_waiter[event.waiter] = start
        self._insert(start)
        if event.name is not None:
            self.named[event.owner, event.name] = start
        elif event.key is not None:
            self.keys[event.owner, event.key] = KeyRecord(idle_timeout, start)
        return start

    def join(self, start: Start, waiter: WaiterId) -> None:
        """One more client waits for this start."""
        self._held -= start.state is StartState.HELD
        start.move(StartInput.JOIN)
        start.held_until = UNBOUNDED
        start.waiters.add(waiter)
        self._by_waiter[waiter] = start

    def leave(self, now: float, waiter: WaiterId) -> None:
        """A client left. A no-op for one that was answered already."""
        start = self._by_waiter.pop(waiter, None)
        if start is None:
            return
        start.waiters.discard(waiter)
        if not start.waiters and start.state is StartState.WAITING:
            self._orphan(now, start)

    # --- decisions

    def place(self, start: Start, container: ContainerId, session: SessionId) -> None:
        """A ledger is asked to take it: off the queue, its clock stands still."""
        start.move(StartInput.PLACE)
        self._remove(start)
        start.container, start.session = container, session
        self.placed[session] = start

    def admitted(self, now: float, session: SessionId) -> Start | None:
        """The ledger took it. None when nobody asked for this session any more (its container was lost meanwhile)."""
        start = self.placed.pop(session, None)
        if start is None:
            return None
        start.move(StartInput.ADMIT)
        self._release_waiters(start)
        if start.name is not None:
            del self.named[start.owner, start.name]
        if start.key is not None:
            expires_at = UNBOUNDED if start.owner else now + UNOWNED_KEY_FOR
            self.bind(start, session, expires_at)
        return start

    def bounced(self, now: float, session: SessionId) -> None:
        """The ledger did not take it: back to its rank. A no-op when that happened already."""
        start = self.placed.pop(session, None)
        if start is None:
            return
        start.move(StartInput.BOUNCE)
        start.session = start.container = None
        self._insert(start)
        if not start.waiters:
            self._orphan(now, start)

    def expire(self, now: float) -> list[Start]:
        """Take out what has waited too long; the starts that somebody must be told of."""
        refused = []
        for start in [start for start in self._queue if start.due <= now]:
            if start.state is StartState.HELD:
                self._drop(start)
            else:
                self.refuse(start)
                refused.append(start)
        return refused

    def refuse(self, start: Start) -> None:
        """Answer it with an error; the caller of this does the telling."""
        start.move(StartInput.REFUSE)
        self._remove(start)
        self._release_waiters(start)
        self._forget_start(start)

    # --- keys

    def bind(self, start: Start, session: SessionId, expires_at: float) -> None:
        """From now on the start's key stands for this session."""
        assert start.key is not None
        self._forget(start.owner, start.key)
        self.keys[start.owner, start.key] = KeyRecord(start.idle_timeout, start, expires_at)
        self._key_of[session] = (start.owner, start.key)

    def recall(self, bound: KeyBound) -> None:
        """A key that an earlier daemon bound: the start is long answered."""
        self._ranks += 1
        start = Start(
            self._ranks,
            bound.caller,
            bound.owner,
            bound.idle_timeout,
            bound.key,
            0.0,
            0.0,
            set(),
            StartState.ANSWERED,
            session=bound.session,
            container=bound.container,
        )
        self.bind(start, bound.session, bound.expires_at)

    def bound(self) -> list[KeyBound]:
        """The keys that stand for sessions."""
        return [
            KeyBound(owner, key, start.caller, session, start.container, start.idle_timeout, record.expires_at)
            for session, (owner, key) in self._key_of.items()
            if (record := self.keys[owner, key]) and (start := record.start).container is not None
        ]

    def session_left(self, session: SessionId) -> None:
        """Its session ended: the key is free."""
        scope = self._key_of.pop(session, None)
        if scope is not None:
            self.keys.pop(scope, None)

    # --- reading

    def waits(self, waiter: WaiterId) -> bool:
        """Whether this client waits for an answer."""
        return waiter in self._by_waiter

    def waiting(self) -> Iterator[Start]:
        """Those that may be granted, in order of rank."""
        return (start for start in self._queue if start.state is StartState.WAITING)

    def next_deadline(self) -> float:
        """When the next start's time is up. Exact."""
        return min((start.due for start in self._queue), default=UNBOUNDED)

    def position(self, waiter: WaiterId) -> tuple[int, Start] | None:
        """(1 for the next one, its start); None once decided."""
        start = self._by_waiter.get(waiter)
        if start is None or start.state is not StartState.WAITING:
            return None
        ahead = bisect_left(self._queue, start.rank, key=lambda entry: entry.rank)
        # Everybody who waits may ask for this every second, so it must not walk the queue for each of them.
        held = sum(1 for entry in self._queue[:ahead] if entry.state is StartState.HELD) if self._held else 0
        return ahead - held + 1, start

    def outstanding(self, caller: Caller) -> int:
        """Starts of this caller that ledgers are being asked for."""
        return sum(start.caller == caller for start in self.placed.values())

    # --- inside

    def _orphan(self, now: float, start: Start) -> None:
        if start.key is None and start.name is None:
            self._drop(start)
        else:
            start.move(StartInput.HOLD)
            self._held += 1
            start.held_until = now + HELD_FOR

    def _drop(self, start: Start) -> None:
        self._held -= start.state is StartState.HELD
        start.move(StartInput.DROP)
        self._remove(start)
        self._forget_start(start)

    def _insert(self, start: Start) -> None:
        insort(self._queue, start, key=lambda entry: entry.rank)
        self._queued_by[start.caller] += 1

    def _remove(self, start: Start) -> None:
        self._queue.remove(start)
        self._queued_by[start.caller] -= 1
        if not self._queued_by[start.caller]:
            del self._queued_by[start.caller]

    def _release_waiters(self, start: Start) -> None:
        for waiter in start.waiters:
            del self._by_waiter[waiter]

    def _forget_start(self, start: Start) -> None:
        if start.name is not None:
            del self.named[start.owner, start.name]
        self._forget(start.owner, start.key)

    def _forget(self, owner: str, key: str | None) -> None:
        if key is not None:
            record = self.keys.pop((owner, key), None)
            if record is not None and record.start.session is not None:
                self._key_of.pop(record.start.session, None)

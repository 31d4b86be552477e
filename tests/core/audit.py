"""What must be true of a fleet after every step, by the books. Compares; computes nothing from the fleet itself."""

from __future__ import annotations

from collections import Counter

import attrs

from sticky.core.container import KILL_AFTER, ContainerState
from sticky.core.fleet import Fleet
from sticky.core.memory import Memory
from sticky.core.recall import memory_of
from sticky.core.values import WaiterId
from tests.core.books import Books
from tests.core.entries import FOREVER, Box


def audit(books: Books, fleet: Fleet) -> None:
    """Raises AssertionError where the fleet and the books disagree."""
    _sessions(books, fleet)
    _starts(books, fleet)
    if not fleet.mail:
        _hearsay(books, fleet)
    lasting = lasting_memory(books, books.memory)
    assert lasting == lasting_memory(books, memory_of(fleet)), (
        "replay of the records gives another state"
    )  # invariant 10
    later = _scaling(books)
    _deadline(books, fleet, later)


def lasting_memory(books: Books, memory: Memory) -> Memory:
    """A memory without what may be forgotten by now."""
    return Memory(
        memory.deployment,
        memory.containers,
        memory.sessions,
        {session: stone for session, stone in memory.ended.items() if stone[2] > books.now},
        {s: bound for s, bound in memory.keys.items() if bound.expires_at > books.now and s in memory.sessions},
        memory.names.copy(),
    )


def residue(fleet: Fleet) -> dict[str, object]:
    """What a fleet still holds, by name, tombstones apart; all empty once everything has ended."""
    starts = fleet.starts
    return {
        name: kept
        for name, kept in {
            "mail": fleet.mail,
            "queue": starts._queue,
            "waiters": starts._by_waiter,
            "placed": starts.placed,
            "held": starts._held,
            "queued by": starts._queued_by,
            "keys": starts.keys,
            "key of": starts._key_of,
            "named": starts.named,
            "live names": fleet.names.live,
            "names of sessions": fleet.names._sessions,
            "names that drain": fleet.names._drains,
            "held by": fleet.post._held_by,
            "turns": fleet.turns._turns,
            "lines": fleet.turns._lines,
            "containers": fleet.capacity.containers,
            "ledgers": list(fleet.ledgers),
            "deadline": fleet.next_deadline(0.0),
        }.items()
        if kept
    }


def _sessions(books: Books, fleet: Fleet) -> None:
    """Invariants 1, 4 and 5: nobody outlives a clock; `Books` shows that nobody dies early."""
    load = Counter(stay.container for stay in books.stays.values())
    for ledger in fleet.ledgers:
        box = books.boxes[ledger.container]
        box.excess = min(box.excess, max(0, load[ledger.container] - box.limit))
        assert load[ledger.container] <= box.limit + box.excess, "too many sessions"
        for session in ledger:
            stay = books.stays[session.id]
            assert stay.container == ledger.container and session.in_flight == len(stay.open)
        assert len(ledger) == load[ledger.container]
        if box.state in (ContainerState.STOPPING, ContainerState.STARTING):
            assert not load[ledger.container]
    for home, line in books.lines.items():
        assert home in books.stays, "a turn outlived its session"
        assert line[0].held and not any(place.held for place in line[1:]), "not one request at a time"
        assert len(line) == 1 or books.stays[home].drains is None, "somebody waits for a session that drains"
        assert all(place.deadline > books.now for place in line[1:]), "waited too long"
    assert {turn.id for turn in fleet.turns} == {place.id for line in books.lines.values() for place in line}
    for stay in books.stays.values():
        assert stay.due > books.now, "a session outlived its clock"
        assert stay.open or stay.drains is None, "a draining session outlived its last request"


def _hearsay(books: Books, fleet: Fleet) -> None:
    """Once all mail is delivered, admission knows what the ledgers know, in whatever order it heard."""
    for container in fleet.capacity.containers.values():
        assert container.load == books.load(books.boxes[container.id])
        asked = container.state is ContainerState.READY and container.close_asked
        assert not asked, "nobody will answer any more whether it may be closed"
    for caller in {stay.caller for stay in books.stays.values()} | set(fleet.post._held_by):
        held = sum(stay.caller == caller for stay in books.stays.values())
        assert fleet.post.held_by(caller) == held, "the sessions of a caller are miscounted"


def _starts(books: Books, fleet: Fleet) -> None:
    """Invariant 3, the second half, and what clients are told of their places."""
    assert not books.expected, "somebody was not answered"
    place = 0
    for ask in books.asks:
        told = {fleet.position(waiter) for waiter in ask.waiters}
        if books.is_placed(ask) or not ask.waiters:
            assert told <= {None}
            continue
        assert ask.deadline > books.now, "a start outlived its deadline"
        place += 1
        ((position, start),) = (answer for answer in told if answer is not None)
        assert (position, start.deadline) == (place, ask.deadline)
    for answered in list(books.answered)[-3:]:
        assert fleet.position(WaiterId(answered)) is None


def _scaling(books: Books) -> float:
    """Invariant 7 and the rules of scaling. Returns when time alone should start or close a container."""
    if books.stopping:
        assert not books.spawned
        return FOREVER
    policy, now, ours = books.policy, books.now, books.ours()
    open_now = books.open()
    stopping = sum(box.state is ContainerState.STOPPING for box in ours)
    wanted = books.wanted(books.refused)
    if all(box.fits(now, max(policy.longest_idle, books.need())) for box in ours):
        # One that drained had a successor before it came to be STOPPING: decision 19.
        closing = stopping - sum(box.state is ContainerState.STOPPING and box.drained_by != FOREVER for box in ours)
        books.excess = min(books.excess, max(0, len(open_now) + closing - policy.max_containers))
        assert len(open_now) + closing <= policy.max_containers + books.excess, "more containers than there may be"
    if books.spawned:
        books.refused = False
        assert len(books.boxes) <= policy.total, "more containers than all deployments may have"
        # One that is too old for the demand is not open, but may be closed as soon as it has a successor.
        assert len(open_now) + stopping - len(books.closed) <= policy.max_containers, "started one too many"
    if not books.prompt:
        return FOREVER
    if books.spawned:
        assert len(open_now) <= wanted, "a container was started that nobody needs"
        before = len(open_now) - len(books.spawned)
        if now < min(books.short_since, now) + policy.scaleup_window:
            at_once = max(policy.min_containers - before, int(not before))
            assert len(books.spawned) <= at_once, "started before demand had held"
        wanted = books.wanted(refused=False)
    return min(_start_time(books, open_now, stopping, wanted), _close_time(books, open_now, wanted))


def _start_time(books: Books, open_now: list[Box], stopping: int, wanted: int) -> float:
    policy, now = books.policy, books.now
    lacking = wanted - len(open_now)
    books.short_since = min(books.short_since, now) if lacking > 0 else FOREVER
    allowed = min(lacking, policy.max_containers - len(open_now) - stopping, policy.total - len(books.boxes))
    if allowed <= 0:
        return FOREVER
    later = books.short_since + policy.scaleup_window
    at_once = allowed if now >= later else max(policy.min_containers - len(open_now), int(not open_now))
    if books.failures:
        if any(box.state is ContainerState.STARTING for box in books.ours()):
            return FOREVER
        if now < books.next_attempt:
            return books.next_attempt
    assert at_once <= 0, "a container should have been started"
    books.seen["waited for the scale-up window"] += 1
    return later


def _close_time(books: Books, open_now: list[Box], wanted: int) -> float:
    window, now = books.policy.scaledown_window, books.now
    idle = [box for box in books.ours() if box.state is ContainerState.READY and not books.load(box)]
    old = [box for box in books.boxes.values() if box.deployment != books.newest and box.state is ContainerState.READY]
    # Of a plain Server they serve until a newer one does.
    plain = not books.policy.sessioned
    serving = plain and not any(box.state is ContainerState.READY for box in books.ours())
    stay = window if serving else 0.0
    assert all(books.load(box) or box.empty_since + stay > now for box in old), "an empty old container stays"
    for box, empty_since in books.closed:
        if box.deployment != books.newest:
            continue
        books.seen["scaled down"] += 1
        assert empty_since + window <= now, "closed before the scale-down window"
        if not box.fits(now, books.need()):
            continue
        assert len(open_now) >= wanted, "closed one that is wanted"
        newer = [other for other in idle if other in open_now and other.order > box.order]
        assert all(other.empty_since + window > now for other in newer), "not the newest was closed"
    spare = len(open_now) - wanted
    times = [box.empty_since + window for box in idle if box not in open_now or spare > 0]
    times += [box.empty_since + stay for box in old if not books.load(box)]
    assert min(times, default=FOREVER) > now, "a container should have been closed"
    return min(times, default=FOREVER)


def _deadline(books: Books, fleet: Fleet, later: float) -> None:
    """Invariant 8. With prompt mail the deadline is exact; with slow mail it also hangs on what admission has not heard."""
    due = [later]
    due += [stay.due for stay in books.stays.values()]
    due += [min(ask.deadline, ask.held_until) for ask in books.queue()]
    due += [place.deadline for line in books.lines.values() for place in line[1:]]
    for box in books.boxes.values():
        match box.state:
            case ContainerState.STARTING:
                due.append(box.since + box.startup_timeout)
            case ContainerState.READY:
                due.append(min(box.born + box.max_age, box.proves_at))
            case ContainerState.DRAINING:
                due.append(box.drained_by)
            case ContainerState.STOPPING if not box.killed:
                due.append(box.since + KILL_AFTER)
    if books.prompt and not books.stopping:
        due += [box.born + box.max_age - books.need() for box in books.open()]
    earliest = min(due)
    deadline = fleet.next_deadline(books.now)
    told = FOREVER if deadline is None else deadline
    assert books.now < told <= earliest, "the next deadline is too late, or over"
    assert not books.prompt or told == earliest, "a deadline that nobody waits for"
    assert fleet.wake_at <= told


def unsettled(fleet: Fleet) -> list[object]:
    """Everything that an illegal event must not change."""
    clocks = [attrs.astuple(session, recurse=False) for ledger in fleet.ledgers for session in ledger]
    containers = [attrs.astuple(container) for container in fleet.capacity.containers.values()]
    starts = [(start.rank, start.state, sorted(start.waiters)) for start in fleet.starts._queue]
    turns = [(turn.id, turn.state) for turn in fleet.turns]
    return [
        clocks,
        containers,
        starts,
        turns,
        list(fleet.mail),
        fleet.backoff.failures,
        list(fleet.effects),
        fleet.wake_at,
    ]

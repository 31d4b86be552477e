"""The books of the Hypothesis machine: what a fleet must do, computed from events and effects alone.

Never looks into a fleet. Each effect is checked as it is entered: who ends why, who is granted where, what is started and
stopped when. What must be true after a step is in `tests.core.audit`.
"""

from __future__ import annotations

from math import ceil
from typing import get_args

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.effects import (
    CutRequests,
    Effect,
    EndSession,
    GiveTurn,
    GrantStart,
    KillContainer,
    RefuseStart,
    RefuseTurn,
    SpawnContainer,
    TerminateContainer,
)
from sticky.core.events import (
    ContainerExited,
    ContainerUnhealthy,
    Deployed,
    Event,
    PolicyChanged,
    StartRequested,
    StopRequested,
    TimePassed,
)
from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated, ContainerMoved, Record, SessionCreated, SessionDrains
from sticky.core.values import ContainerId, EndReason, Placement, Policy, SessionId, WaiterId
from tests.core.container_books import ContainerBooks
from tests.core.entries import FOREVER, OPEN, Ask, Bound, Box, Stay


class Books(ContainerBooks):
    """Enter events with `event`, effects with `enter`. `prompt`: mail is delivered within the step."""

    def __init__(self, policy: Policy, jitter: float, prompt: bool) -> None:
        super().__init__(policy, jitter)
        self.prompt = prompt
        self.memory = Memory()
        self.homes: dict[SessionId, ContainerId] = {}
        self.granted: set[SessionId] = set()  #: those that somebody may have a token for
        self.asks: list[Ask] = []
        self.placed: dict[SessionId, int] = {}  #: ranks of asks that a ledger is asked to take (slow mail only)
        self.bound: dict[tuple[str, str], Bound] = {}
        self.expected: dict[WaiterId, type[errors.Refusal] | Bound] = {}
        self.answered: set[WaiterId] = set()
        self.short_since = FOREVER
        self.ranks = 0

    # --- what is asked for

    def event(self, event: Event) -> None:
        """This is about to be told to the fleet, at `now`; all deadlines up to now are through."""
        self.cause = event
        match event:
            case Deployed():
                self.newest, self.policy = event.deployment, event.policy
                self.failures, self.next_attempt = 0, 0.0
                self.limit_containers()
            case PolicyChanged():
                self.policy = event.policy
                self.limit_containers()
            case StopRequested():
                self.stopping = True

    def start(self, event: StartRequested, holds: int) -> None:
        """A client asks. `holds`: sessions of its caller, as far as admission can know."""
        self.cause = event
        policy, scope = self.policy, (event.owner, event.key or "")
        idle_timeout = policy.idle_timeout if event.idle_timeout is None else event.idle_timeout
        name, named = event.name, (event.owner, event.name or "")
        mine = [ask for ask in self.queue() if ask.caller == event.caller]
        asked = sum(ask.caller == event.caller for ask in self.asks if self.is_placed(ask))
        key = None if name is not None else event.key
        bound = self.key(scope)
        twin = next((a for a in self.asks if key is not None and (a.owner, a.key) == scope), None)
        twin = next((a for a in self.asks if name is not None and (a.owner, a.name) == named), twin)
        same = bound or twin
        answer: type[errors.Refusal] | Bound | None = None
        if not 1 <= idle_timeout <= policy.longest_idle:
            answer = errors.BadIdleTimeout
        elif self.stopping:
            answer = errors.ShuttingDown
        elif name is not None and named in self.names:
            self.seen["found by name"] += not self.name_expired(named)
            answer = errors.SessionExpired if self.name_expired(named) else self.names[named]
        elif key is not None and same is not None and same.idle_timeout != idle_timeout:
            answer = errors.KeyReused
        elif key is not None and bound is not None:
            answer = bound
        elif self.hopeless() and (twin is None or not self.is_placed(twin)):
            answer = errors.ContainersFailing
        elif twin is not None:
            self.seen["joined a held start" if twin.held_until != FOREVER else "joined"] += 1
            twin.waiters.add(event.waiter)
            twin.held_until = FOREVER
            return
        elif len(self.queue()) >= policy.max_queue or len(mine) >= (policy.max_queue_per_caller or policy.max_queue):
            answer = errors.QueueFull
        elif len(mine) + holds + asked >= policy.max_sessions_per_caller:
            answer = errors.TooManySessions
        if answer is not None:
            self.expected[event.waiter] = answer
            return
        self.ranks += 1
        deadline = self.now + policy.queue_timeout
        self.asks.append(Ask(self.ranks, event.caller, event.owner, idle_timeout, key, deadline, {event.waiter}, name))

    def leave(self, waiter: WaiterId) -> None:
        """A client leaves."""
        self.cause = TimePassed()
        for ask in [ask for ask in self.asks if waiter in ask.waiters]:
            ask.waiters.discard(waiter)
            self.orphan(ask)

    def orphan(self, ask: Ask) -> None:
        """Nobody may be waiting for it any more."""
        if ask.waiters or self.is_placed(ask):
            return
        if ask.held_until == FOREVER:
            ask.held_until = self.now + 5.0
        if (ask.key is None and ask.name is None) or min(ask.held_until, ask.deadline) <= self.now:
            self.asks.remove(ask)

    # --- what follows from it

    def is_placed(self, ask: Ask) -> bool:
        """Whether a ledger is asked to take it, so that its queue clock stands still."""
        return bool(self.placed) and ask.rank in self.placed.values()

    def queue(self) -> list[Ask]:
        """Those that take a place in the queue."""
        return [ask for ask in self.asks if not self.is_placed(ask)]

    def waiting(self) -> list[Ask]:
        """Those that may be granted."""
        return [ask for ask in self.queue() if ask.waiters]

    def waiters(self) -> list[WaiterId]:
        """Clients that wait."""
        return sorted(waiter for ask in self.asks for waiter in ask.waiters)

    def key(self, scope: tuple[str, str]) -> Bound | None:
        """The session that a key stands for now."""
        bound = self.bound.get(scope)
        if bound is None or bound.expires_at <= self.now:
            return None
        return bound if bound.session in self.stays or bound.session in self.unheard else None

    def tombstone_stands(self, container: ContainerId) -> bool:
        """Whether the ended sessions of this container must be remembered."""
        return self.tokens_end[container] > self.now

    def need(self) -> float:
        """The longest idle timeout that open containers must be able to take."""
        return max((ask.idle_timeout for ask in self.waiting()), default=self.policy.idle_timeout)

    def open(self) -> list[Box]:
        """The open containers of semantics.md (Scaling)."""
        return [box for box in self.ours() if box.state in OPEN and box.fits(self.now, self.need())]

    def wanted(self, refused: bool) -> int:
        """How many containers should be open."""
        here = self.open()
        if not self.policy.sessioned:  # whatever is ready or starts serves whoever comes
            ours = [box for box in self.ours() if box.state is ContainerState.STARTING]
            here = ours + [box for box in self.boxes.values() if box.state is ContainerState.READY]
        demand = sum(map(self.load, here)) + (len(self.waiting()) or int(refused))
        target = self.policy.target_concurrency or self.policy.max_concurrency
        wanted = ceil(demand / target) + (self.policy.buffer_containers if demand else 0)
        return min(max(wanted, self.policy.min_containers), self.policy.max_containers)

    # --- what the fleet does

    def enter(self, effects: list[Effect | Record], placed: dict[SessionId, int]) -> None:
        """Check and write down what one step has brought, all of it at `now`. `placed`: as it is after the step."""
        self.spawned, self.closed = [], []
        for box in self.boxes.values():
            if box.proves_at <= self.now:
                self.prove(box)
                self.seen["proved by living"] += 1
        for effect in effects:
            self.seen[type(effect).__name__] += 1
            if isinstance(effect, get_args(Record)):
                self.memory.add(effect)
            match effect:
                case GrantStart():
                    self._granted(effect)
                case RefuseStart():
                    self._refused(effect)
                case SpawnContainer():
                    assert self.boxes[effect.container].state is ContainerState.STARTING and not self.stopping
                case TerminateContainer():
                    box = self.boxes[effect.container]
                    assert box.state is ContainerState.STOPPING
                    assert effect.cause in box.causes, f"{effect.cause} is not why, but one of {box.causes}"
                    self.seen[f"stopped: {effect.cause.value}"] += 1
                case KillContainer():
                    box = self.boxes[effect.container]
                    assert box.state is ContainerState.STOPPING and not box.killed
                    assert box.since + 30 <= self.now or self._causes(ContainerUnhealthy, box)
                    box.killed = True
                case EndSession():
                    self._ended(effect)
                    self.end_line(effect.session)
                case GiveTurn():
                    self.gave(effect)
                case RefuseTurn():
                    self.refused_turn(effect)
                case CutRequests():
                    self._requests_cut(effect)
                case SessionCreated():
                    self._created(effect)
                case SessionDrains():
                    assert self.stays[effect.session].drains is effect.reason
                case ContainerCreated():
                    self._born(effect)
                case ContainerMoved():
                    self._moved(effect)
        self.placed = placed
        for ask in list(self.asks):
            self.orphan(ask)
        for box in self.boxes.values():
            if box.state is not ContainerState.READY or self.load(box):
                box.empty_since = FOREVER
            else:
                box.empty_since = min(box.empty_since, self.now)

    def _granted(self, effect: GrantStart) -> None:
        if not effect.created:
            (waiter,) = effect.waiters
            bound = self.expected.pop(waiter)
            assert isinstance(bound, Bound), "a session was found for somebody who brought no key"
            assert (bound.session, bound.idle_timeout) == (effect.session, effect.idle_timeout)
            self.seen["found by key"] += bound not in self.names.values()
            self._answer(waiter)
            return
        assert self.homes[effect.session] == effect.container
        self.granted.add(effect.session)
        rank = self.placed.pop(effect.session, None)
        ask = next(
            ask for ask in self.asks if (ask.waiters == set(effect.waiters) if rank is None else ask.rank == rank)
        )
        assert ask.idle_timeout == effect.idle_timeout and ask.waiters == set(effect.waiters)
        self.asks.remove(ask)
        if self.prompt:
            # Invariant 3: whoever came before and still waits could not have been put there.
            box = self.boxes[effect.container]
            for other in self.waiting():
                assert other.rank > ask.rank or not box.fits(self.now, other.idle_timeout), "overtaken"
                self.seen["passed over"] += other.rank < ask.rank
        if ask.name is not None and effect.session not in self.ended:
            self.names[ask.owner, ask.name] = Bound(effect.session, ask.idle_timeout, FOREVER)
        if ask.key is not None and effect.session not in self.ended:
            expires_at = FOREVER if ask.owner else self.now + 60.0
            self.bound[ask.owner, ask.key] = Bound(effect.session, ask.idle_timeout, expires_at)
        for waiter in effect.waiters:
            self._answer(waiter)

    def _refused(self, effect: RefuseStart) -> None:
        kind = type(effect.error)
        self.seen[kind.__name__] += 1
        if kind is errors.ContainersFailing:
            assert self.hopeless()
            assert isinstance(effect.error, errors.ContainersFailing) and effect.error.cause == self.failed_by
            assert effect.error.retry_after == max(1.0, self.next_attempt - self.now)
            self.refused = True
        if effect.waiters[0] in self.expected:
            (waiter,) = effect.waiters
            assert self.expected.pop(waiter) is kind
            if isinstance(effect.error, errors.SessionExpired):
                self.told_why(effect.error)
            self._answer(waiter)
            return
        (ask,) = (ask for ask in self.asks if effect.waiters[0] in ask.waiters)
        assert set(effect.waiters) == ask.waiters
        if kind is errors.QueueTimedOut:
            assert ask.deadline <= self.now, "timed out early"
            nothing = self.failures and not any(box.state is ContainerState.READY for box in self.ours())
            assert isinstance(effect.error, errors.QueueTimedOut)
            assert effect.error.cause == (self.failed_by if nothing else "")
        elif kind is errors.BadIdleTimeout:
            assert ask.idle_timeout >= self.policy.container_max_age
        elif kind is errors.ShuttingDown:
            assert isinstance(self.cause, StopRequested)
        else:
            assert kind is errors.ContainersFailing, f"refused for no reason: {kind}"
        self.asks.remove(ask)
        for waiter in effect.waiters:
            self._answer(waiter)

    def _answer(self, waiter: WaiterId) -> None:
        assert waiter not in self.answered, "answered twice"
        self.answered.add(waiter)

    def _created(self, effect: SessionCreated) -> None:
        assert effect.session not in self.homes, "a session was created twice"  # invariant 2
        box = self.boxes[effect.container]
        assert box.state is ContainerState.READY and self.load(box) < box.limit  # invariant 1
        assert effect.created_at == self.now
        if self.prompt:
            assert box is self._best(effect.idle_timeout), "another container was the right one"
        if effect.session.startswith("sd-x"):
            self.granted.add(effect.session)  # by another admitter
        self.homes[effect.session] = effect.container
        self.stays[effect.session] = Stay(effect.container, effect.caller, effect.idle_timeout, self.now)

    def _best(self, idle_timeout: float) -> Box | None:
        ready = [
            (box, self.load(box))
            for box in self.ours()
            if box.state is ContainerState.READY and box.fits(self.now, idle_timeout)
        ]
        able = [(box, load) for box, load in ready if load < box.limit]
        target = self.policy.target_concurrency or self.policy.max_concurrency
        if self.policy.placement is Placement.SPREAD:
            # Those that were decided on in this step and are not granted yet have left the queue.
            placed = len(set(self.stays) - self.granted)
            demand = sum(load for _, load in ready) + len(self.waiting()) - placed
            enough = max(ceil(demand / target), self.policy.min_containers)
            fuller = {
                box.id: sum((-load, box.order) > (-more, other.order) for other, more in ready) for box, load in ready
            }
            self.seen["SPREAD let one run empty"] += any(fuller[box.id] >= enough for box, _ in able)
            able = [(box, load) for box, load in able if fuller[box.id] < enough]
        below = [(box, load) for box, load in able if load < target]
        chosen = below or able
        self.seen[f"{self.policy.placement.name} had a choice"] += len({load for _, load in chosen}) > 1
        if self.policy.placement is Placement.PACK and below:
            return max(below, key=lambda pair: (pair[1], -pair[0].order))[0]
        return min(chosen, key=lambda pair: (pair[1], pair[0].order), default=(None, 0))[0]

    def _ended(self, effect: EndSession) -> None:
        stay = self.stays.pop(effect.session)
        box = self.boxes[stay.container]
        self.ended[effect.session] = (effect.reason, effect.detail)
        exit = self.cause if isinstance(self.cause, ContainerExited) else None
        lost = self._causes(ContainerUnhealthy, box)
        died = (exit is not None and exit.container == stay.container) or lost
        detail = exit.detail if exit is not None and effect.reason is EndReason.CONTAINER_LOST else None
        detail = "unhealthy" if lost and effect.reason is EndReason.CONTAINER_LOST else detail
        assert effect.detail == detail
        assert effect.forget_at == self.tokens_end[stay.container]
        if self.prompt and not died:
            self.prove(box)
        if stay.drains is not None:
            assert effect.reason is stay.drains, "a draining session changed its reason"
            cut = stay.cut_at <= self.now or box.state is ContainerState.STOPPING or died
            assert cut or not stay.open, "it was cut before its time"
            self.seen["cut with a request in flight"] += bool(stay.open)
        elif effect.reason is EndReason.IDLE_TIMEOUT:  # invariant 4
            assert not stay.open, "expired with a request in flight"
            assert stay.last + stay.idle_timeout <= self.now, "expired early"
        else:
            assert died and effect.reason is EndReason.CONTAINER_LOST, "ended without a cause"

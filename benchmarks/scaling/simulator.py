"""Drives the core's `Fleet` with a trace under a simulated clock and keeps books of its own. Knows no oracle, judges nothing.

The books come from effects alone. They raise `BrokenPromise` on what must never happen: a container with more sessions
than `max_concurrency`, one with a session that is stopped to scale down, a start that is answered twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from random import Random

import attrs

from benchmarks.scaling.traces import Traffic
from sticky.core.effects import EndSession, GrantStart, KillContainer, RefuseStart, SpawnContainer, TerminateContainer
from sticky.core.events import ContainerExited, ContainerReady, Event, StartRequested, StopRequested, TimePassed
from sticky.core.fleet import Fleet, Ids
from sticky.core.session import Session
from sticky.core.values import UNBOUNDED, Caller, ContainerId, DeploymentId, Policy, SessionId, WaiterId

STOP_TIME = 0.5  #: seconds from SIGTERM to the exit of a container


class BrokenPromise(AssertionError):
    """The core did what it must never do."""


@attrs.frozen
class Outcome:
    """What became of a trace. Times are seconds, those of containers within the trace's window.

    `waits` and `served` go together, in order of arrival.
    """

    container_time: float  #: from spawn to exit, over all containers
    starting_time: float  #: of that, until ready
    empty_time: float  #: of that, ready but without a session
    stopping_time: float  #: of that, from SIGTERM to exit
    served: tuple[int, ...]  #: visits that got a session
    waits: tuple[float, ...]  #: from request to grant
    refusals: dict[str, int]  #: by code
    cut: int  #: sessions that ended while they were in use
    starts: int
    stops: int
    peak: int  #: containers at once, those that stop included
    fullest: int  #: sessions at once on one container
    ends: float  #: when the last container was gone

    def wait(self, share: float) -> float:
        """The queue time that this share of the granted starts did not exceed (nearest rank)."""
        if not self.waits:
            return 0.0
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

    @property
    def queued(self) -> int:
        """Granted starts that had to wait at all."""
        return sum(wait > 0.0 for wait in self.waits)


@attrs.define(eq=False)
class Box:
    """A container as the books have it."""

    spawned: float
    ready: float = UNBOUNDED
    asked_to_stop: float = UNBOUNDED
    empty_since: float = UNBOUNDED
    sessions: int = 0


@attrs.define(eq=False)
class Stay:
    """A session as the books have it."""

    visit: int
    container: ContainerId
    in_use: Session | None


class Simulation:
    """One run. `Simulation(traffic, policy).run()` may be called once; same arguments, same outcome."""

    def __init__(self, traffic: Traffic, policy: Policy) -> None:
        self.traffic = traffic
        self.now = 0.0
        self._made = 0
        self._sessions_made = 0
        self._start_times = traffic.start_times()
        ids = Ids(self._session_id, self._container_id, Random(traffic.seed).random)
        self._policy = attrs.evolve(policy, max_concurrency=traffic.max_concurrency, idle_timeout=traffic.idle_timeout)
        self._fleet = Fleet(self._policy, DeploymentId("d1"), ids)
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._boxes: dict[ContainerId, Box] = {}
        self._stays: dict[SessionId, Stay] = {}
        self._answered: set[int] = set()
        self._served: list[tuple[int, float]] = []
        self._refusals = Counter[str]()
        self._starting_time = self._empty_time = self._stopping_time = 0.0
        self._container_time = 0.0
        self._cut = self._stops = self._peak = self._fullest = 0

    def run(self) -> Outcome:
        """Play the trace to the end of its last session; the Server is stopped when only time is left to pass."""
        for number, visit in enumerate(self.traffic.visits):
            self._at(visit.arrives, partial(self._arrive, number))
        self._step(TimePassed())
        self._play()
        self._step(StopRequested())
        self._play()
        assert not self._boxes and not self._stays, "something is left over"
        self._served.sort()
        return Outcome(
            container_time=self._container_time,
            starting_time=self._starting_time,
            empty_time=self._empty_time,
            stopping_time=self._stopping_time,
            served=tuple(number for number, _ in self._served),
            waits=tuple(wait for _, wait in self._served),
            refusals=dict(self._refusals),
            cut=self._cut,
            starts=self._made,
            stops=self._stops,
            peak=self._peak,
            fullest=self._fullest,
            ends=self.now,
        )

    # --- time

    def _at(self, moment: float, what: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._todo, (moment, self._order, what))

    def _play(self) -> None:
        """Until nothing more will happen but the ageing of containers that policy keeps."""
        while True:
            wake_at = self._fleet.wake_at
            if self._todo and self._todo[0][0] <= wake_at:
                self.now, _, what = heappop(self._todo)
                what()
            elif wake_at == UNBOUNDED or self._only_age_is_left():
                return
            else:
                self.now = wake_at
                self._step(TimePassed())

    def _only_age_is_left(self) -> bool:
        return not self._todo and not self._stays and len(self._boxes) <= self._policy.min_containers

    def _counted(self, since: float, until: float) -> float:
        """How much of this time lies within the window."""
        return max(0.0, min(until, self.traffic.window) - since)

    def _step(self, event: Event) -> None:
        self._obey(self._fleet.step(self.now, event))

    # --- what clients do

    def _arrive(self, number: int) -> None:
        self._step(StartRequested(WaiterId(number), Caller(f"caller-{number}"), f"owner-{number}"))

    def _leave(self, identity: SessionId) -> None:
        stay = self._stays.get(identity)
        if stay is None or stay.in_use is None:
            return  # it was cut before
        session, stay.in_use = stay.in_use, None
        self._fleet.finish(self.now, stay.container, session)
        if self.traffic.visits[stay.visit].releases:
            self._fleet.terminate(self.now, stay.container, identity, None)
        self._obey(self._fleet.take())

    # --- what containers do

    def _get_ready(self, identity: ContainerId) -> None:
        box = self._boxes.get(identity)
        if box is None:
            return  # it was stopped before
        box.ready = min(self.now, box.asked_to_stop)
        if box.asked_to_stop == UNBOUNDED:
            box.empty_since = self.now
        self._step(ContainerReady(identity))

    def _exit(self, identity: ContainerId) -> None:
        box = self._boxes.pop(identity)
        self._container_time += self._counted(box.spawned, self.now)
        self._starting_time += self._counted(box.spawned, min(box.ready, box.asked_to_stop))
        self._stopping_time += self._counted(box.asked_to_stop, self.now)
        self._step(ContainerExited(identity))

    # --- what the fleet asks for

    def _obey(self, effects: Iterable[object]) -> None:
        for effect in effects:
            match effect:
                case SpawnContainer():
                    self._spawn(effect.container)
                case TerminateContainer():
                    self._stop(effect.container)
                case GrantStart():
                    self._grant(effect)
                case RefuseStart():
                    self._refuse(effect)
                case EndSession():
                    self._end(effect)
                case KillContainer():
                    raise BrokenPromise("a container that exits in time was killed")

    def _spawn(self, identity: ContainerId) -> None:
        self._boxes[identity] = Box(self.now)
        self._peak = max(self._peak, len(self._boxes))
        self._at(self.now + next(self._start_times), partial(self._get_ready, identity))

    def _stop(self, identity: ContainerId) -> None:
        box = self._boxes[identity]
        if box.sessions and self.now < box.spawned + self._policy.container_max_age:
            raise BrokenPromise(f"{identity} was stopped with {box.sessions} sessions")
        self._stops += 1
        box.asked_to_stop = self.now
        if box.empty_since != UNBOUNDED:
            self._empty_time += self._counted(box.empty_since, self.now)
        self._at(self.now + STOP_TIME, partial(self._exit, identity))

    def _grant(self, effect: GrantStart) -> None:
        (number,) = effect.waiters
        self._answer(number)
        visit = self.traffic.visits[number]
        box = self._boxes[effect.container]
        if box.ready > self.now or box.asked_to_stop != UNBOUNDED:
            raise BrokenPromise(f"{effect.container} got a session while it was not ready")
        if not box.sessions:
            self._empty_time += self._counted(box.empty_since, self.now)
            box.empty_since = UNBOUNDED
        box.sessions += 1
        self._fullest = max(self._fullest, box.sessions)
        if box.sessions > self.traffic.max_concurrency:
            raise BrokenPromise(f"{effect.container} has {box.sessions} sessions")
        self._served.append((number, self.now - visit.arrives))
        session = self._fleet.begin(self.now, effect.container, effect.session)
        self._stays[effect.session] = Stay(number, effect.container, session)
        self._at(self.now + visit.stay, partial(self._leave, effect.session))

    def _refuse(self, effect: RefuseStart) -> None:
        (number,) = effect.waiters
        self._answer(number)
        self._refusals[effect.error.code] += 1

    def _answer(self, number: int) -> None:
        if number in self._answered:
            raise BrokenPromise(f"visit {number} was answered twice")
        self._answered.add(number)

    def _end(self, effect: EndSession) -> None:
        stay = self._stays.pop(effect.session)
        self._cut += stay.in_use is not None
        box = self._boxes[stay.container]
        box.sessions -= 1
        if not box.sessions and box.asked_to_stop == UNBOUNDED:
            box.empty_since = self.now

    # --- names

    def _container_id(self) -> ContainerId:
        self._made += 1
        return ContainerId(f"ct-{self._made}")

    def _session_id(self) -> SessionId:
        self._sessions_made += 1
        return SessionId(f"sd-{self._sessions_made}")

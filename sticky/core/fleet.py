"""One Server's ledgers, containers and start queue under one clock: `step(now, event)` gives effects. No I/O, no threads.

Rules live next door (session, ledger, starts, admission, scaling, container); this file says in which order they apply:
all deadlines up to `now`, in order of time, then the event, then whatever became possible (grant, scale, stop).

Admission never touches a ledger. It asks by mail (`Admit`, `Close`) and hears by mail. In one process the mail is delivered
within the step; `prompt=False` leaves it in `mail` for a test, or a network, to deliver late and out of order.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sticky import errors
from sticky.core.backoff import Backoff
from sticky.core.capacity import Capacity, Survey
from sticky.core.container import Container, ContainerState, stop_cause
from sticky.core.effects import Close, CutRequests, Effect
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    ContainerStopRequested,
    ContainerUnhealthy,
    Deployed,
    Event,
    PolicyChanged,
    StartAbandoned,
    StartRequested,
    StopRequested,
    TimePassed,
)
from sticky.core.mail import Mail
from sticky.core.plain_calls import PlainCalls
from sticky.core.records import Record
from sticky.core.session import Session
from sticky.core.session_calls import SessionCalls
from sticky.core.start_calls import StartCalls
from sticky.core.starts import Start, StartQueue
from sticky.core.turns import Turns
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, EndReason, Policy, SessionId, StopCause, WaiterId

TOKEN_LEEWAY = 300.0  #: seconds that a token may outlive its container's age limit (semantics.md, Time and steps)


@attrs.frozen
class Ids:
    """Where unpredictable things come from; pure code asks for them by name."""

    session: Callable[[], SessionId]
    container: Callable[[], ContainerId]
    uniform: Callable[[], float]  #: numbers in [0, 1), for jitter


class Fleet(StartCalls, SessionCalls, PlainCalls):
    """Everything about one Server that is decided rather than done.

    After each call the effects wait in `effects` until `take()` (what `step` returns), and `wake_at` says when to call
    again at the latest. Not thread-safe, never calls back.
    """

    def __init__(self, policy: Policy, deployment: DeploymentId, ids: Ids, *, prompt: bool = True) -> None:
        self.effects: list[Effect | Record] = []
        self.stopping: EndReason | None = None
        self.wake_at = UNBOUNDED
        self.starts = StartQueue()
        self.backoff = Backoff(ids.uniform)
        self.capacity = Capacity(policy, deployment, self.backoff, ids.container, self.effects.append)
        self.post = Mail(self.starts, self.capacity, self.effects.append)
        self.mail = self.post.letters
        self.ledgers = self.post.ledgers
        self.names = self.post.names
        self.turns = Turns()
        self._new_session = ids.session
        self._prompt = prompt
        self._refused = False  # starts were refused since the last attempt: demand of 1

    # --- the two ways in

    def step(self, now: float, event: Event) -> list[Effect | Record]:
        """Apply all deadlines up to `now`, then the event. Raises `IllegalEvent`, having applied only the deadlines."""
        self._catch_up(now)
        match event:
            case StartRequested():
                self._start_requested(now, event)
            case StartAbandoned():
                self.starts.leave(now, event.waiter)
            case ContainerReady():
                self._container_ready(now, event)
            case ContainerExited():
                self._container_exited(now, event)
            case ContainerStopRequested():
                self._container_stop_requested(now, event)
            case ContainerUnhealthy():
                self._container_unhealthy(now, event)
            case Deployed():
                self._deployed(now, event)
            case PolicyChanged():
                self.capacity.policy = event.policy
                self._limit_newest()
            case StopRequested():
                self._stop(now, event.reason)
            case TimePassed():
                pass
        self.settle(now)
        return self.take()

    def deliver(self, now: float, index: int) -> list[Effect | Record]:
        """Deliver one piece of mail (only with `prompt=False`)."""
        self._catch_up(now)
        self._hand_over(now, index)
        self.settle(now)
        return self.take()

    def take(self) -> list[Effect | Record]:
        """What is to be done since the last call, in order."""
        effects = self.effects[:]
        self.effects.clear()
        return effects

    # --- requests: called for each, so plain calls instead of events

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """Put a request in flight. Raises `SessionEnded` with the reason."""
        if now >= self.wake_at:
            self._catch_up(now)
        try:
            return self.ledgers.by_container[container].begin(session)
        except KeyError:
            raise self.ledgers.why(container, session) from None

    def finish(self, now: float, container: ContainerId, session: Session, idle_for: float = 0.0) -> bool:
        """The request is over, since `idle_for` seconds. A no-op when the session has ended meanwhile.

        Returns whether something may follow from it: there are effects, or time alone changes something earlier.
        """
        follows = now >= self.wake_at
        if follows:
            self._catch_up(now)
        ledger = self.ledgers.by_container.get(container)
        if ledger is not None and ledger.finish(now - idle_for, session):
            self.wake_at = min(self.wake_at, ledger.expected_at)
            follows = True
        if self.mail:
            self.settle(now)
            follows = True
        return follows

    def position(self, waiter: WaiterId) -> tuple[int, Start] | None:
        """(place in the queue, its start) of a client that waits; None once decided."""
        return self.starts.position(waiter)

    # --- time

    def next_deadline(self, now: float) -> float | None:
        """When time alone changes something next; None when nothing waits for time. Exact once all due at `now` is done."""
        earliest = self._earliest(now, self.capacity.survey(now, self._demand()))
        return None if earliest == UNBOUNDED else earliest

    def _earliest(self, now: float, seen: Survey) -> float:
        moment = min(self.ledgers.next_deadline(), self.starts.next_deadline(), self.turns.next_deadline())
        moment = min(moment, self.capacity.life_deadline())
        return moment if self.stopping is not None else min(moment, self.capacity.scale_deadline(now, seen))

    def _catch_up(self, now: float) -> None:
        while self.wake_at <= now:
            then = self.wake_at
            self.settle(then)
            assert self.wake_at > then, "a deadline that its own step does not clear"

    def settle(self, now: float) -> None:
        """Apply what is due and do what has become possible, until nothing more is."""
        while True:
            self._read_mail(now)
            self.ledgers.expire(now)
            self._read_mail(now)
            overdue = self.capacity.due(now)
            for container in overdue:
                if container.proven_at <= now:
                    self.capacity.prove(container)
            for container in overdue:
                self._overdue(now, container)
            for start in self.starts.expire(now):
                self._refuse(start, self._timed_out())
            if self._prompt and self.mail:
                continue  # what has just ended frees places: admission must know before it decides
            self._give_up(now)
            self._place(now)
            if self._prompt and self.mail:
                continue  # nothing of what was placed changes how many containers there should be
            seen = self._scale(now)
            if not self._move_turns(now) and not (self._prompt and self.mail):
                break
        self._note_room(seen)
        self.wake_at = self._earliest(now, seen)

    def _overdue(self, now: float, container: Container) -> None:
        if container.state is ContainerState.READY and container.dies_at <= now:
            self._drain(now, container, EndReason.CONTAINER_MAX_AGE)
        draining = container.state is ContainerState.DRAINING
        empty = draining and not container.requests and not len(self.ledgers[container.id])
        if empty or container.stop_at <= now:
            if container.state is ContainerState.STOPPING:
                self.capacity.kill(container)
            elif draining:
                self._stop_container(now, container, stop_cause(container.reason, self.stopping))
            else:
                self._stop_container(now, container, StopCause.STARTUP_TIMEOUT)

    # --- containers

    @property
    def policy(self) -> Policy:
        """The newest deployment's limits."""
        return self.capacity.policy

    def _scale(self, now: float) -> Survey:
        seen = self.capacity.survey(now, self._demand())
        if self.stopping is not None:
            return seen
        spawned = self.capacity.scale_up(now, seen)
        for container in spawned:
            self._refused = False
            self.open_ledger(container)
        if spawned:
            seen = self.capacity.survey(now, self._demand())
        closing = self.capacity.scale_down(now, seen)
        self.mail += [Close(container.id) for container in closing]
        return self.capacity.survey(now, self._demand()) if closing else seen

    def _container_ready(self, now: float, event: ContainerReady) -> None:
        container = self.capacity.find(event.container)
        self.capacity.ready(now, container)
        if container.state is ContainerState.READY:
            self._refused = False  # those who were refused come again, or do not: no demand stays behind

    def _container_exited(self, now: float, event: ContainerExited) -> None:
        container = self.capacity.find(event.container)
        detail = event.detail if container.reason is EndReason.CONTAINER_LOST else None
        self._cut(container, detail)
        self.ledgers.drop(container.id)
        self.capacity.exited(now, container, event.detail)
        self._drop_grants(now, container)

    def _stop_container(self, now: float, container: Container, cause: StopCause) -> None:
        """Ask the process to end. Whatever is still in flight is cut."""
        self.capacity.stop(now, container, cause)
        self._drop_grants(now, container)
        self._cut(container, None)

    def _cut(self, container: Container, detail: str | None) -> None:
        self.ledgers.cut(container.id, container.reason, detail)
        if self._uncount(container):
            self.effects.append(CutRequests(container.id, container.reason, detail))

    def _drain(self, now: float, container: Container, reason: EndReason) -> None:
        self.capacity.drain(now, container, reason)
        self._drop_grants(now, container)
        self.ledgers.drain(container.id, reason)

    def _drop_grants(self, now: float, container: Container) -> None:
        """Its ledger may have been asked to take sessions: their starts go back to their ranks."""
        for session in sorted(container.grants):
            self.starts.bounced(now, session)
        container.grants.clear()
        container.close_asked = False

    def _deployed(self, now: float, event: Deployed) -> None:
        self.capacity.deploy(event.deployment, event.policy)
        self._limit_newest()  # it may be an earlier one again, whose containers are there still
        for container in list(self.capacity.containers.values()):
            if container.deployment == event.deployment:
                continue
            if container.state is ContainerState.STARTING:
                self._stop_container(now, container, StopCause.REPLACED)
            elif container.state is ContainerState.READY and event.recreate:
                self._drain(now, container, EndReason.DEPLOYMENT_ENDED)

    def _limit_newest(self) -> None:
        """Containers that go on taking sessions hold as many as the policy says now."""
        for container in self.capacity.newest():
            container.limit = self.ledgers[container.id].limit = self.policy.max_concurrency

    def _container_stop_requested(self, now: float, event: ContainerStopRequested) -> None:
        container = self.capacity.find(event.container)
        if container.state is ContainerState.STARTING:
            container.reason = event.reason
            self._stop_container(now, container, StopCause.ASKED)
        elif container.state is ContainerState.READY:
            self._drain(now, container, event.reason)

    def _container_unhealthy(self, now: float, event: ContainerUnhealthy) -> None:
        container = self.capacity.find(event.container)
        if container.state is ContainerState.STARTING:
            raise errors.IllegalEvent("a container that starts has start-up's own time limit")
        if container.state is ContainerState.READY:
            self._cut(container, event.detail)
            self.capacity.lose(now, container, event.detail)
            self._drop_grants(now, container)

    def _stop(self, now: float, reason: EndReason) -> None:
        if self.stopping is not None:
            return
        self.stopping = reason
        for container in list(self.capacity.containers.values()):
            if container.state is ContainerState.STARTING:
                self._stop_container(now, container, stop_cause(reason, reason))
            elif container.state is ContainerState.READY:
                self._drain(now, container, reason)
        self._refuse_all(errors.ShuttingDown(retry_after=5.0))

    def _read_mail(self, now: float) -> None:
        while self._prompt and self.mail:
            self._hand_over(now)

    def _hand_over(self, now: float, index: int = 0) -> None:
        if (closed := self.post.hand_over(now, index)) is not None:
            self._stop_container(now, closed, self.capacity.why_closed(now, closed, self._demand()))

    def open_ledger(self, container: Container) -> None:
        """A ledger for a container that is new here."""
        ledger = self.ledgers.open(container.id, container.limit, container.dies_at + TOKEN_LEEWAY)
        ledger.single_use = container.single_use

"""One Server at work: events to its fleet, effects to the world. Owns the fleet, ONE timer, and the parts that carry effects out.

Decides nothing (that is `sticky.core`), moves no bytes (that is `sticky.edge`), knows no way to run a container (that is
`sticky.containers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky import errors
from sticky.causes import Causes
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
    ContainerStopRequested,
    ContainerUnhealthy,
    Deployed,
    Event,
    PolicyChanged,
    StopRequested,
    TimePassed,
)
from sticky.core.fleet import TOKEN_LEEWAY, Fleet
from sticky.core.memory import Memory
from sticky.core.recall import buried, memory_of, recall
from sticky.core.records import ContainerMoved, Record, SessionDrains
from sticky.core.session import SessionState
from sticky.core.tokens import Claims
from sticky.core.values import (
    UNBOUNDED,
    ContainerId,
    DeploymentId,
    EndReason,
    Policy,
    ServerName,
    StopCause,
)
from sticky.granting import Granting
from sticky.isticky import (
    ContainerSpec,
    Credentials,
    IContainerBackend,
    ILease,
    ILeaseHolder,
    QueuePosition,
    StartRequest,
)
from sticky.journal.service import Found
from sticky.journal.writer import Journal, NoJournal
from sticky.lease import Lease, LeaseBook
from sticky.minting import Minting
from sticky.observe.safely import safely
from sticky.running import Running
from sticky.session_answers import SessionAnswers
from sticky.turn_leases import TurnBook
from sticky.visits import VisitBook, VisitLease


class ServerService(SessionAnswers, Service):
    """Runs one Server's fleet.

    `spec` says what to run for a container of a deployment. `clock` must be monotonic: deadlines hang on it. `call_end` is
    told why a container that runs has to go, before it is: see `witness.Endings.call`.
    """

    log = Logger()

    def __init__(
        self,
        server: ServerName,
        fleet: Fleet,
        backend: IContainerBackend,
        spec: Callable[[ContainerId, DeploymentId], ContainerSpec],
        minting: Minting,
        clock: IReactorTime,
        journal: Journal | None = None,
        call_end: Callable[[ContainerId, str, str], None] = lambda container, cause, more: None,
    ) -> None:
        self.server = server
        self.fleet = fleet
        self._clock = clock
        self._journal: Journal = NoJournal() if journal is None else journal
        self._timer: IDelayedCall | None = None
        self._timer_at = UNBOUNDED
        self._todo: deque[Effect | Record] = deque()
        self._busy = False
        self._stopping: list[
            ContainerId
        ] = []  # when an earlier daemon left them: whether it has told them is not known
        self._starts = Granting(server, fleet, minting, self._journal, clock, self._step, self._follow_up)
        self.containers = Running(server, backend, spec, self._journal, self._step, self._starts.storage_failed)
        self.causes = Causes(self.containers, call_end)
        self._leases = LeaseBook(fleet, self.containers.addresses, clock, self._follow_up)
        self.turns = TurnBook(fleet, self.containers.addresses, clock, self._follow_up, self._leases)
        self._visits = VisitBook(fleet, self.containers.addresses, clock, self._follow_up)
        self._gone: list[Deferred[None]] = []

    # --- start and stop

    def recall(self, found: Found, patience: float = 0.0) -> None:
        """Take up what an earlier daemon left, before `startService`: its containers, their sessions, and how others ended.

        Containers of another deployment keep their sessions to the end; those that are gone take their sessions along.
        `patience`: seconds in which proxies of the earlier daemon may come and say what is in flight; idle clocks start after that, so
        that no session is shortened by how long they take. After `rest` nothing is carried out before `wake`.
        """
        now, newest = self._clock.seconds(), self.fleet.capacity.deployment
        forget_at = now + self.fleet.policy.container_max_age + TOKEN_LEEWAY
        memory = found.memory if found.same_boot else buried(found.memory, forget_at)
        lost = self.containers.adopt(memory, found.places)
        effects = recall(self.fleet, now, memory)
        for ledger in self.fleet.ledgers:
            for session in ledger:
                if session.state is SessionState.ACTIVE:
                    ledger.extend(now + patience, session.id)
        self._carry_out(effects)
        for container in lost:
            self._step(ContainerExited(container, "killed"))
        self._stopping = [
            container for container, box in memory.containers.items() if box.state is ContainerState.STOPPING
        ]
        if not self._busy:
            self._stop_once_more()
        if memory.deployment not in (None, newest):
            self._step(Deployed(newest, self.fleet.policy))

    def memory(self) -> tuple[Memory, Mapping[ContainerId, Mapping[str, Any]]]:
        """What lives now: for a journal that has to be written anew."""
        return memory_of(self.fleet), self.containers.places()

    def startService(self) -> None:
        """Bring up what the policy wants open at all times."""
        super().startService()  # type: ignore[no-untyped-call]
        self.containers.warm(self.fleet.capacity.deployment)
        self._step(TimePassed())

    def drain(self, reason: EndReason = EndReason.SERVER_STOPPED) -> Deferred[None]:
        """Stop in an orderly way: no starts, sessions end, containers are asked to go. Fires when none is left."""
        self.containers.cool()
        gone: Deferred[None] = Deferred()
        self._gone.append(gone)
        self._step(StopRequested(reason))
        return gone

    def kill(self) -> None:
        """End every container now."""
        for container in self.fleet.capacity.containers:
            self.causes.call(container, StopCause.DAEMON_STOPS.value)
        self.containers.kill_all()

    def stopService(self) -> None:
        """Drop the timer; whoever still waits for a start is refused."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_at = UNBOUNDED
        self._starts.stop()

    # --- while another daemon takes over

    def rest(self) -> None:
        """Decide nothing, carry nothing out; whoever is served goes on."""
        self.containers.cool()  # the other daemon has its own
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = -UNBOUNDED  # nothing is sooner

    def wake(self) -> None:
        """Go on as before."""
        self.containers.warm(self.fleet.capacity.deployment)
        self._busy = False
        self._timer_at = UNBOUNDED
        self._carry_out(())
        self._stop_once_more()
        self._step(TimePassed())

    def _stop_once_more(self) -> None:
        containers, self._stopping = self._stopping, []
        for container in containers:
            self.causes.call(container, "earlier_daemon")
            self.containers.terminate(container)

    def held(self) -> list[Lease]:
        """All leases of sessions, for whoever serves on without deciding."""
        return self._leases.held()

    def visitors(self) -> list[VisitLease]:
        """All leases of requests that belong to no session, likewise."""
        return self._visits.held()

    # --- data requests

    def begin(self, claims: Claims, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        """See `IRouting`. Nobody gets a turn as long as not all are known who have one of an earlier daemon."""
        if self.fleet.capacity.policy.serial and not websocket:
            everybody = self.everybody()
            if everybody is None:
                return self.turns.take(claims, holder)
            return everybody.addCallback(lambda _: self.turns.take(claims, holder))
        return self._leases.begin(claims, holder)

    def resume(self, claims: Claims, holder: ILeaseHolder) -> ILease | Deferred[ILease]:
        """A request that an earlier daemon gave its turn."""
        if self.fleet.capacity.policy.serial:
            return self.turns.take(claims, holder)
        return self._leases.begin(claims, holder)

    def visit(self, key: bytes, holder: ILeaseHolder, container: ContainerId | None = None) -> VisitLease:
        """See `IRouting`: a request to a plain Server, with the key of its affinity or an empty one.

        `container`: where it is in flight already.
        """
        try:
            return self._visits.begin(key, holder, container)
        except errors.ContainersFailing as refusal:
            raise self.causes.explained(refusal) from None

    # --- starts

    def start(self, request: StartRequest) -> Deferred[Credentials]:
        """See `ISessions`."""
        return self._starts.start(request)

    def position(self, waiting: Deferred[Credentials]) -> QueuePosition | None:
        """See `ISessions`."""
        return self._starts.position(waiting)

    # --- containers

    def deploy(self, deployment: DeploymentId, policy: Policy, recreate: bool) -> None:
        """This is the newest deployment from now on. `recreate`: containers of older ones stop now; else with their sessions."""
        self.containers.warm(deployment)
        self._step(Deployed(deployment, policy, recreate))

    def change_policy(self, policy: Policy) -> None:
        """Other limits for the containers that there are."""
        self._step(PolicyChanged(policy))

    def stop_container(self, container: ContainerId) -> None:
        """Drain it, then ask it to end. A no-op for one that is being stopped, or gone."""
        if container in self.fleet.capacity.containers:
            self._step(ContainerStopRequested(container))

    def unhealthy(self, container: ContainerId) -> None:
        """It does not answer any more: its sessions end, it is killed. A no-op for one that is not ready."""
        box = self.fleet.capacity.containers.get(container)
        if box is not None:
            self.log.warn("container {container} of {server} is unhealthy", container=container, server=self.server)
            if box.state is ContainerState.READY:
                self.causes.call(container, "unhealthy")
            self._step(ContainerUnhealthy(container))

    # --- the engine

    def _step(self, event: Event) -> None:
        try:
            effects = self.fleet.step(self._clock.seconds(), event)
        except errors.IllegalEvent:
            # Our own mistake, not the operator's: say it loudly, lose nothing of what the deadlines did.
            self.log.failure("an event that cannot happen was dropped: {event}", event=event)
            effects = self.fleet.take()
        self._carry_out(effects)

    def _follow_up(self) -> None:
        """After a plain call to the fleet: nothing at all in the common case."""
        fleet = self.fleet
        if fleet.effects:
            self._carry_out(fleet.take())
        elif fleet.wake_at < self._timer_at:
            self._set_timer()

    def _carry_out(self, effects: Sequence[Effect | Record]) -> None:
        """Do what the core says, in its order, even when doing it makes new effects."""
        self.causes.foretell(effects)
        # Signals last: whoever is cut has told both sides before the container is asked to go.
        self._todo.extend(sorted(effects, key=lambda effect: isinstance(effect, TerminateContainer)))
        if self._busy:
            return
        self._busy = True
        try:
            while self._todo:
                safely(self.log, self._do, self._todo.popleft())
        finally:
            self._busy = False
        if self.fleet.wake_at < self._timer_at:
            self._set_timer()
        if self._gone and not self.fleet.capacity.containers:
            gone, self._gone = self._gone, []
            for waiting in gone:
                waiting.callback(None)

    def _do(self, effect: Effect | Record) -> None:
        match effect:
            case GrantStart():
                self._starts.grant(effect)
            case RefuseStart():
                self._starts.refuse(attrs.evolve(effect, error=self.causes.explained(effect.error)))
            case SpawnContainer():
                self.containers.spawn(effect)
            case TerminateContainer():
                # Whoever is cut tells both sides why before their container goes, in other processes, too.
                ask = partial(self.containers.terminate, effect.container)
                self._leases.when_told(effect.container, partial(self._visits.when_told, effect.container, ask))
            case KillContainer():
                self.containers.kill(effect.container)
            case GiveTurn():
                self.turns.give(effect.turn)
            case RefuseTurn():
                self.turns.refuse(effect.turn, effect.error)
            case EndSession():
                self._journal.write((self.server, effect))
                self._end(effect)
            case SessionDrains():
                self._journal.write((self.server, effect))
                self._leases.drains(effect.session, effect.reason)
            case ContainerMoved(container, ContainerState.DRAINING, reason):
                self._journal.write((self.server, effect))
                for session in (
                    list(self.fleet.ledgers[container]) if container in self.fleet.ledgers.by_container else ()
                ):
                    self._leases.drains(session.id, reason)
            case CutRequests():
                self._visits.end(effect.container, effect.reason, effect.detail)
            case _:
                self._journal.write((self.server, effect))

    def _end(self, effect: EndSession) -> None:
        self.log.info(
            "session {session} ended: {reason}",
            session=effect.session,
            reason=effect.reason.value,
            detail=effect.detail,
            server=self.server,
        )
        self._leases.end(effect.session, effect.reason, effect.detail)

    def _set_timer(self) -> None:
        """One timer, never later than the fleet's next deadline; early is harmless."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self.fleet.wake_at
        delay = max(0.0, self._timer_at - self._clock.seconds())
        self._timer = self._clock.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = UNBOUNDED
        self._step(TimePassed())

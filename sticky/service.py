"""One Server at work: events to its fleet, effects to the world. Owns the fleet, ONE timer, leases and waiting starts.

Decides nothing (that is `sticky.core`), moves no bytes (that is `sticky.edge`), knows no way to run a container (that is
`sticky.containers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.effects import (
    Effect,
    EndSession,
    GrantStart,
    KillContainer,
    RefuseStart,
    SpawnContainer,
    TerminateContainer,
)
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    Event,
    StartAbandoned,
    StartRequested,
    StopRequested,
    TimePassed,
)
from sticky.core.fleet import Fleet
from sticky.core.records import Record
from sticky.core.session import Session, SessionState
from sticky.core.tokens import Claims
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, ServerName, SessionId, WaiterId
from sticky.isticky import (
    Address,
    ContainerSpec,
    Credentials,
    Exit,
    IContainer,
    IContainerBackend,
    IContainerListener,
    ILeaseHolder,
    QueuePosition,
    SessionStatus,
    StartRequest,
)
from sticky.lease import Lease


@attrs.frozen
class Minting:
    """How this Server's session tokens are made."""

    sign: Callable[[Claims], str] = attrs.field(repr=False)
    wall: Callable[[], float]  #: Unix time, for what is written into tokens


@implementer(IContainerListener)
class ServerService(Service):
    """Runs one Server's fleet.

    `spec` says what to run for a container of a deployment. `clock` must be monotonic: deadlines hang on it.
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
    ) -> None:
        self.server = server
        self.fleet = fleet
        self._backend = backend
        self._spec = spec
        self._minting = minting
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._timer_at = UNBOUNDED
        self._todo: deque[Effect | Record] = deque()
        self._busy = False
        self._running: dict[ContainerId, IContainer] = {}
        self._addresses: dict[ContainerId, Address] = {}
        self._leases: dict[SessionId, set[Lease]] = {}
        self._waiter_numbers = count(1)
        self._waiting: dict[WaiterId, Deferred[Credentials]] = {}
        self._waiters: dict[Deferred[Credentials], WaiterId] = {}
        self._gone: list[Deferred[None]] = []

    # --- start and stop

    def startService(self) -> None:
        """Bring up what the policy wants open at all times."""
        super().startService()  # type: ignore[no-untyped-call]
        self._step(TimePassed())

    def drain(self) -> Deferred[None]:
        """Stop in an orderly way: no starts, sessions end, containers are asked to go. Fires when none is left."""
        self._step(StopRequested())
        gone: Deferred[None] = Deferred()
        self._gone.append(gone)
        self._tell_when_gone()
        return gone

    def kill(self) -> None:
        """End every container now."""
        for container in list(self._running.values()):
            container.kill()

    def stopService(self) -> None:
        """Drop the timer; whoever still waits for a start is refused."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_at = UNBOUNDED
        for waiter in list(self._waiting):
            self._answer(waiter, Failure(errors.ShuttingDown(retry_after=5.0)))

    # --- data requests

    def begin(self, claims: Claims, holder: ILeaseHolder) -> Lease:
        """See `IRouting`. Synchronous here: the ledger is in this process."""
        container = claims.container
        try:
            core = self.fleet.begin(self._clock.seconds(), container, claims.session)
        finally:
            self._follow_up()
        lease = Lease(core, container, self._addresses[container], holder, self._finish)
        leases = self._leases.get(core.id)
        if leases is None:
            self._leases[core.id] = {lease}
        else:
            leases.add(lease)
        return lease

    def _finish(self, lease: Lease, core: Session) -> None:
        leases = self._leases.get(core.id)
        if leases is not None:
            leases.discard(lease)
            if not leases:
                del self._leases[core.id]
        self.fleet.finish(self._clock.seconds(), lease.container, core)
        self._follow_up()

    # --- starts

    def start(self, request: StartRequest) -> Deferred[Credentials]:
        """See `ISessions`."""
        waiter = WaiterId(next(self._waiter_numbers))

        def left(_: Deferred[Credentials]) -> None:
            self._waiting.pop(waiter, None)
            self._waiters.pop(answer, None)
            self._step(StartAbandoned(waiter))

        answer: Deferred[Credentials] = Deferred(left)
        self._waiting[waiter] = answer
        self._waiters[answer] = waiter
        self._step(StartRequested(waiter, request.caller, request.owner, request.idle_timeout, request.key))
        return answer

    def position(self, waiting: Deferred[Credentials]) -> QueuePosition | None:
        """See `ISessions`."""
        waiter = self._waiters.get(waiting)
        place = None if waiter is None else self.fleet.position(waiter)
        if place is None:
            return None
        now = self._clock.seconds()
        position, start = place
        return QueuePosition(position, now - start.asked_at, start.deadline - now)

    def _answer(self, waiter: WaiterId, result: Credentials | Failure) -> None:
        answer = self._waiting.pop(waiter, None)
        if answer is not None:
            self._waiters.pop(answer, None)
            answer.callback(result)

    def _grant(self, effect: GrantStart) -> None:
        container = self.fleet.capacity.containers[effect.container]
        wall = self._minting.wall()
        left = max(0.0, container.dies_at - self._clock.seconds())
        claims = Claims(
            effect.session, self.server, container.deployment, effect.container, int(wall), int(wall + left)
        )
        if not effect.waiters:
            return
        token = self._minting.sign(claims)
        self.log.info(
            "session {session} started on {container} of {server}",
            session=effect.session,
            container=effect.container,
            server=self.server,
        )
        for waiter in effect.waiters:
            self._answer(
                waiter,
                Credentials(effect.session, token, effect.idle_timeout, float(claims.expires_at), effect.created),
            )

    # --- calls about one session

    def terminate(self, claims: Claims, grace: float | None) -> None:
        """See `ISessions`."""
        try:
            self.fleet.terminate(self._clock.seconds(), claims.container, claims.session, grace)
        finally:
            self._follow_up()

    def status(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._look(claims, self.fleet.look)

    def extend(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._look(claims, self.fleet.extend)

    def sessions(self, owner: str, after: SessionId | None, limit: int) -> Sequence[SessionStatus]:
        """See `ISessions`. Sorts all sessions of the Server: a call for people, not for programs in a loop."""
        now = self._clock.seconds()
        mine = sorted(
            (session.id, ledger.container, session)
            for ledger in self.fleet.ledgers
            for session in ledger
            if session.caller == owner and (after is None or session.id > after)
        )
        return [self._describe(now, container, session) for _, container, session in mine[:limit]]

    def _look(self, claims: Claims, how: Callable[[float, ContainerId, SessionId], Session]) -> SessionStatus:
        now = self._clock.seconds()
        try:
            return self._describe(now, claims.container, how(now, claims.container, claims.session))
        finally:
            self._follow_up()

    def _describe(self, now: float, container: ContainerId, session: Session) -> SessionStatus:
        due = session.due
        idle_left = None if due is None or session.state is not SessionState.ACTIVE else due - now
        return SessionStatus(
            session.id,
            session.state.value,
            session.in_flight,
            session.idle_timeout,
            idle_left,
            self.fleet.capacity.containers[container].dies_at - now,
            session.caller,
            container,
            now - session.created_at,
        )

    # --- containers

    def ready(self, container: ContainerId, address: Address) -> None:
        """See `IContainerListener`."""
        self.log.info("container {container} of {server} is ready", container=container, server=self.server)
        self._addresses[container] = address
        self._step(ContainerReady(container))

    def exited(self, container: ContainerId, exit: Exit) -> None:
        """See `IContainerListener`."""
        self._running.pop(container, None)
        if exit.detail == "failed" or (exit.status, exit.signal) not in ((0, None), (None, 15)):
            self.log.warn(
                "container {container} of {server} ended: {message}; its last lines: {lines}",
                container=container,
                server=self.server,
                message=exit.message,
                lines=exit.last_lines,
            )
        else:
            self.log.info(
                "container {container} of {server} ended: {message}",
                container=container,
                server=self.server,
                message=exit.message,
            )
        self._step(ContainerExited(container, exit.detail))
        self._addresses.pop(container, None)
        self._tell_when_gone()

    def _tell_when_gone(self) -> None:
        if not self.fleet.capacity.containers:
            gone, self._gone = self._gone, []
            for waiting in gone:
                waiting.callback(None)

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

    def _carry_out(self, effects: Iterable[Effect | Record]) -> None:
        """Do what the core says, in its order, even when doing it makes new effects."""
        self._todo.extend(effects)
        if self._busy:
            return
        self._busy = True
        try:
            while self._todo:
                self._do(self._todo.popleft())
        finally:
            self._busy = False
        if self.fleet.wake_at < self._timer_at:
            self._set_timer()

    def _do(self, effect: Effect | Record) -> None:
        match effect:
            case GrantStart():
                self._grant(effect)
            case RefuseStart():
                for waiter in effect.waiters:
                    self._answer(waiter, Failure(effect.error))
            case SpawnContainer():
                self.log.info(
                    "container {container} of {server} starts", container=effect.container, server=self.server
                )
                spec = self._spec(effect.container, effect.deployment)
                self._running[effect.container] = self._backend.spawn(spec, self)
            case TerminateContainer():
                if effect.container in self._running:
                    self._running[effect.container].terminate()
            case KillContainer():
                if effect.container in self._running:
                    self._running[effect.container].kill()
            case EndSession():
                self._end(effect)
            case _:
                pass  # records: for the journal

    def _end(self, effect: EndSession) -> None:
        self.log.info(
            "session {session} ended: {reason}",
            session=effect.session,
            reason=effect.reason.value,
            detail=effect.detail,
            server=self.server,
        )
        for lease in self._leases.pop(effect.session, ()):
            lease.revoke(effect.reason, effect.detail)

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

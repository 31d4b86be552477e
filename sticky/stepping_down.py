"""The daemon that another one replaces at `sticky restart`: rests, wakes again or leaves, and serves its clients to their end.

Implements `restarting.Old` over the daemon's parts. Must not know how the next daemon is started.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors, sockets
from sticky.admin.service import AdminService
from sticky.core.tokens import Claims
from sticky.core.values import DeploymentId, ServerName
from sticky.daemon import Daemon, Servers
from sticky.edge.context import EdgeContext
from sticky.edge.websocket import WebSocketRelays
from sticky.isticky import IContainerBackend, ILease, ILeaseHolder, IRouting, Visit
from sticky.journal.service import NOT_WHOLE, JournalService, NoJournalService
from sticky.listeners import Listeners
from sticky.observe.safely import safely
from sticky.turn_leases import TurnLease
from sticky.workers.far import FarDaemon
from sticky.workers.leaving import RESTARTED, Leaving
from sticky.workers.pool import Workers
from sticky.workers.proxies import Proxies
from sticky.workers.switch import ControlSwitch
from sticky.workers.told import Keys, Told
from sticky.workers.turns import FarTurns

MOVES_WITHIN = 5.0  #: seconds that workers have to go to the next daemon, where this one is told to end meanwhile


@attrs.frozen
class Edge:
    """What serves clients in this very process. `keys`: public halves that count now, by id, in hex."""

    context: EdgeContext
    relays: WebSocketRelays
    control: ControlSwitch
    verifier: Keys
    keys: Callable[[], Mapping[str, str]]


@implementer(IRouting)
class Resting:
    """Lets nobody in for a moment: requests wait until it is known who decides about them."""

    log = Logger()

    def __init__(self) -> None:
        self._waiting: dict[Deferred[Any], tuple[Claims | Visit, ILeaseHolder, bool]] = {}
        self._asked: dict[Deferred[Any], Deferred[ILease]] = {}  # of those that have to wait on

    def begin(self, claims: Claims | Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        """See `IRouting`."""
        waiting: Deferred[ILease] = Deferred(self._left)
        self._waiting[waiting] = claims, holder, websocket
        return waiting

    def _left(self, waiting: Deferred[Any]) -> None:
        self._waiting.pop(waiting, None)
        asked = self._asked.pop(waiting, None)
        if asked is not None:
            asked.cancel()  # else a lease would come that nobody gives back

    def _answered(self, result: Any, waiting: Deferred[Any]) -> None:
        self._asked.pop(waiting, None)
        waiting.callback(result)

    def go(self, routing: IRouting, let_in: Callable[[object], object] | None = None) -> None:
        """This one decides. `let_in` judges what visitors show; None: it does that, too."""
        asked, self._waiting = self._waiting, {}
        for waiting, (claims, holder, websocket) in asked.items():
            if waiting.called:
                continue  # it left when one before it was answered
            try:
                if isinstance(claims, Visit) and claims.shown is not None and let_in is not None:
                    let_in(claims.shown)
                    claims = attrs.evolve(claims, shown=None)
                lease = routing.begin(claims, holder, websocket)
            except Exception as problem:  # one that cannot be let in must not keep the others waiting for ever
                if not isinstance(problem, errors.Refusal):
                    self.log.failure("a request that waited could not be let in")
                waiting.errback(problem)
                continue
            if isinstance(lease, Deferred):
                self._asked[waiting] = lease
                lease.addBoth(self._answered, waiting)
            else:
                waiting.callback(lease)


class SteppingDown:
    """See the module. `edge` is None where workers serve.

    `left` is called when another daemon is in charge, `over` when the last client has gone.
    """

    log = Logger()

    def __init__(
        self,
        daemon: Daemon,
        servers: Servers,
        journal: JournalService | NoJournalService,
        admin: AdminService,
        health: Any,
        backends: Sequence[IContainerBackend],
        listeners: Listeners,
        endpoints: Sequence[str],
        proxies: Proxies,
        workers: Workers,
        edge: Edge | None,
        reactor: Any,
        drain_timeout: float,
        left: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        self._daemon = daemon
        self._servers = servers
        self._journal = journal
        self._admin = admin
        self._health = health
        self._backends = backends
        self._listeners = listeners
        self._endpoints = endpoints
        self._proxies = proxies
        self._workers = workers
        self._edge = edge
        self._reactor = reactor
        self._drain_timeout = drain_timeout
        self._left = left
        self._over = over
        self._moving: Deferred[Any] = succeed(None)  # fires when all proxies have gone to the next daemon
        self._said: Deferred[None] = succeed(None)  # fires when whoever asked for this has had time to read the answer
        self._resting = Resting()
        self._leaving: Leaving | None = None
        self._far: FarDaemon | None = None

    def lock(self) -> int:
        """See `restarting.Old`."""
        if isinstance(self._journal, NoJournalService):
            raise errors.BadRequest("An ephemeral daemon takes its containers along: there is nothing to hand over.")
        if not self._journal.works:
            raise errors.StorageFailed(NOT_WHOLE, retry_after=1.0)
        return self._journal.lock

    def listening(self) -> Mapping[str, Sequence[socket.socket]]:
        """See `restarting.Old`."""
        for endpoint in self._endpoints:
            if not sockets.shareable(endpoint):
                raise errors.BadRequest(f"The listener {endpoint} cannot be handed over to another process.")
        return self._listeners.sockets

    def rest(self) -> Deferred[int]:
        """See `restarting.Old`."""
        return Deferred.fromCoroutine(self._rest())

    async def _rest(self) -> int:
        self._listeners.pause()
        if self._edge is not None:
            self._edge.control.pause()
            self._edge.context.routing = self._resting
        self._proxies.rest()
        self._health.stopService()
        for server in self._servers.all():
            server.rest()
        assert isinstance(self._journal, JournalService)
        problems: list[Failure] = []
        # From here on nothing is promised: whoever asks through a connection that is there already is refused.
        resting = [Deferred.fromCoroutine(self._journal.rest()), Deferred.fromCoroutine(self._admin.rest())]
        for one in resting:
            await one.addErrback(problems.append)
        if problems:
            problems[0].raiseException()
        return self._proxies.moving + (self._edge is not None)

    def wake(self) -> None:
        """See `restarting.Old`. A part that cannot go on keeps no other from it, and the operator's API least of all."""
        assert isinstance(self._journal, JournalService)
        safely(self.log, self._journal.wake)
        for server in self._servers.all():
            safely(self.log, server.wake)
        safely(self.log, self._health.startService)
        safely(self.log, self._proxies.wake)
        if self._edge is not None:
            self._edge.context.routing = self._servers
            safely(self.log, self._edge.control.resume)
            self._resting.go(self._servers, self._edge.control.let_in)
        self._listeners.resume()
        safely(self.log, self._admin.wake)

    def leave(self, path: str) -> None:
        """See `restarting.Old`."""
        self._daemon.left = self._end
        self._left()
        assert isinstance(self._journal, JournalService)
        self._journal.let_go()
        self._said = self._admin.leave()
        for backend in self._backends:
            done: Deferred[None] = backend.stop()
            done.addErrback(lambda failure: self.log.failure("a backend was not left in order", failure))
        if self._edge is None:
            self._workers.release()
            self._moving = self._proxies.move(path, self._drain_timeout)
            self._moving.addCallback(lambda _: self._empty())
            self._listeners.leave()
            return
        self._become_a_proxy(self._edge, path)
        self._moving = self._proxies.move(path, self._drain_timeout)
        self._listeners.leave()

    def _become_a_proxy(self, edge: Edge, path: str) -> None:
        context = edge.context
        self._far = far = FarDaemon(
            self._reactor,
            "earlier daemon",
            welcomed=lambda config: told.take(config),
            lost=self._lost,
            close=edge.relays.close_all,
            stop=self._empty,
            moved=lambda within: None,
            tally=lambda: {"clients": context.doors.inside, "websockets": edge.relays.open},
        )
        told = Told(edge.verifier, context.sites, far.turns, edge.keys())
        for server in self._servers.all():
            for lease in server.held():
                if isinstance(lease, TurnLease):
                    far.turns.adopt(_claims(server.server, lease), lease)
                else:
                    far.routing.adopt(server.server, [lease])
            for visitor in server.visitors():
                far.visits.adopt(server.server, visitor)
            server.turns.move(partial(_take, far.turns, server.server))
        far.turns.servers = frozenset(
            server.server for server in self._servers.all() if server.fleet.capacity.policy.serial
        )
        context.routing = far.routing
        self._resting.go(far.routing)
        edge.control.go(far.control)
        far.connect(path, moved=True)
        self._leaving = Leaving(self._reactor, context, edge.relays, self._drain_timeout, self._empty)

    def _lost(self) -> None:
        self.log.error("the new daemon is gone, and the connections that were left here with it")
        self._empty()

    def _empty(self) -> None:
        # Where nobody had to go, whoever asked for the restart has not heard yet that it succeeded.
        self._said.addBoth(lambda _: self._over())

    async def _end(self) -> None:
        """The process is about to end, in order or by a signal."""
        if not self._moving.called:
            # Workers end with whoever started them until they know that another daemon has them.
            moved: Deferred[None] = Deferred()
            self._moving.addCallback(lambda _: None if moved.called else moved.callback(None))
            await moved.addTimeout(MOVES_WITHIN, self._reactor).addErrback(lambda _: None)
        if self._leaving is not None:
            self._leaving.stop()
        if self._edge is not None:
            closing: Deferred[Any] = self._edge.relays.close_all(RESTARTED, "daemon_restarted")
            await closing.addTimeout(1.0, self._reactor).addErrback(lambda _: None)
            self._edge.context.stop()
        if self._far is not None:
            self._far.leave()


def _claims(server: ServerName, lease: TurnLease) -> Claims:
    return Claims(lease.session, server, DeploymentId(""), lease.container, 0, 0)


def _take(turns: FarTurns, server: ServerName, lease: TurnLease) -> Deferred[ILease]:
    return turns.take(_claims(server, lease), lease.holder)

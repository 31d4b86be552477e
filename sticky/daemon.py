"""The daemon: all Servers behind one door, and the order in which everything starts and stops. Wires nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import EndReason, ServerName, SessionId
from sticky.isticky import (
    Credentials,
    IContainerBackend,
    ILease,
    ILeaseHolder,
    IRouting,
    ISessions,
    QueuePosition,
    SessionStatus,
    StartRequest,
    Visit,
)
from sticky.journal.service import JournalService, NoJournalService
from sticky.journal.writer import Picture
from sticky.notify import notify_main
from sticky.observe.safely import safely
from sticky.service import ServerService
from sticky.startup import possible

_Result = TypeVar("_Result")

KILL_WAIT = 5.0  #: seconds that what was killed or told to stop has to be seen gone


@attrs.define(eq=False)
class Tally:
    """A Server's starts since the daemon's own, by how they were answered."""

    granted: int = 0
    refused: int = 0

    def grant(self, credentials: _Result) -> _Result:
        """A callback that counts."""
        self.granted += 1
        return credentials

    def refuse(self, failure: Failure) -> Failure:
        """An errback that counts; a client that left was not refused."""
        self.refused += failure.check(errors.Refusal) is not None
        return failure


@implementer(IRouting, ISessions)
class Servers:
    """All Servers by name."""

    def __init__(self, servers: Sequence[ServerService]) -> None:
        self.by_name: dict[ServerName, ServerService] = {}
        self.tallies: dict[ServerName, Tally] = {}
        self.leaving: list[ServerService] = []  #: removed, with containers that are not gone
        #: fires when all who may hold sessions are known to hold them, and act on what they are told; None: they are
        self.everybody: Callable[[], Deferred[None] | None] = lambda: None
        for server in servers:
            self.add(server)

    def add(self, server: ServerService) -> None:
        """One more; starting it is the caller's."""
        self.by_name[server.server] = server
        server.everybody = lambda: self.everybody()
        self.tallies[server.server] = Tally()

    def remove(self, name: ServerName) -> Deferred[None]:
        """End a Server and its sessions (`deployment_ended`). Fires when the last of its containers is gone."""
        server = self.by_name.pop(name)
        del self.tallies[name]
        self.leaving.append(server)

        def gone(_: None) -> None:
            self.leaving.remove(server)
            if server.running:
                server.stopService()

        return server.drain(EndReason.DEPLOYMENT_ENDED).addCallback(gone)

    def all(self) -> list[ServerService]:
        """Those that leave too."""
        return [*self.by_name.values(), *self.leaving]

    def begin(self, claims: Claims | Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        """See `IRouting`."""
        if type(claims) is Visit:
            return self._visit(claims, holder)
        try:
            server = self.by_name[claims.server]
        except KeyError:
            raise errors.SessionEnded("deployment_ended") from None
        if TYPE_CHECKING:
            assert isinstance(claims, Claims)
        return server.begin(claims, holder, websocket)

    def resume(self, claims: Claims, holder: ILeaseHolder) -> ILease | Deferred[ILease]:
        """See `ServerService`. Raises `errors.SessionEnded`."""
        server = self.by_name.get(claims.server)
        if server is None:
            raise errors.SessionEnded("deployment_ended")
        return server.resume(claims, holder)

    def _visit(self, visit: Visit, holder: ILeaseHolder) -> ILease:
        server = self._serving(visit.server)
        if visit.shown is not None:
            raise errors.Unavailable(retry_after=1.0)  # nobody has judged what it shows
        if visit.container is None and server.fleet.policy.sessioned:
            raise errors.NoCredential  # a moment ago it needed none, where it came in
        return server.visit(visit.key, holder, visit.container)

    def picture(self) -> Picture:
        """What lives now, for a journal that has to be written anew."""
        memories, places = {}, {}
        for server in self.all():
            memories[server.server], places[server.server] = server.memory()
        return memories, places

    def start(self, request: StartRequest) -> Deferred[Credentials]:
        """See `ISessions`."""
        server = self._serving(request.server)
        tally = self.tallies[request.server]
        return server.start(request).addCallbacks(tally.grant, tally.refuse)

    def position(self, waiting: Deferred[Credentials]) -> QueuePosition | None:
        """See `ISessions`."""
        places = (server.position(waiting) for server in self.by_name.values())
        return next((place for place in places if place is not None), None)

    def terminate(self, claims: Claims, grace: float | None) -> Deferred[None]:
        """See `ISessions`."""
        if claims.server not in self.by_name:
            raise errors.UnknownSession
        return self.by_name[claims.server].terminate(claims, grace)

    def release(self, server: ServerName, owner: str, name: str, grace: float | None) -> Deferred[None]:
        """See `ISessions`."""
        return self._serving(server).release(owner, name, grace)

    def status(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._of(claims).status(claims)

    def extend(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._of(claims).extend(claims)

    def sessions(self, server: ServerName, owner: str, after: SessionId | None, limit: int) -> Sequence[SessionStatus]:
        """See `ISessions`."""
        return self._serving(server).sessions(owner, after, limit)

    def _serving(self, name: ServerName) -> ServerService:
        try:
            return self.by_name[name]
        except KeyError:  # it was removed while the request came in
            raise errors.UnknownHost from None

    def _of(self, claims: Claims) -> ServerService:
        try:
            return self.by_name[claims.server]
        except KeyError:
            raise errors.SessionEnded("deployment_ended") from None


class Predecessor(Protocol):
    """The daemon that this one replaces, while it is still there (`successor`)."""

    patience: float  #: seconds that its proxies may take to come over: they serve what they hold meanwhile

    def give(self, journal: Any) -> None:
        """The state directory's lock, instead of claiming it."""

    def take_over(self, take_up: Callable[[], None], begin: Callable[[], None], open_up: Callable[[], None]) -> None:
        """Have it rest, `take_up` what it leaves, say so, `begin` once in charge, and `open_up` when its proxies have come over.

        What fails ends us.
        """

    def give_up(self) -> None:
        """We are to end. Where that one is still in charge the process ends now, and touches nothing."""


class Daemon(Service):
    """Takes up what an earlier daemon left, listens, starts Servers; stops in the order of semantics.md (Stop and restart).

    `listeners`: accept and serve connections. `close_websockets`: tell every open WebSocket that the daemon leaves; fires
    when they are gone or their time is up; `cut` ends what is left of all connections at once. `shutdown_timeout`: seconds
    over all, after which containers are killed and connections cut. `admin`: the operator's API, there as long as there is
    anything to see. `health` looks after containers. `watch_hangup` makes SIGHUP mean what it should, once twistd has forked.
    `backends` may grow: `remember` brings one that earlier containers ran on, by its name and the options that it had.
    """

    log = Logger()

    def __init__(
        self,
        servers: Servers,
        listeners: Service,
        backends: Sequence[IContainerBackend],
        close_websockets: Callable[[], Deferred[None]],
        cut: Callable[[], object],
        clock: IReactorTime,
        shutdown_timeout: float,
        journal: JournalService | NoJournalService,
        admin: Service,
        health: Service,
        watch_hangup: Callable[[], None],
        remember: Callable[[str, Sequence[Mapping[str, object]]], None],
    ) -> None:
        self._servers = servers
        self._listeners = listeners
        self._backends = backends
        self._close_websockets = close_websockets
        self._cut = cut
        self._clock = clock
        self._shutdown_timeout = shutdown_timeout
        self._journal = journal
        self._admin = admin
        self._health = health
        self._watch_hangup = watch_hangup
        self._remember = remember
        self.predecessor: Predecessor | None = None  #: the daemon that this one is to replace, if any
        #: Fires when it is known whether another one replaces this one.
        self.decide: Callable[[], Deferred[None]] = lambda: succeed(None)
        #: Let go of what threads wait for, since the process waits for them.
        self.abandon: Callable[[], None] = lambda: None
        #: How to end, where another one has replaced it.
        self.left: Callable[[], Coroutine[Any, Any, None]] | None = None

    def privilegedStartService(self) -> None:
        """Take the state directory, then bind, before privileges are dropped. What is in the way ends the process with a line."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        with possible():
            self._watch_hangup()
            if self.predecessor is None:
                self._journal.claim()
            else:
                self.predecessor.give(self._journal)
            self._listeners.privilegedStartService()
            self._admin.privilegedStartService()

    def startService(self) -> None:
        """Listen, then bring up containers. As above for what is in the way."""
        super().startService()  # type: ignore[no-untyped-call]
        if self.predecessor is not None:
            self.predecessor.take_over(self._take_up, self._begin, self._open_up)
            return
        with possible():
            self._take_up()
            self._begin()
            self._open_up()

    def _take_up(self) -> None:
        """Learn what an earlier daemon left. One that is still there may yet go on: nothing is done to any container."""
        found = self._journal.open()
        self._remember_backends()
        for name, server in self._servers.by_name.items():
            if self.predecessor is not None:
                server.rest()
            server.recall(found(name), 0.0 if self.predecessor is None else self.predecessor.patience)
        self._journal.taken_up()

    def _begin(self) -> None:
        """It is all ours from now on: carry out what was decided meanwhile, and kill whom nobody knows."""
        if self.predecessor is not None:
            for server in self._servers.by_name.values():
                self._surely(server.wake)
        for backend in self._backends:
            self._surely(partial(self._kill_orphans, backend))

    def _kill_orphans(self, backend: IContainerBackend) -> None:
        known = {
            container for server in self._servers.by_name.values() for container in server.fleet.capacity.containers
        }
        if orphans := backend.orphans(known):
            self.log.warn("containers that nobody knows were killed: {orphans}", orphans=sorted(orphans))

    def _open_up(self) -> None:
        if not self.running:
            return  # told to end while an earlier daemon's proxies came over
        self._surely(self._admin.startService)  # first: whoever finds our address may ask at once
        self._surely(self._listeners.startService)
        for server in self._servers.by_name.values():
            self._surely(server.startService)
        self._surely(self._health.startService)
        notify_main(READY=1)

    def _surely(self, part: Callable[[], object]) -> None:
        """Once an earlier daemon has gone there is nobody to go on in our place: what fails is logged, and the rest goes on."""
        if self.predecessor is None:
            part()
        else:
            safely(self.log, part)

    def _remember_backends(self) -> None:
        """Before anything is taken up: whatever an earlier daemon's containers ran on, no Server may use it any more."""
        options: dict[str, list[Mapping[str, object]]] = {}
        for name, one in self._journal.spawned_by:
            if name and one not in options.setdefault(name, []):
                options[name].append(one)
        for name, known in options.items():
            self._remember(name, known)

    def stopService(self) -> Deferred[None]:
        """Refuse starts, close WebSockets, let containers go, kill what is left, close the listeners."""
        super().stopService()  # type: ignore[no-untyped-call]
        self.abandon()
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        if self.predecessor is not None:
            self.predecessor.give_up()
        await self._patiently(Deferred.fromCoroutine(self._decided()), self._shutdown_timeout)
        await (self._stop() if self.left is None else self.left())

    async def _decided(self) -> None:
        await self.decide()

    async def _stop(self) -> None:
        self._health.stopService()
        servers = self._servers.all()
        websockets = self._close_websockets()
        gone = DeferredList([server.drain() for server in servers])
        impatience = self._clock.callLater(self._shutdown_timeout, self.kill)
        try:
            await self._patiently(DeferredList([websockets, gone]), self._shutdown_timeout + KILL_WAIT)
            if impatience.active():
                impatience.cancel()
            for server in servers:
                if server.running:
                    server.stopService()
            await self._patiently(self._listeners.stopService(), KILL_WAIT)
            for backend in self._backends:
                await self._patiently(backend.stop(), KILL_WAIT)
            await self._patiently(self._admin.stopService(), KILL_WAIT)
        finally:
            # Of a disk that hangs nobody knows whether it ever comes back.
            await self._patiently(Deferred.fromCoroutine(self._journal.close()), self._shutdown_timeout)

    async def _patiently(self, done: Deferred[Any] | None, seconds: float) -> None:
        """Wait, but not for ever and not for what fails: the daemon ends, and says what it did not see the end of."""
        try:
            await (succeed(None) if done is None else done.addTimeout(seconds, self._clock))
        except Exception:
            self.log.failure("the daemon ends without having seen the end of a part of it")

    def kill(self) -> None:
        """End every container and every connection now: the time for an orderly stop is over, or the operator has no patience."""
        if self.left is not None:
            return  # they are another daemon's
        self.log.warn("containers are killed")
        for server in self._servers.all():
            server.kill()
        self._cut()  # a peer that answers no Close must not keep the daemon

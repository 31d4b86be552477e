"""Connections to containers: one pool a container, one protocol a connection. Knows no HTTP but that one request is out at a time.

Dials with the reactor's own calls and one-shot factories: an endpoint's wrapper would stay between transport and protocol
for the connection's whole life. Time-outs come from the edge's sweep.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, Protocol

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IConnector, IProtocol, IPushProducer, ITCPTransport
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.core.values import ContainerId
from sticky.edge.sweep import NEVER, Sweep
from sticky.isticky import Address, TCPAddress

MAX_DIALS = 32  #: connects under way at once to one container; more wait for these or for a connection that comes free


class UpstreamUser(Protocol):
    """Whoever has a request out on a connection, or waits for one."""

    def upstream_ready(self, upstream: Upstream) -> None:
        """The connection that was asked for, free of bytes and of any other user."""

    def upstream_refused(self) -> None:
        """The container accepts no connection just now."""

    def answer_received(self, data: bytes) -> None:
        """Bytes from the container."""

    def upstream_lost(self, clean: bool) -> None:
        """The container closed the connection; `clean` if by a FIN."""

    def upstream_written(self) -> None:
        """All that was written so far is in the kernel. Only after `Upstream.tell_when_written`."""


@implementer(IProtocol, IPushProducer)
class Upstream:
    """One connection to a container. Its producer side is the container's sending, paused and resumed without harm if doubled."""

    __slots__ = ("__weakref__", "_paused", "_watch", "deadline", "idle_since", "pool", "transport", "used", "user")

    def __init__(self, pool: Pool | None, user: UpstreamUser | None = None) -> None:
        self.pool = pool
        self.user = user
        self.transport: Any = None
        self.used = False  # an earlier request went out here: it may be stale
        self.idle_since = 0.0
        self.deadline = NEVER
        self._paused = False
        self._watch: _WriteWatch | None = None

    # --- Twisted calls

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)

    def connectionMade(self) -> None:
        """Part of IProtocol; `makeConnection` has done all."""

    def dataReceived(self, data: bytes) -> None:
        if self.user is None:  # nobody asked: whatever this is, the next request must not take it for its answer
            self.drop()
        else:
            self.user.answer_received(data)

    def connectionLost(self, reason: Failure) -> None:
        user, self.user = self.user, None
        if self.pool is not None:
            self.pool.lost(self)
        if user is not None:
            user.upstream_lost(reason.check(ConnectionDone) is not None)

    # --- the container's sending, as a producer

    def pauseProducing(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The client's transport is gone; the exchange hears of it by itself."""

    # --- ends

    def tell_when_written(self) -> None:
        """Call the user's `upstream_written` once the kernel has taken all that was written. Needs a transport without producer."""
        self._watch = _WriteWatch(self)
        self.transport.registerProducer(self._watch, False)

    def forget_watch(self) -> None:
        """End `tell_when_written`, called or not."""
        if self._watch is not None:
            self._watch = None
            self.transport.unregisterProducer()

    def drop(self) -> None:
        """Close at once, whatever is under way; no user hears of it."""
        self.user = None
        if self.pool is not None:
            self.pool.forget_idle(self)
        self.transport.abortConnection()

    def retire(self) -> None:
        """Close in order one that nobody uses: a reset would fill a container's log with errors."""
        self.deadline = NEVER
        if self.pool is not None:
            self.pool.forget_idle(self)
        self.transport.loseConnection()

    def close(self) -> None:
        """Close in order: the container said that this answer is the last one here."""
        self.user = None
        self.transport.loseConnection()

    def give_back(self) -> None:
        """The exchange is over and both sides are at a message's end: the next request may use the connection."""
        self.user = None
        self.resumeProducing()  # unregistering a producer does not resume it; a deaf connection would hang its next user
        if self.pool is None:
            self.transport.loseConnection()
        else:
            self.pool.take_back(self)

    def overdue(self, now: float) -> None:
        """Idle for too long: closed before the container does it."""
        self.retire()

    def put_off(self, seconds: float) -> None:
        """This process stood still. The container did not, and has its own idea of how long a connection may be idle."""


class _WriteWatch:
    """A pull producer that has nothing to give: the transport asks it for more when its buffer is empty."""

    __slots__ = ("_first", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._first = True

    def resumeProducing(self) -> None:
        if self._first:  # from registerProducer itself: says nothing about the buffer
            self._first = False
            return
        upstream = self._upstream
        if upstream._watch is self:
            upstream.forget_watch()
            if upstream.user is not None:
                upstream.user.upstream_written()

    def stopProducing(self) -> None:
        self._upstream._watch = None


class DialState(Enum):
    """How far a wish for a connection has come."""

    QUEUED = "queued"  # enough connects are under way
    CONNECTING = "connecting"
    SETTLED = "settled"  # its user has been told, or left


_DIAL_STEPS: dict[DialState, tuple[DialState, ...]] = {
    DialState.QUEUED: (DialState.CONNECTING, DialState.SETTLED),
    DialState.CONNECTING: (DialState.SETTLED,),
    DialState.SETTLED: (DialState.SETTLED,),  # the user left and the connector reports the end afterwards
}


class Dial(ClientFactory):
    """One wish for a connection; a one-shot factory."""

    noisy = False

    def __init__(self, pool: Pool, user: UpstreamUser, fresh: bool) -> None:
        self._pool = pool
        # Given up when told: the transport keeps this factory for its whole life.
        self._user: UpstreamUser | None = user
        self._connector: IConnector | None = None
        self.fresh = fresh  #: a connection that another request used will not do
        self.state = DialState.QUEUED

    def _become(self, state: DialState) -> None:
        assert state in _DIAL_STEPS[self.state], (self.state, state)
        self.state = state

    def connect(self) -> None:
        """Begin to connect."""
        self._become(DialState.CONNECTING)
        pool = self._pool
        if isinstance(pool.address, TCPAddress):
            where = {"network": pool.address.network} if pool.address.network else {}
            self._connector = pool.reactor.connectTCP(
                pool.address.host, pool.address.port, self, timeout=pool.connect_timeout, **where
            )
        else:
            self._connector = pool.reactor.connectUNIX(pool.address.path, self, timeout=pool.connect_timeout)

    def settle(self, upstream: Upstream) -> None:
        """The connection that was wished for."""
        self._become(DialState.SETTLED)
        user, self._user = self._user, None
        if user is not None:
            upstream.user = user
            user.upstream_ready(upstream)

    def cancel(self) -> None:
        """The user left. A no-op once it has been told."""
        before, self.state = self.state, DialState.SETTLED
        self._user = None
        if before is DialState.QUEUED:
            self._pool.dial_dropped(self)
        elif before is DialState.CONNECTING and self._connector is not None:
            self._connector.disconnect()

    def buildProtocol(self, addr: IAddress) -> Upstream:  # type: ignore[override]  # IProtocol is all that Twisted asks
        return Dialled(self._pool, self)

    def connected(self, upstream: Upstream) -> None:
        """The connection stands."""
        self._pool.dial_over(upstream)
        if self.state is DialState.SETTLED:
            upstream.give_back()
        else:
            self.settle(upstream)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self._become(DialState.SETTLED)
        user, self._user = self._user, None
        self._pool.dial_over(None)
        if user is not None:
            user.upstream_refused()

    def clientConnectionLost(self, connector: IConnector, reason: Failure) -> None:
        """The protocol hears of it itself."""


class Dialled(Upstream):
    """A connection that reports to its dial once its transport is there."""

    __slots__ = ("_dial",)

    def __init__(self, pool: Pool, dial: Dial) -> None:
        super().__init__(pool)
        self._dial: Dial | None = dial

    def makeConnection(self, transport: Any) -> None:
        super().makeConnection(transport)
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.connected(self)


class Pool:
    """The connections to one container. It leaves `Upstreams` when it has none and nobody waits."""

    def __init__(self, owner: Upstreams, container: ContainerId, address: Address) -> None:
        self._owner = owner
        self.reactor = owner.reactor
        self.connect_timeout = owner.connect_timeout
        self._max_idle = owner.idle
        self.container = container
        self.address = address
        self._idle: list[Upstream] = []  # the last one in is the first one out: the others get old enough to be closed
        self._queue: deque[Dial] = deque()
        self._open = 0
        self._dials = 0

    def take(self, max_idle: float) -> Upstream | None:
        """The connection that came back last, if that is less than `max_idle` seconds ago."""
        if not self._idle or self.reactor.seconds() - self._idle[-1].idle_since >= max_idle:
            return None
        upstream = self._idle.pop()
        upstream.deadline = NEVER
        return upstream

    def take_at(self, now: float) -> Upstream | None:
        """The same for a request that may be sent twice, whose caller has the time already."""
        idle = self._idle
        if not idle or now - idle[-1].idle_since >= self._max_idle:
            return None
        upstream = idle.pop()
        upstream.deadline = NEVER
        return upstream

    def dial(self, user: UpstreamUser, fresh: bool = False) -> Dial:
        """Get `user` a connection: a new one, or unless it must be `fresh` one that comes free before. Never tells it from within."""
        dial = Dial(self, user, fresh)
        if self._dials < MAX_DIALS:
            self._dials += 1
            dial.connect()
        else:
            self._queue.append(dial)
        return dial

    def dial_dropped(self, dial: Dial) -> None:
        """A queued dial's user left."""
        self._queue.remove(dial)

    def dial_over(self, upstream: Upstream | None) -> None:
        """A connect has come to its end: with a connection, or without."""
        self._dials -= 1
        if upstream is not None:
            self._open += 1
            self._owner.sweep.add(upstream)
        if self._queue and self._dials < MAX_DIALS:
            self._dials += 1
            self._queue.popleft().connect()
        self._leave_if_empty()

    def take_back(self, upstream: Upstream) -> None:
        """A connection has no user any more: give it to who waits longest, or keep it."""
        self.take_back_at(upstream, self.reactor.seconds())

    def take_back_at(self, upstream: Upstream, now: float) -> None:
        """The same, for a caller who has the time already."""
        upstream.used = True
        if self._queue and not self._queue[0].fresh:
            self._queue.popleft().settle(upstream)
            return
        upstream.idle_since = now
        upstream.deadline = now + self._max_idle
        self._idle.append(upstream)

    def forget_idle(self, upstream: Upstream) -> None:
        """A connection will close: it is nobody's choice any more."""
        if upstream in self._idle:
            self._idle.remove(upstream)

    def lost(self, upstream: Upstream) -> None:
        """A connection has closed."""
        self._open -= 1
        self._owner.sweep.discard(upstream)
        self.forget_idle(upstream)
        self._leave_if_empty()

    def drop_idle(self) -> None:
        """Close what nobody uses."""
        for upstream in list(self._idle):
            upstream.retire()

    def _leave_if_empty(self) -> None:
        if not self._open and not self._dials and not self._queue:
            self._owner.pool_emptied(self)


class Upstreams:
    """The pools of all containers, each made when it is first needed."""

    def __init__(self, reactor: Any, sweep: Sweep, *, connect_timeout: float, idle: float) -> None:
        """`reactor` connects and tells the time; an idle connection is closed after `idle` seconds."""
        self.reactor = reactor
        self.sweep = sweep
        self.connect_timeout = connect_timeout
        self.idle = idle
        self._pools: dict[ContainerId, Pool] = {}

    def __len__(self) -> int:
        return len(self._pools)

    def pool(self, container: ContainerId, address: Address) -> Pool:
        """The pool of this container. One that moved (adopted after a restart) gets a new pool; the old one drains."""
        pool = self._pools.get(container)
        if pool is None or (pool.address is not address and pool.address != address):
            if pool is not None:
                pool.drop_idle()
            pool = self._pools[container] = Pool(self, container, address)
        return pool

    def pool_emptied(self, pool: Pool) -> None:
        """This pool holds nothing."""
        if self._pools.get(pool.container) is pool:
            del self._pools[pool.container]

    def drop_idle(self) -> None:
        """Close all connections that nobody uses."""
        for pool in list(self._pools.values()):
            pool.drop_idle()

"""The commonest exchange, straight through: no request body, a kept connection to the container, a whole answer in one read.

One object a client's connection serves one such request after the other. At the first thing that is not plain it hands over
to the exchange in general (`relay.Exchange`), which is the reference for all that is done here. Must not know how a request
was let in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import EndReason
from sticky.edge.credentials import Credential
from sticky.edge.plain import PlainHead
from sticky.edge.relay import Exchange
from sticky.edge.site import Site
from sticky.edge.upstream import Pool, Upstream
from sticky.isticky import ILease, ILeaseHolder, Visit
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.edge.frontend import Frontend

#: Idempotent, so that a connection that was used before will do, and with an answer whose length is its body's.
STRAIGHT = frozenset({b"GET", b"OPTIONS", b"PUT", b"DELETE"})

_new = tuple.__new__  # a third of what calling the record's class costs


@implementer(ILeaseHolder)
class Straight:
    """A client's requests without bodies, one at a time. What it does not do itself, an `Exchange` goes on with."""

    __slots__ = ("_answered_at", "_bytes_out", "_credential", "_front", "_head", "_lease", "_pool", "_site", "_started_at", "_status",
                 "_upstream", "_waits", "half_close_timeout")  # fmt: skip

    def __init__(self, front: Frontend) -> None:
        self._front = front
        self._pool: Pool | None = None  # that the last request's connection was of
        self._lease: ILease | None = None  # of the request that is served
        self._upstream: Upstream | None = None  # while its answer has not come
        self._waits = False  # the answer, for the end of the turn

    def begin(self, head: PlainHead, site: Site, credential: Credential | None, claims: Claims | Visit) -> None:
        """Serve this request, which has no body and a method of `STRAIGHT`, and whose site's rules let it in."""
        front = self._front
        context = front.context
        self._head = head
        self._site = site
        self._credential = credential
        self.half_close_timeout: float | None = site.half_close_timeout
        self._started_at = started_at = context.seconds()
        front.served = self
        try:
            lease = context.routing.begin(claims, self)
        except errors.Refusal as error:
            self._exchange().refuse(error)
            return
        if not hasattr(lease, "release"):  # to ask whether it is a Deferred, an abstract class, is slow
            assert isinstance(lease, Deferred)
            exchange = self._exchange()
            lease.addCallback(_transferred, exchange)
            exchange.wait(lease)
            return
        if TYPE_CHECKING:
            assert not isinstance(lease, Deferred)
        pool = self._pool
        if pool is None or pool.container != lease.container or pool.address is not lease.address:
            self._pool = pool = context.upstreams.pool(lease.container, lease.address)
        upstream = pool.take_at(started_at)
        if upstream is None:
            self._pool = None  # there may be another one by now
            exchange = self._exchange()
            lease.transfer(exchange)
            exchange.granted(lease)
            return
        plain = head.plain
        session = lease.session
        if plain.session != session:
            plain.get_ready(context.names.session_id, session, front.peer.facts(head))
        self._lease = lease
        self._upstream = upstream
        upstream.user = self
        context.turn.write(upstream.transport, head.line + plain.ready)
        timeout = site.response_timeout
        if timeout is not None:
            front.expect_by(started_at + timeout)

    def answer_received(self, data: bytes) -> None:
        """See `UpstreamUser`."""
        front = self._front
        context = front.context
        head = self._head
        plain = context.plain.answer(data)
        if plain is None:
            self._exchange().answer_received(data)
            return
        status, end, length = plain
        size = len(data)
        if end + length != size:
            self._exchange().answer_received(data)
            return
        if not head.plain.keep_alive:
            data = b"%bConnection: close\r\n\r\n%b" % (data[: end - 2], data[end:])
            size = len(data)
        self._answered_at = now = context.seconds()
        self._status = status
        self._bytes_out = size
        upstream = self._upstream
        assert upstream is not None and upstream.pool is not None
        self._upstream = upstream.user = None
        upstream.pool.take_back_at(upstream, now)  # nothing can have paused it
        self._waits = True
        context.turn.write(front.transport, data, self)

    def written(self) -> None:
        """See `Writer`: the answer is."""
        if self._waits:
            self._waits = False
            self._front.finish(self._head.plain.keep_alive, True, self._answered_at)

    def flushed(self) -> None:
        """See `Served`."""
        lease = self._lease
        assert lease is not None
        self._lease = None
        front = self._front
        context = front.context
        head = self._head
        peer = front.peer
        lease.release()
        started_at = self._started_at
        context.access.write(
            _new(
                AccessRecord,
                (
                    peer.client(head) if peer.trusted else peer.address,
                    head.method,
                    head.target,
                    self._status,
                    0,
                    self._bytes_out,
                    lease.session,
                    lease.container,
                    self._site.name,
                    0.0,
                    0.0,
                    self._answered_at - started_at,
                    context.seconds() - started_at,
                    "-",
                    1,
                    b"",
                    head.plain,
                ),
            )
        )

    # --- what is not straight

    def _exchange(self) -> Exchange:
        """The exchange that goes on from here with this request."""
        front = self._front
        exchange = Exchange(front, self._head, self._site, self._credential, b"")
        lease, self._lease = self._lease, None
        upstream, self._upstream = self._upstream, None
        front.replace(self, exchange)
        if lease is None:
            exchange.started(self._started_at)
            return exchange
        lease.transfer(exchange)
        if upstream is None:
            exchange.answered_already(self._started_at, lease, self._answered_at, self._status, self._bytes_out)
        else:
            if upstream.user is self:
                upstream.user = exchange
            exchange.asked_already(self._started_at, lease, upstream)
        return exchange

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
        if not self._through():
            self._exchange().session_ended(reason, detail)

    def client_gone(self) -> None:
        """See `Served`."""
        self._waits = False
        self._exchange().client_gone()

    def overdue(self, now: float) -> None:
        """See `Served`."""
        self._exchange().overdue(now)  # outside a turn: no answer waits

    def _through(self) -> bool:
        """Whether the request is over now that its answer, if it waited, is written. The client's next one may have begun."""
        if not self._waits:
            return False
        lease = self._lease
        self._front.context.turn.write_all()
        return self._lease is not lease

    def upstream_lost(self, clean: bool) -> None:
        """See `UpstreamUser`."""
        self._exchange().upstream_lost(clean)

    # --- what cannot happen to a request that has come whole, over a connection that was there

    def request_received(self, data: bytes, complete: bool) -> None:
        """See `Served`."""
        raise errors.IllegalEvent("a request without a body has got one")

    def request_broken(self) -> None:
        """See `Served`."""
        raise errors.IllegalEvent("a request without a body has got one")

    request_stalled = request_broken

    def upstream_ready(self, upstream: Upstream) -> None:
        """See `UpstreamUser`."""
        raise errors.IllegalEvent("no connection was asked for")

    def upstream_refused(self) -> None:
        """See `UpstreamUser`."""
        raise errors.IllegalEvent("no connection was asked for")

    upstream_written = upstream_refused


def _transferred(lease: ILease, exchange: Exchange) -> ILease:
    lease.transfer(exchange)
    return lease

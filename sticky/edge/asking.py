"""The request's way to its container: the lease, a connection, the bytes, and when they may be sent a second time.

A base of `relay.Exchange`. Must not know what an answer means beyond that it has begun.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from sticky import errors
from sticky.core.tokens import Claims
from sticky.edge.exchange import ExchangeEnds, Stage
from sticky.edge.handover import HandshakeFront
from sticky.edge.plain import PlainHead
from sticky.edge.upstream import Upstream
from sticky.edge.wire import container_head
from sticky.isticky import NO_SESSION, ILease, Visit

IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})  #: RFC 9110, 9.2.2
FRESH_ENOUGH = 1.0  #: seconds that a connection may have been idle for a request that cannot be sent twice
ONE_WRITE = 4096  #: bytes that an idle socket's buffer takes whole: for transports that do not say what they have left

DEATH_KNOWN_WITHIN = 5.0  #: seconds that the end of a sandbox may come later than that of its connections

_WAITING, _CONNECTING, _UPGRADING, _ASKED = Stage.WAITING, Stage.CONNECTING, Stage.UPGRADING, Stage.ASKED
_ANSWERING, _FLUSHING = Stage.ANSWERING, Stage.FLUSHING


class Asking(ExchangeEnds, ABC):
    """An exchange as far as its request is concerned."""

    __slots__ = ()

    @abstractmethod
    def answer_received(self, data: bytes) -> None:
        """Bytes from the container."""

    @abstractmethod
    def upstream_lost(self, clean: bool) -> None:
        """The container closed the connection; `clean` if by a FIN."""

    @abstractmethod
    def answered_elsewhere(self, transport: Any, data: bytes) -> None:
        """A WebSocket relay's container answered something other than 101; `data` is all that came on this connection."""

    # --- the lease

    def begin(self, claims: Claims | Visit) -> None:
        """Ask for the lease, and go on when it is there."""
        try:
            lease = self.front.context.routing.begin(claims, self, self.head.websocket)
        except errors.Refusal as error:
            self.refuse(error)
            return
        if isinstance(lease, Deferred):
            self.wait(lease)
        else:
            self.granted(lease)

    def wait(self, lease: Deferred[ILease]) -> None:
        """Go on when this lease, of which the exchange is the holder, is there."""
        self._waiting = lease
        self.half_close_timeout = None  # in a line as in a queue, a FIN means that the client is gone
        lease.addCallbacks(self._granted_late, self._not_granted).addErrback(self._went_wrong)

    def _granted_late(self, lease: ILease) -> None:
        self._waiting = None
        self.half_close_timeout = self.site.half_close_timeout
        self._granted_at = self._connected_at = self.front.context.reactor.seconds()
        self.granted(lease)

    def _not_granted(self, failure: Failure) -> None:
        self._waiting = None
        if self.stage is not _WAITING:
            return  # cancelled: the client left
        if isinstance(failure.value, errors.Refusal):
            self.refuse(failure.value)
        else:
            self.front.context.log.failure("a lease could not be had", failure)
            self.refuse(errors.Unavailable())

    def _went_wrong(self, failure: Failure) -> None:
        # A fault of ours. In the client's own turn it would end the connection; here nobody else would ever hear of it.
        self.front.context.log.failure("a request that had waited could not go on", failure)
        self.front.cut()

    def granted(self, lease: ILease) -> None:
        """Go on with this lease, of which the exchange is the holder."""
        self._lease = self._leased = lease
        front = self.front
        context = front.context
        head = self.head
        if type(head) is PlainHead:
            plain = head.plain
            if plain.session != lease.session:
                plain.get_ready(context.names.session_id, lease.session, front.peer.facts(head))
            self._container_head = head.line + plain.ready
        else:
            session = None if lease.session == NO_SESSION else lease.session.encode("ascii")
            self._container_head = container_head(head, context.names, front.peer, session)
        if head.websocket:
            self._upgrade(lease)
            return
        pool = context.upstreams.pool(lease.container, lease.address)
        upstream = pool.take(context.settings.limits.upstream_idle if head.method in IDEMPOTENT else FRESH_ENOUGH)
        if upstream is None:
            self._become(_CONNECTING)
            self._dial = pool.dial(self)
        else:
            upstream.user = self
            self._ask(upstream)

    def _upgrade(self, lease: ILease) -> None:
        relay = self.front.context.websocket_relay
        if relay is None:
            self.refuse(errors.Unavailable("WebSockets are not served here."))
            return
        self._become(_UPGRADING)
        self.half_close_timeout = None
        self._handover = handover = HandshakeFront(self)
        handover.start(relay, lease, self._container_head)

    # --- what was begun elsewhere (`straight`)

    def started(self, at: float) -> None:
        """The request had come then."""
        self._started_at = self._granted_at = self._connected_at = at

    def asked_already(self, started_at: float, lease: ILease, upstream: Upstream) -> None:
        """A whole plain request without a body is out on this connection."""
        head = self.head
        assert type(head) is PlainHead
        self._become(_ASKED)
        self.started(started_at)
        self._lease = self._leased = lease
        self._upstream = upstream
        self._asked_used = upstream.used
        self._container_head = head.line + head.plain.ready

    def answered_already(
        self, started_at: float, lease: ILease, answered_at: float, status: int, bytes_out: int
    ) -> None:
        """Its answer is written towards the client, too."""
        self._become(_FLUSHING)
        self.started(started_at)
        self._lease = self._leased = lease
        self._first_byte_at = answered_at
        self._status = status
        self._bytes_out = bytes_out

    # --- the request, towards the container

    def upstream_ready(self, upstream: Upstream) -> None:
        self._dial = None
        self._connected_at = self.front.context.reactor.seconds()
        self._ask(upstream)

    def upstream_refused(self) -> None:
        self._dial = None
        self.refuse(errors.ContainerUnavailable())

    def _ask(self, upstream: Upstream) -> None:
        self._become(_ASKED)
        self._upstream = upstream
        self._asked_used = upstream.used
        pieces, self._pending = self._pending, []
        self._pending_size = 0
        data = b"".join((self._container_head, *pieces)) if pieces else self._container_head
        upstream.transport.write(data)
        complete = self.front.request_complete
        # A transport that writes at once knows at once: once the request is out, the container may act on it, and only the
        # container's answer says what became of it (RFC 9110, 9.2.2).
        out = getattr(upstream.transport, "all_out", False)
        if upstream.used and not out and (pieces or not complete or self.head.method not in IDEMPOTENT):
            # It may be closed already, and the request must not go out twice: learn whether any of it went out at all.
            self._holding = True
            self._asked_size = len(data)
            self._unwritten = pieces if hasattr(upstream.transport, "buffered") or len(data) <= ONE_WRITE else None
            upstream.tell_when_written()
        elif not complete:
            self._open_body(upstream)
        elif pieces:
            self.front.resumeProducing()  # paused, if much came before there was a connection: its FIN must be seen
        if self.site.response_timeout is not None:
            self._expect_answer(self.site.response_timeout)

    def _open_body(self, upstream: Upstream) -> None:
        upstream.transport.registerProducer(self.front, True)
        self.front.resumeProducing()

    def upstream_written(self) -> None:
        self._holding = False
        self._unwritten = None
        upstream = self._upstream
        if upstream is None or self.stage not in (_ASKED, _ANSWERING):
            return
        pieces, self._pending = self._pending, []
        self._pending_size = 0
        if pieces:
            upstream.transport.writeSequence(pieces)
        if self.front.request_complete:
            self.front.resumeProducing()
        else:
            self._open_body(upstream)

    def request_received(self, data: bytes, complete: bool) -> None:
        self._bytes_in += len(data)
        upstream = self._upstream
        if self.stage in (_ASKED, _ANSWERING) and not self._holding and upstream is not None:
            if data:
                upstream.transport.write(data)
            if complete:
                upstream.transport.unregisterProducer()
                self.front.resumeProducing()
        elif self.stage in (_WAITING, _CONNECTING, _ASKED):
            self._pending.append(data)
            self._pending_size += len(data)
            if self._pending_size > self.front.context.settings.limits.early_bytes:
                self.front.pauseProducing()
        if self.stage is _ASKED and self.site.response_timeout is not None:
            self._expect_answer(self.site.response_timeout)

    def request_broken(self) -> None:
        if self.stage is _ANSWERING:
            self._break_off("bad_body")
        elif self.stage is not _FLUSHING:
            self._let_go()
            self.refuse(errors.BadBody(), keep=False)

    def request_stalled(self) -> None:
        if self.stage is _ANSWERING:
            self._break_off("slow_body")
        elif self.stage is not _FLUSHING:
            self._let_go()
            self.refuse(errors.SlowBody(), keep=False)

    def _expect_answer(self, within: float) -> None:
        self.front.expect_by(self.front.context.reactor.seconds() + within)

    def _unanswered(self) -> None:
        """The container closed the connection before its answer."""
        if self.site.calls:
            # The sandbox has died, as good as always, and why is about to be known: that ends the session (`session_ended`).
            self._expect_answer(DEATH_KNOWN_WITHIN)
        else:
            self.refuse(errors.BadGateway())

    def overdue(self, now: float) -> None:
        if self.stage is _ASKED:
            gone = self._upstream is None
            self._let_go()
            self.refuse(errors.BadGateway() if gone else errors.GatewayTimeout(), keep=False)

    def _ask_again(self, lost: Upstream) -> bool:
        """Whether the request goes out once more: it met a connection that its container had closed already.

        Never a third time, because the new one is `fresh`: no other request has gone out there.
        """
        lease = self._lease
        if self._first_byte_at is not None or lease is None or not self._met_stale(lost):
            return False
        self._pending[:0] = self._unwritten or ()
        self._holding = False
        self._unwritten = None
        self._become(_CONNECTING)
        self._dial = self.front.context.upstreams.pool(lease.container, lease.address).dial(self, fresh=True)
        return True

    def _met_stale(self, lost: Upstream) -> bool:
        """Whether the connection was lost so that the request can have done nothing."""
        if (
            self._unwritten is not None and getattr(lost.transport, "buffered", self._asked_size) >= self._asked_size
        ):  # not one byte of it could be written
            return True
        return (
            self._asked_used and self.head.method in IDEMPOTENT and not self._bytes_in and self.front.request_complete
        )

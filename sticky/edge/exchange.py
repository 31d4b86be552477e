"""What is true of one data request from its lease to its end: stages, the lease, and every way in which it can be cut short.

The base of `relay.Exchange`. Must not know how bytes pass: that is `asking` (towards the container) and `relay` (back).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.delivery import Delivery
from sticky.edge.parsing import RequestHead
from sticky.edge.plain import PlainHead
from sticky.edge.site import Site
from sticky.edge.upstream import Dial, Upstream
from sticky.isticky import ILease, ILeaseHolder
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.edge.credentials import Credential
    from sticky.edge.frontend import Frontend
    from sticky.edge.handover import HandshakeFront

CLIENT_GONE = 499  #: in the log only


class Stage(Enum):
    """How far an exchange is."""

    WAITING = "waiting"  # for its lease
    CONNECTING = "connecting"  # it has a lease and no connection yet
    UPGRADING = "upgrading"  # a WebSocket relay dials the container
    ASKED = "asked"  # the request is on its way, the answer's head has not come
    ANSWERING = "answering"  # the head has gone to the client, the body is passing
    FLUSHING = "flushing"  # the answer's last byte is written towards the client
    OVER = "over"

    __hash__ = object.__hash__  # Enum's own is Python code, and this is in the path of every request


STEPS: dict[Stage, tuple[Stage, ...]] = {
    Stage.WAITING: (Stage.CONNECTING, Stage.ASKED, Stage.UPGRADING, Stage.FLUSHING, Stage.OVER),
    Stage.CONNECTING: (Stage.ASKED, Stage.FLUSHING, Stage.OVER),
    Stage.UPGRADING: (Stage.ASKED, Stage.FLUSHING, Stage.OVER),
    Stage.ASKED: (Stage.CONNECTING, Stage.ANSWERING, Stage.FLUSHING, Stage.OVER),  # CONNECTING: a stale connection
    Stage.ANSWERING: (Stage.FLUSHING, Stage.OVER),
    Stage.FLUSHING: (Stage.OVER,),
    Stage.OVER: (),
}

_WAITING, _CONNECTING, _UPGRADING, _ASKED = Stage.WAITING, Stage.CONNECTING, Stage.UPGRADING, Stage.ASKED
_ANSWERING, _FLUSHING, _OVER = Stage.ANSWERING, Stage.FLUSHING, Stage.OVER


@implementer(ILeaseHolder)
class ExchangeEnds:
    """One request's stage, lease and facts, and its ends."""

    __slots__ = (
        "__weakref__",
        "_asked_size",
        "_asked_used",
        "_bytes_in",
        "_bytes_out",
        "_connected_at",
        "_container_head",
        "_delivery",
        "_dial",
        "_first_byte_at",
        "_granted_at",
        "_handover",
        "_holding",
        "_informational",
        "_keep",
        "_lease",
        "_leased",
        "_pending",
        "_pending_size",
        "_reason",
        "_received",
        "_reusable",
        "_searched",
        "_started_at",
        "_status",
        "_unwritten",
        "_upstream",
        "_waiting",
        "credential",
        "front",
        "half_close_timeout",
        "head",
        "site",
        "stage",
    )

    def __init__(
        self, front: Frontend, head: RequestHead, site: Site, credential: Credential | None, first: bytes
    ) -> None:
        """`first`: what has come of the body so far, as it is to be forwarded."""
        self.front = front
        self.head = head
        self.site = site
        self.credential = credential
        self.half_close_timeout: float | None = site.half_close_timeout
        self.stage = _WAITING
        self._pending: list[bytes] = [first] if first else []  # of the body, for a connection that is not there yet
        self._pending_size = self._bytes_in = len(first)
        self._started_at = self._granted_at = self._connected_at = front.context.reactor.seconds()
        self._first_byte_at: float | None = None
        self._waiting: Deferred[ILease] | None = None
        self._lease: ILease | None = None  # while it counts
        self._leased: ILease | None = None  # for the log
        self._container_head = b""
        self._dial: Dial | None = None
        self._handover: HandshakeFront | None = None
        self._upstream: Upstream | None = None
        self._asked_used = False  # the connection had served another request before
        self._asked_size = 0  # bytes of the first write to it
        self._holding = False  # what was written to a used connection may not have left
        self._unwritten: list[bytes] | None = None  # body pieces among it, if none or all of it was written
        self._received = b""  # of an answer's head
        self._searched = 0
        self._informational = 0
        self._delivery: Delivery | None = None
        self._keep = head.keep_alive
        self._reusable = False
        self._bytes_out = 0
        self._status = 0
        self._reason = "-"

    def _become(self, stage: Stage) -> None:
        if stage not in STEPS[self.stage]:
            raise errors.IllegalEvent(f"an exchange cannot go from {self.stage.value} to {stage.value}")
        self.stage = stage

    # --- the lease's end

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """From the lease's other side; it is released already."""
        self._lease = None
        self._reason = reason.value
        if self.stage in (_WAITING, _CONNECTING, _UPGRADING, _ASKED):
            self._let_go()
            # A plain Server's request has lost its container, not a session: another one may serve it.
            error = errors.SessionEnded(reason.value, detail) if self.site.sessioned else errors.BadGateway()
            self.refuse(error, keep=False)
        elif self.stage is _ANSWERING:
            self._break_off(reason.value)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    # --- a handshake

    def handed_over(self) -> AccessRecord:
        """A relay has the client and the lease. What is known so far for the access log; `total` is the time until now."""
        self._become(_OVER)
        self._handover = None
        self._lease = None
        self._status = 101
        return self._record()

    def taken_back(self) -> None:
        """The relay gave up: it is an ordinary request again."""
        self._handover = None
        self.half_close_timeout = self.site.half_close_timeout

    # --- the client's side of the end

    def refuse(self, error: errors.Refusal, keep: bool = True) -> None:
        """Nothing of an answer has gone out: answer with this error. The lease counts until the client has it."""
        self._reason = error.code
        self._become(_FLUSHING)
        self.front.context.gate.refuse(
            self.front, self.head, self.site, self.credential, error, keep=keep and self._keep, note=self._noted
        )

    def _noted(self, status: int, sent: int) -> None:
        self._status = status
        self._bytes_out += sent

    def client_gone(self) -> None:
        """The client left: the container's work stops, and the request counts no longer, in this step."""
        if self.stage is _OVER:
            return
        self._become(_OVER)
        self._let_go()
        self._release()
        self._status = CLIENT_GONE
        self._log()

    def flushed(self) -> None:
        """The client's kernel side has the whole answer."""
        self._become(_OVER)
        self._release()
        self._log()

    def _break_off(self, reason: str) -> None:
        """The answer has begun and cannot be completed: never let it look complete."""
        delivery = self._delivery
        assert delivery is not None
        self._reason = reason
        self._become(_OVER)
        self._let_go()
        self._release()
        self.front.transport.unregisterProducer()
        self.front.break_off(delivery.shows_its_end)
        self._log()

    def _let_go(self) -> None:
        """Stop whatever is under way towards the container."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.cancel()
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.gone()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.drop()

    def _log(self) -> None:
        self.front.context.access.write(self._record())

    def _record(self) -> AccessRecord:
        front = self.front
        head = self.head
        started = self._started_at
        lease, self._leased = self._leased, None  # its holder is this exchange: a cycle for the garbage collector
        first = self._first_byte_at
        return AccessRecord(
            front.peer.client(head),
            head.method,
            head.target,
            self._status,
            self._bytes_in,
            self._bytes_out,
            "-" if lease is None else lease.session,
            "-" if lease is None else lease.container,
            self.site.name,
            None if lease is None else self._granted_at - started,
            None if lease is None else self._connected_at - started,
            None if first is None else first - started,
            front.context.reactor.seconds() - started,
            self._reason,
            head.minor,
            head.block,
            head.plain if type(head) is PlainHead else None,
        )

"""A handshake between the HTTP side and the WebSocket relay: the relay's front, and the 101 that only brings a reason.

Must not know frames beyond the one Close that is written here, nor how a relay works (`handshake.IWebSocketFront`).
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.edge.credentials import application_offers, first_offer, subprotocol_echo
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.parsing import RequestHead
from sticky.edge.wire import Names, close_code
from sticky.isticky import Address, ILease, ILeaseHolder
from sticky.observe.access import AccessRecord, self_contained

if TYPE_CHECKING:
    from sticky.edge.asking import Asking
    from sticky.edge.doors import Doors

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
SESSION_OVER = 4410  #: for a reason that is no `EndReason`


@implementer(ILease)
class CountedLease:
    """A session's lease in the hands of a relay: when it ends, the client is counted as gone, unless the front has it still."""

    __slots__ = ("_address", "_doors", "_lease")

    @property
    def session(self) -> SessionId:
        return self._lease.session

    @property
    def container(self) -> ContainerId:
        return self._lease.container

    @property
    def address(self) -> Address:
        return self._lease.address

    def __init__(self, lease: ILease, doors: Doors, address: str) -> None:
        self._lease = lease
        self._doors: Doors | None = doors
        self._address = address

    def transfer(self, holder: ILeaseHolder) -> None:
        """The lease's own."""
        self._lease.transfer(holder)

    def release(self) -> None:
        """The relay is over."""
        doors, self._doors = self._doors, None
        if doors is not None:
            doors.left(self._address)
        self._lease.release()

    def suspend(self) -> None:
        """The lease's own."""
        self._lease.suspend()

    def resume(self) -> None:
        """The lease's own."""
        self._lease.resume()

    def uncount(self) -> None:
        """The front has the client: it counts it itself."""
        self._doors = None


@implementer(IWebSocketFront)
class HandshakeFront:
    """The client's side of one handshake, until the relay has decided."""

    __slots__ = ("_context", "_exchange", "_gone", "_joined_at", "_lease", "_record", "transport")

    def __init__(self, exchange: Asking) -> None:
        self.transport = exchange.front.transport
        self._exchange: Asking | None = exchange
        self._gone: Callable[[], None] | None = None
        self._lease: CountedLease | None = None
        self._context = exchange.front.context
        self._record: AccessRecord | None = None  # once it is a WebSocket
        self._joined_at = 0.0

    def start(self, relay: Callable[[IWebSocketFront, Handshake, ILease], None], lease: ILease, head: bytes) -> None:
        """Hand the handshake to the relay; `head` is what goes to the container."""
        exchange = self._exchange
        assert exchange is not None
        front = exchange.front
        names = front.context.names
        handshake = Handshake(
            exchange.head,
            head,
            application_offers(exchange.head, names),
            subprotocol_echo(exchange.head, names),
            exchange.site.websocket,
        )
        self._lease = CountedLease(lease, front.context.doors, front.peer.address)
        relay(self, handshake, self._lease)

    def _decided(self) -> tuple[Asking, CountedLease]:
        exchange, self._exchange, self._gone = self._exchange, None, None
        lease, self._lease = self._lease, None
        if exchange is None or lease is None:
            raise errors.IllegalEvent("this handshake was decided before, or its client is gone")
        return exchange, lease

    def take_over(self) -> bytes:
        exchange, _ = self._decided()
        self._record = self_contained(exchange.handed_over())
        self._joined_at = self._context.reactor.seconds()
        return exchange.front.take_over()

    def over(self, reason: str, received: int, sent: int) -> None:
        record, self._record = self._record, None
        if record is None:
            raise errors.IllegalEvent("this handshake never was a WebSocket, or its end was told before")
        total = record.total + self._context.reactor.seconds() - self._joined_at
        self._context.access.write(record._replace(reason=reason, bytes_in=received, bytes_out=sent, total=total))

    def refuse(self, error: errors.Refusal) -> None:
        exchange, lease = self._decided()
        lease.uncount()
        lease.transfer(exchange)
        exchange.taken_back()
        exchange.refuse(error)

    def pass_on(self, upstream_transport: Any, data: bytes) -> None:
        exchange, lease = self._decided()
        lease.uncount()
        lease.transfer(exchange)
        exchange.taken_back()
        exchange.answered_elsewhere(upstream_transport, data)

    def on_gone(self, gone: Callable[[], None]) -> None:
        self._gone = gone

    def gone(self) -> None:
        """The client left, or the session ended: tell the relay."""
        if self._lease is not None:
            self._lease.uncount()
        gone, self._gone, self._exchange, self._lease = self._gone, None, None, None
        if gone is not None:
            gone()


def wants_close_frame(head: RequestHead, refusal: str) -> bool:
    """Whether an ended session is told by a Close frame: a browser shows an HTTP refusal of a handshake as a bare 1006."""
    return head.websocket and refusal == "close" and head.value(b"origin") is not None


def closed_handshake(head: RequestHead, code: str, names: Names) -> bytes:
    """A handshake that is accepted and closed at once with this reason (wire.md). `code`: of an `errors.SessionEnded`."""
    try:
        number = close_code(EndReason(code))
    except ValueError:
        number = SESSION_OVER
    key = head.value(b"sec-websocket-key") or b""
    accept = base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID, usedforsecurity=False).digest())
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + accept,
    ]
    offer = first_offer(head, names)
    if offer is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + offer)
    payload = struct.pack("!H", number) + code.encode("ascii")[:123]
    return b"\r\n".join((*lines, b"", b"")) + bytes((0x88, len(payload))) + payload

"""A front for the WebSocket relay on a real transport, in place of the HTTP frontend: reads one head, hands it over, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, SessionId
from sticky.edge.grammar import HeadLimits, members
from sticky.edge.handshake import Handshake, IWebSocketFront, RelayRules
from sticky.edge.parsing import find_request_end, parse_request
from sticky.edge.websocket import WebSocketRelays
from sticky.isticky import Address, ILease

LIMITS = HeadLimits()
CONTAINER = ContainerId("ct-0123456789012345678901")
KEPT = 65_536  #: bytes that a client may send before it is answered


@implementer(ILease)
class FakeLease:
    """A lease that remembers what was done with it."""

    def __init__(self, address: Address, container: ContainerId = CONTAINER) -> None:
        self.session = SessionId("sd-0123456789012345678901")
        self.container = container
        self.address = address
        self.holder: Any = None
        self.released = 0
        self.counts = True
        self.over: Exception | None = None  #: what `resume` raises

    def suspend(self) -> None:
        """Remembered."""
        self.counts = False

    def resume(self) -> None:
        """Remembered, or refused."""
        if self.over is not None:
            raise self.over
        self.counts = True

    def release(self) -> None:
        """Counted."""
        self.released += 1

    def transfer(self, holder: object) -> None:
        """Remembered."""
        self.holder = holder


class Splice(Protocol):
    """Everything from a container to a client, as an ordinary response would go."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def dataReceived(self, data: bytes) -> None:
        """On."""
        self.client.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The response is over."""
        self.client.loseConnection()


@implementer(IWebSocketFront)
class WSFront(Protocol):
    """The front's side of one client."""

    transport: Any

    def __init__(self, factory: WSFrontFactory) -> None:
        self.home = factory
        self.buffer = b""
        self.lease: FakeLease | None = None
        self.done = ""  #: which of the calls that end a handshake came
        self.refusal: errors.Refusal | None = None
        self._gone: Callable[[], None] | None = None
        self.ended: tuple[str, int, int] | None = None

    def dataReceived(self, data: bytes) -> None:
        """Head first; what follows is kept."""
        searched = len(self.buffer)
        self.buffer += data
        if self.lease is not None:
            if len(self.buffer) > KEPT:
                self.transport.pauseProducing()
            return
        end = find_request_end(self.buffer, searched, LIMITS)
        if end < 0:
            return
        head = parse_request(self.buffer[:end], LIMITS)
        raw, self.buffer = self.buffer[:end], self.buffer[end:]
        offers = tuple(m for value in head.values(b"sec-websocket-protocol") for m in members(value))
        handshake = Handshake(head, raw[:-2] + self.home.added + b"\r\n", offers, self.home.echo, self.home.rules)
        self.lease = FakeLease(self.home.address)
        self.home.leases.append(self.lease)
        self.home.relays.relay(self, handshake, self.lease)

    def take_over(self) -> bytes:
        """As the interface says."""
        self.done += "taken"
        self.transport.resumeProducing()
        early, self.buffer = self.buffer, b""
        return early

    def over(self, reason: str, received: int, sent: int) -> None:
        """Remembered."""
        self.ended = (reason, received, sent)

    def refuse(self, error: errors.Refusal) -> None:
        """A short answer."""
        self.done += "refused"
        self.refusal = error
        self._gone = None
        body = error.code.encode()
        self.transport.write(
            b"HTTP/1.1 %d Refused\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (error.status, len(body), body)
        )
        self.transport.loseConnection()
        if self.lease is not None:
            self.lease.release()

    def pass_on(self, upstream_transport: Any, data: bytes) -> None:
        """The answer streams on."""
        self.done += "passed"
        self._gone = None
        self.transport.resumeProducing()
        upstream_transport.protocol = Splice(self.transport)
        self.transport.write(data)
        if self.lease is not None:
            self.lease.release()

    def on_gone(self, gone: Callable[[], None]) -> None:
        """Remembered."""
        self._gone = gone

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client left."""
        gone, self._gone = self._gone, None
        if gone is not None and not self.done:
            gone()


class WSFrontFactory(Factory):
    """Fronts for one container's address."""

    noisy = False

    def __init__(self, relays: WebSocketRelays, address: Address, rules: RelayRules | None = None) -> None:
        self.rules = rules or RelayRules()
        self.relays = relays
        self.address = address
        self.added = b"x-modal-server-session-id: sd-1\r\n"
        self.echo: bytes | None = None
        self.fronts: list[WSFront] = []
        self.leases: list[FakeLease] = []

    def buildProtocol(self, addr: object) -> WSFront:
        """One for each client."""
        front = WSFront(self)
        self.fronts.append(front)
        return front

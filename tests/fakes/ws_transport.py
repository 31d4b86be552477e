"""A transport with a bounded buffer in memory, a reactor that connects to it, and a relay between two of them.

It does what Twisted's transports do where the relay depends on it: pauses its producer above 64 KiB, never reports a loss from
within a call, and never finishes closing while a producer is registered. It is stricter in one: a write after
`loseConnection` is an error here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet import error
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.edge.grammar import HeadLimits
from sticky.edge.handshake import Handshake, IWebSocketFront, RelayRules
from sticky.edge.parsing import parse_request
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from sticky.isticky import Address, TCPAddress, UNIXAddress
from tests.fakes.ws_front import FakeLease
from tests.strategies_frames import Frame, encode, parse

HIGH_WATER = 65_536

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of that key: RFC 6455, 1.3
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nconnection: upgrade\r\nSec-WebSocket-Accept: " + ACCEPT
) + b"\r\nX-Name: \xc3\x85\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"


class FakeTransport:
    """One end of a connection."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.protocol: Any = None
        self.out = b""  #: what the peer has
        self.pending = b""  #: written and not taken
        self.stalled = False  #: the peer does not read
        self.inbox: list[bytes] = []
        self.paused = False
        self.producer: Any = None
        self.producing = True
        self.closing = self.aborted = self.lost = False

    # --- for the protocol

    def write(self, data: bytes) -> None:
        """Like a transport's."""
        if self.lost:
            return
        if self.closing:
            raise AssertionError("a write after loseConnection")
        self.pending += data
        if self.stalled and self.producer is not None and len(self.pending) > HIGH_WATER and self.producing:
            self.producing = False
            self.producer.pauseProducing()
        self._drain()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Push producers only."""
        if self.producer is not None or not streaming:
            raise RuntimeError("a producer too many")
        self.producer = producer
        self.producing = True

    def unregisterProducer(self) -> None:
        """Does not resume it."""
        self.producer = None
        self._finish()

    def pauseProducing(self) -> None:
        """Stop reading."""
        self.paused = True

    def resumeProducing(self) -> None:
        """Read again."""
        self.paused = False
        self.clock.callLater(0, self._read)

    def loseConnection(self) -> None:
        """Close when all is written and no producer is left."""
        self.closing = True
        self._finish()

    def abortConnection(self) -> None:
        """Close now."""
        if not self.aborted and not self.lost:
            self.closing = self.aborted = True
            self.clock.callLater(0, self.lose, error.ConnectionAborted())

    # --- for the test

    def deliver(self, data: bytes) -> None:
        """The peer sends this."""
        self.inbox.append(data)
        self._read()

    def resume(self) -> None:
        """The peer reads again."""
        self.stalled = False
        self._drain()

    def lose(self, reason: Exception | None = None) -> None:
        """The connection is gone."""
        if not self.lost:
            self.lost = True
            if self.producer is not None:
                self.producer.stopProducing()
                self.producer = None
            self.protocol.connectionLost(Failure(reason or error.ConnectionLost()))

    def frames(self) -> list[Frame]:
        """What the peer has got since the last look, as frames."""
        found, self.out = parse(self.out), b""
        return found

    def _read(self) -> None:
        while self.inbox and not self.paused and not self.lost and not self.aborted:
            self.protocol.dataReceived(self.inbox.pop(0))

    def _drain(self) -> None:
        if self.stalled:
            return
        self.out += self.pending
        self.pending = b""
        if self.producer is not None and not self.producing:
            self.producing = True
            self.producer.resumeProducing()
        self._finish()

    def _finish(self) -> None:
        if self.closing and not self.pending and self.producer is None and not self.lost:
            self.clock.callLater(0, self.lose, error.ConnectionDone())


class FakeReactor(Clock):
    """Dials are decided by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.dials: list[FakeConnector] = []

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> FakeConnector:
        """Wait for the test."""
        self.dials.append(FakeConnector(self, TCPAddress(host, port), factory, timeout))
        return self.dials[-1]

    def connectUNIX(self, path: str, factory: Any, timeout: float = 30) -> FakeConnector:
        """Wait for the test."""
        self.dials.append(FakeConnector(self, UNIXAddress(path), factory, timeout))
        return self.dials[-1]


class FakeConnector:
    """One attempt."""

    def __init__(self, reactor: FakeReactor, address: Address, factory: Any, timeout: float) -> None:
        self.reactor = reactor
        self.timeout = timeout
        self.address = address
        self.factory = factory
        self.given_up = False

    def disconnect(self) -> None:
        """The dial is given up."""
        if not self.given_up:
            self.given_up = True
            self.factory.clientConnectionFailed(self, Failure(error.UserError()))

    def succeed(self) -> FakeTransport | None:
        """The container accepts."""
        transport = FakeTransport(self.reactor)
        protocol = self.factory.buildProtocol(None)
        if protocol is None:
            return None
        transport.protocol = protocol
        protocol.makeConnection(transport)
        return transport

    def fail(self) -> None:
        """It does not."""
        self.given_up = True
        self.factory.clientConnectionFailed(self, Failure(error.ConnectionRefusedError()))


@implementer(IWebSocketFront)
class FakeFront:
    """A front that remembers what it was asked for."""

    def __init__(self, transport: FakeTransport) -> None:
        self.transport: Any = transport
        self.early = b""
        self.calls: list[str] = []
        self.ended: tuple[str, int, int] | None = None
        self.refusal: errors.Refusal | None = None
        self.passed: tuple[Any, bytes] | None = None
        self.gone: Callable[[], None] | None = None

    def take_over(self) -> bytes:
        """Give what came early."""
        self.calls.append("take_over")
        return self.early

    def over(self, reason: str, received: int, sent: int) -> None:
        """Remember how it ended."""
        self.calls.append("over")
        self.ended = (reason, received, sent)

    def refuse(self, error: errors.Refusal) -> None:
        """Remember the error."""
        self.calls.append("refuse")
        self.refusal = error

    def pass_on(self, upstream_transport: Any, data: bytes) -> None:
        """Remember what came."""
        self.calls.append("pass_on")
        self.passed = (upstream_transport, data)

    def on_gone(self, gone: Callable[[], None]) -> None:
        """Remember whom to call."""
        self.gone = gone


def handshake(offers: tuple[bytes, ...] = (), echo: bytes | None = None) -> Handshake:
    """A browser's handshake."""
    head = (
        b"GET /chat?room=1 HTTP/1.1\r\nHost: app.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\nOrigin: https://app.example\r\n\r\n"
    )
    return Handshake(parse_request(head, HeadLimits()), head, offers, echo)


class Relayed:
    """One WebSocket through a relay; `client` and `container` are the transports that the relay writes to."""

    def __init__(
        self, times: RelayTimes | None = None, address: Address | None = None, rules: RelayRules | None = None
    ) -> None:
        self.rules = rules or RelayRules()
        self.reactor = FakeReactor()
        self.relays = WebSocketRelays(self.reactor, times)
        self.lease = FakeLease(address or TCPAddress("127.0.0.1", 1))
        self.client = FakeTransport(self.reactor)
        self.front = FakeFront(self.client)
        self.container = FakeTransport(self.reactor)

    def ask(self, asked: Handshake | None = None) -> FakeConnector:
        """Give the relay a handshake; it dials."""
        self.relays.relay(self.front, attrs.evolve(asked or handshake(), rules=self.rules), self.lease)
        return self.reactor.dials[-1]

    def connect(self, asked: Handshake | None = None) -> FakeTransport:
        """The container accepts the connection, and has got the head."""
        transport = self.ask(asked).succeed()
        assert transport is not None
        self.container = transport
        return transport

    def open(self, asked: Handshake | None = None, early: bytes = b"", answer: bytes = SWITCHED) -> Relayed:
        """All the way; what the handshake wrote is forgotten. `early`: comes with the container's 101."""
        self.connect(asked).deliver(answer + early)
        assert self.front.calls == ["take_over"], (self.front.calls, self.front.refusal)
        self.container.out = b""
        self.client.out = self.client.out.partition(b"\r\n\r\n")[2]
        return self

    def settle(self, seconds: float = 0.0) -> None:
        """Let what is due happen, second by second."""
        self.reactor.advance(0)
        while seconds > 0:
            step = min(seconds, 0.25)
            self.reactor.advance(step)
            self.reactor.advance(0)
            seconds -= step

    def from_client(self, opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
        """The client sends a frame; returns its bytes."""
        raw = encode(Frame(opcode, payload, fin, masked=True))
        self.client.deliver(raw)
        return raw

    def from_container(self, opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
        """The container sends a frame; returns its bytes."""
        raw = encode(Frame(opcode, payload, fin))
        self.container.deliver(raw)
        return raw

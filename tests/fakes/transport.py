"""Fake stream transports with a bounded buffer and honest pause, half-close and abort; and a reactor that connects to them.

What is written goes to the peer only when the test lets it (`drain`), at most as much as it says; a producer is paused above
`HIGH` bytes and resumed when the buffer is empty, as Twisted's own transports do it. Nothing is delivered to a paused
protocol: the peer's bytes, and its FIN after them, wait.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IConsumer, IHalfCloseableProtocol, IPushProducer, ITCPTransport
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

HIGH = 65_536


@implementer(ITCPTransport, IConsumer, IPushProducer)
class FakeTransport:
    """One end of a connection, in the hands of a protocol of ours; the test plays the peer."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock
        self.protocol: Any = None
        self.taken = b""  # what the peer has got
        self.buffer = b""  # what we wrote and the kernel has not taken
        self.most = 0  # the most that was ever buffered
        self.writes = 0
        self.producer: Any = None
        self.streaming = False
        self.producer_paused = False
        self.reading = True
        self.waiting: list[bytes | None] = []  # from the peer; None is its FIN
        self.disconnecting = False
        self.write_shut = False
        self.fin_sent = False
        self.lost = False
        self.aborted = False
        self.no_delay = False
        self.keep_alive = False

    def connect(self, protocol: Any) -> None:
        self.protocol = protocol
        protocol.makeConnection(self)

    # --- what the protocol under test calls

    def write(self, data: bytes) -> None:
        if self.lost or self.aborted or self.fin_sent or not data:
            return
        self.writes += 1
        self.buffer += data
        self.most = max(self.most, len(self.buffer))
        if self.producer is not None and self.streaming and len(self.buffer) > HIGH:
            self.producer_paused = True
            self.producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def startWriting(self) -> None:
        """As a file descriptor's: `drain` looks at an empty buffer, too."""

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self.producer is not None:
            raise RuntimeError("a producer is registered already")
        if self.lost:
            producer.stopProducing()
            return
        self.producer, self.streaming, self.producer_paused = producer, streaming, False
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        self.producer = None

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        if not self.lost and not self.disconnecting:
            self.reading = True
            self._deliver()

    def stopProducing(self) -> None:
        self.loseConnection()

    def loseConnection(self) -> None:
        if self.fin_sent and not self.lost:
            self._lose(ConnectionDone())
        elif not self.lost:
            self.disconnecting = True
            self.reading = False

    def loseWriteConnection(self) -> None:
        self.write_shut = True

    def abortConnection(self) -> None:
        if self.lost or self.aborted:
            return
        self.aborted = True
        self.reading = False
        if self.clock is None:
            self._lose(ConnectionAborted())
        else:
            self.clock.callLater(0, self._lose, ConnectionAborted())

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = bool(enabled)

    def getTcpNoDelay(self) -> bool:
        return self.no_delay

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.keep_alive = bool(enabled)

    def getTcpKeepAlive(self) -> bool:
        return self.keep_alive

    def getHost(self) -> Any:
        return None

    def getPeer(self) -> Any:
        return None

    # --- what the test does as the peer and as the kernel

    def drain(self, size: int | None = None) -> bytes:
        """The kernel takes this much (all of it); what follows from an empty buffer happens. Returns what was taken now."""
        if self.lost or self.aborted:
            return b""
        taken, self.buffer = (self.buffer, b"") if size is None else (self.buffer[:size], self.buffer[size:])
        self.taken += taken
        if self.buffer:
            return taken
        if self.producer is not None and (not self.streaming or self.producer_paused):
            self.producer_paused = False
            self.producer.resumeProducing()
        elif self.disconnecting and self.producer is None:
            self._lose(ConnectionDone())
        elif self.write_shut and not self.fin_sent:
            self.fin_sent = True
            half = IHalfCloseableProtocol(self.protocol, None)
            if half is not None:
                half.writeConnectionLost()
        return taken

    def receive(self, data: bytes) -> None:
        """The peer sends."""
        self.waiting.append(data)
        self._deliver()

    def receive_fin(self) -> None:
        """The peer shuts its sending side."""
        self.waiting.append(None)
        self._deliver()

    def receive_reset(self) -> None:
        """The peer resets the connection, and the kernel says so."""
        self._lose(ConnectionLost())

    def _deliver(self) -> None:
        while self.waiting and self.reading and not self.lost and not self.aborted:
            data = self.waiting.pop(0)
            if data is not None:
                self.protocol.dataReceived(data)
                continue
            self.reading = False
            half = IHalfCloseableProtocol(self.protocol, None)
            if half is None:
                self._lose(ConnectionDone())
            else:
                half.readConnectionLost()

    def _lose(self, reason: Exception) -> None:
        if self.lost:
            return
        self.lost = True
        self.reading = False
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.stopProducing()
        self.protocol.connectionLost(Failure(reason))


class EagerTransport(FakeTransport):
    """One that writes at once, and says what the kernel has not taken, as ours do. `room`: bytes that it takes at once."""

    room: int | None = None  # all

    @property
    def buffered(self) -> int:
        return len(self.buffer)

    @property
    def all_out(self) -> bool:
        return not (self.buffer or self.lost or self.aborted)

    def write(self, data: bytes) -> None:
        empty = not self.buffer
        super().write(data)
        if empty and self.buffer and not (self.lost or self.aborted or self.fin_sent):
            size = len(self.buffer) if self.room is None else self.room
            self.taken, self.buffer = self.taken + self.buffer[:size], self.buffer[size:]


class FakeConnector:
    """One attempt to connect, decided by the test."""

    def __init__(self, reactor: FakeReactor, factory: Any, address: object) -> None:
        self.reactor = reactor
        self.factory = factory
        self.address = address
        self.open = True

    def succeed(self) -> FakeTransport:
        """The connection stands; the test is the container."""
        self.open = False
        transport = self.reactor.transport(self.reactor)
        transport.connect(self.factory.buildProtocol(None))
        return transport

    def fail(self, reason: Exception | None = None) -> None:
        if self.open:
            self.open = False
            self.factory.clientConnectionFailed(self, Failure(reason or ConnectionRefusedError()))

    def disconnect(self) -> None:
        self.fail(ConnectionAborted())

    stopConnecting = disconnect


class FakeReactor(Clock):
    """A clock that also dials; `dials` are the attempts in order."""

    transport: type[FakeTransport] = FakeTransport  # of the connections that it makes

    def __init__(self) -> None:
        super().__init__()
        self.dials: list[FakeConnector] = []

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> FakeConnector:
        self.dials.append(FakeConnector(self, factory, (host, port)))
        return self.dials[-1]

    def connectUNIX(self, path: str, factory: Any, timeout: float = 30) -> FakeConnector:
        self.dials.append(FakeConnector(self, factory, path))
        return self.dials[-1]

    @property
    def undecided(self) -> list[FakeConnector]:
        """Attempts that are under way."""
        return [dial for dial in self.dials if dial.open]

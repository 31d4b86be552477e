"""Peers for the WebSocket relay on real sockets: hand-made ones in Twisted, and others' servers and clients in threads."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from autobahn.twisted.websocket import (
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from autobahn.websocket.compress import (
    PerMessageDeflateOffer,
    PerMessageDeflateOfferAccept,
    PerMessageDeflateResponseAccept,
)
from twisted.internet import reactor as default_reactor
from twisted.internet import ssl
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import ClientFactory, Factory, Protocol, connectionDone
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from sticky.edge.accepting import Acceptor
from sticky.edge.dialling import Dialler
from sticky.edge.handshake import RelayRules
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from sticky.isticky import Address, TCPAddress, UNIXAddress
from tests.fakes.ws_front import WSFrontFactory

reactor: Any = default_reactor
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def accept(key: bytes) -> bytes:
    """RFC 6455, 4.2.2."""
    return base64.b64encode(hashlib.sha1(key + MAGIC).digest())


@implementer(IHalfCloseableProtocol)
class Raw(Protocol):
    """A peer by hand: what came is in `got`; `until` waits."""

    transport: Any

    def __init__(self) -> None:
        self.got = bytearray()
        self.fin = self.gone = False
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what may come from the connection."""
        if not condition():
            waiting: Deferred[None] = Deferred()
            self._waiting.append((condition, waiting))
            await waiting

    async def end(self) -> None:
        """Wait for the connection's end, clean or not."""
        await self.until(lambda: self.gone or self.fin)

    def dataReceived(self, data: bytes) -> None:
        """Kept."""
        self.got += data
        self._look()

    def readConnectionLost(self) -> None:
        """FIN."""
        self.fin = True
        self._look()

    def writeConnectionLost(self) -> None:
        """Nothing."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The end."""
        self.gone = True
        self._look()

    def _look(self) -> None:
        ready = [entry for entry in self._waiting if entry[0]()]
        self._waiting = [entry for entry in self._waiting if entry not in ready]
        for _, waiting in ready:
            waiting.callback(None)


class RawContainer(Raw):
    """A container that answers 101 by itself; its `got` begins after the head."""

    answer: bytes | None = None  #: instead of a 101
    extra = b""  #: lines for the 101
    early = b""  #: in the segment of the 101

    def connectionMade(self) -> None:
        """Nothing yet."""
        self.head = b""

    def dataReceived(self, data: bytes) -> None:
        """Head first."""
        if self.head.endswith(b"\r\n\r\n"):
            super().dataReceived(data)
            return
        head, end, rest = (self.head + data).partition(b"\r\n\r\n")
        self.head = head + end
        if end:
            if self.answer is not None:
                self.transport.write(self.answer)
            else:
                key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
                self.transport.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: " + accept(key.split(b":")[1].strip()) + b"\r\n" + self.extra + b"\r\n"
                    + self.early
                )  # fmt: skip
            super().dataReceived(rest)


class One(Factory):
    """A factory that remembers its protocols, for either side."""

    noisy = False

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.made: list[Any] = []
        self.first: Deferred[Any] = Deferred()

    def buildProtocol(self, addr: object) -> Any:
        """One more."""
        protocol = self.make()
        self.made.append(protocol)
        if not self.first.called:
            self.first.callback(protocol)
        return protocol


class OneClient(ClientFactory, One):
    """The same as a client."""

    noisy = False

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        """The test's own fault."""
        self.first.errback(reason)


def request(*lines: bytes, target: bytes = b"/chat") -> bytes:
    """A browser's handshake."""
    head = (
        b"GET " + target + b" HTTP/1.1",
        b"Host: app.example",
        b"Connection: keep-alive, Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: " + KEY,
        *lines,
    )
    return b"\r\n".join(head) + b"\r\n\r\n"


class RelayCase(TestCase):
    """A relay between a port and whatever the test listens with. `times` and `rules` may be set before `relayed`."""

    timeout = 60
    unix = False
    tls = False
    own_transports = True  #: the edge's own, as in the daemon; False: Twisted's, which TLS and odd endpoints bring
    times = RelayTimes()
    rules = RelayRules(ping_interval=0)

    def listen(self, factory: Any) -> Address:
        """Listen as a container, with a Twisted factory."""
        if self.unix:
            folder = tempfile.mkdtemp(prefix="ws")
            path = os.path.join(folder, "c")
            port = reactor.listenUNIX(path, factory)
            self.addCleanup(os.rmdir, folder)
            self.addCleanup(port.stopListening)
            return UNIXAddress(path)
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return TCPAddress("127.0.0.1", port.getHost().port)

    def relayed(self, address: Address) -> int:
        """Put the relay before this container; returns its port."""
        self.relays = WebSocketRelays(Dialler(reactor) if self.own_transports else reactor, self.times)
        self.fronts = WSFrontFactory(self.relays, address, self.rules)
        if self.tls:
            pair = ssl.KeyPair.generate().selfSignedCert(1, CN="localhost")
            options = ssl.CertificateOptions(
                privateKey=pair.privateKey.original, certificate=pair.original, acceptableProtocols=[b"http/1.1"]
            )
            port = reactor.listenSSL(0, self.fronts, options, interface="127.0.0.1")
        else:
            port = reactor.listenTCP(0, self.fronts, interface="127.0.0.1")
            if self.own_transports:
                port = Acceptor(port, lambda *texts, **fields: self.fail(texts))
        self.addCleanup(self.over, self.relays, self.fronts)
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def over(self, relays: WebSocketRelays, fronts: WSFrontFactory) -> None:
        """Nothing is left of any relay, and each lease was released once."""
        await self.until(lambda: relays.open == relays.dialling == 0)
        await relays.close_all()
        self.assertEqual({lease.released for lease in fronts.leases} - {1}, set())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Poll; the test's own time-out bounds it."""
        while not condition():
            turn: Deferred[None] = Deferred()
            reactor.callLater(0.01, turn.callback, None)
            await turn

    async def dial(self, port: int, factory: Any | None = None) -> Any:
        """Connect as a client; raw unless a factory is given."""
        one = factory or OneClient(Raw)
        if self.tls:
            connector = reactor.connectSSL("127.0.0.1", port, one, ssl.CertificateOptions())
        else:
            connector = reactor.connectTCP("127.0.0.1", port, one)
        self.addCleanup(connector.disconnect)
        protocol = await one.first
        await self.until(lambda: protocol.transport is not None)
        return protocol

    async def pair(self, container: type[RawContainer] = RawContainer, *lines: bytes) -> tuple[Raw, RawContainer]:
        """Two raw peers, joined; the client's `got` begins after the 101."""
        factory = One(container)
        port = self.relayed(self.listen(factory))
        client: Raw = await self.dial(port)
        client.transport.write(request(*lines))
        await client.until(lambda: b"\r\n\r\n" in client.got)
        self.head, _, client.got = client.got.partition(b"\r\n\r\n")
        (made,) = factory.made
        return client, made


# --- Autobahn's own


class EchoServer(WebSocketServerProtocol):  # type: ignore[misc]
    """Echoes."""

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Back."""
        self.sendMessage(payload, isBinary)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Remembered."""
        self.factory.closed.append((wasClean, code, reason))


def autobahn_server(*, deflate: bool = False, protocols: list[str] | None = None) -> WebSocketServerFactory:
    """An echo server; `closed` of it has what `onClose` was told."""
    factory = WebSocketServerFactory(reactor=reactor, protocols=protocols)
    factory.noisy = False
    factory.protocol = EchoServer
    factory.closed = []

    def choose(offers: list[Any]) -> Any:
        for offer in offers:
            if isinstance(offer, PerMessageDeflateOffer):
                return PerMessageDeflateOfferAccept(offer)
        return None

    if deflate:
        factory.setProtocolOptions(perMessageCompressionAccept=choose)
    return factory


class Caller(WebSocketClientProtocol):  # type: ignore[misc]
    """A client that collects what comes."""

    def onConnect(self, response: Any) -> None:
        """Remembered."""
        self.response = response
        self.messages: list[tuple[bytes, bool]] = []
        self.pings: list[bytes] = []
        self.ended: tuple[bool, int | None, str | None] | None = None

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Kept."""
        self.messages.append((payload, isBinary))

    def onPing(self, payload: bytes) -> None:
        """Kept and answered."""
        self.pings.append(payload)
        super().onPing(payload)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Kept."""
        self.ended = (wasClean, code, reason)


def autobahn_client(*, deflate: bool = False, protocols: list[str] | None = None) -> Any:
    """A factory for `RelayCase.dial`."""

    class CallerFactory(WebSocketClientFactory):  # type: ignore[misc]
        noisy = False

        def buildProtocol(self, addr: object) -> Any:
            protocol = super().buildProtocol(addr)
            self.first.callback(protocol)
            return protocol

    factory = CallerFactory("ws://app.example/chat", reactor=reactor, protocols=protocols)
    factory.protocol = Caller
    factory.first = Deferred()
    if deflate:
        factory.setProtocolOptions(
            perMessageCompressionOffers=[PerMessageDeflateOffer()],
            perMessageCompressionAccept=lambda response: PerMessageDeflateResponseAccept(response),
        )
    return factory


# --- others', in threads


def in_thread(main: Callable[[], Coroutine[Any, Any, Any]]) -> Deferred[Any]:
    """Run a coroutine of asyncio to its end in a thread of its own."""
    return deferToThread(lambda: asyncio.run(main()))


class AsyncioServer:
    """A server of asyncio in a thread: `start(port_ready)` is a coroutine that serves until it is cancelled."""

    def __init__(self, serve: Callable[[Callable[[int], None]], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._ready.wait(20):
            raise RuntimeError("the server does not start")

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._serve(self._listening))
        try:
            await self._task
        except asyncio.CancelledError:
            pass

    def _listening(self, port: int) -> None:
        self.port = port
        self._ready.set()

    def stop(self) -> Deferred[None]:
        """Cancel and wait for the thread."""
        assert self._loop is not None and self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        return deferToThread(self._thread.join, 20)

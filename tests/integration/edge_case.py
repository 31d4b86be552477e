"""A whole edge over real sockets for tests: fake routing and control, a container of the test's own, raw clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import h11
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Factory
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from sticky.edge.context import EdgeContext, EdgeFactory, WebSocketRelay
from sticky.edge.dialling import Dialler
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site, Sites
from sticky.edge.wire import Names
from sticky.isticky import TCPAddress, UNIXAddress
from sticky.observe.access import AccessLog, AccessRecord
from tests.edge.http_cases import Message
from tests.fakes.containers import RawClient, text
from tests.fakes.routing import SERVER, TOKEN, FakeControl, FakeRouting, FakeVerifier

reactor: Any = _reactor

AUTHORIZED = b"Host: game.example\r\nModal-Authorization: Bearer " + TOKEN + b"\r\n"


def get(target: bytes = b"/x", extra: bytes = b"", method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """A request of the session."""
    return method + b" " + target + b" HTTP/" + version + b"\r\n" + AUTHORIZED + extra + b"\r\n"


@attrs.define
class Answered:
    """One answer as h11 reads it."""

    informational: list[int]
    message: Message
    broken: bool


def read_answers(data: bytes, closed: bool, methods: list[bytes] | None = None) -> list[Answered]:
    """All answers in these bytes, in order; one that is not complete yet is left out unless the connection is closed."""
    found: list[Answered] = []
    while data:
        method = b"GET" if methods is None or len(methods) <= len(found) else methods[len(found)]
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
        parser.send(h11.Request(method=method, target=b"/", headers=[("Host", "game.example")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(data)
        if closed:
            parser.receive_data(b"")
        answer = _read_one(parser)
        if answer is None:
            return found
        found.append(answer)
        data = parser.trailing_data[0]
    return found


def _read_one(parser: h11.Connection) -> Answered | None:
    informational: list[int] = []
    head: h11.Response | None = None
    content = b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError:
            if head is None:
                return None
            return Answered(
                informational, Message(text(head.headers), content.decode("latin-1"), [], status=head.status_code), True
            )
        if isinstance(event, h11.InformationalResponse):
            informational.append(event.status_code)
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            content += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            message = Message(
                text(head.headers), content.decode("latin-1"), text(event.headers), status=head.status_code
            )
            return Answered(informational, message, False)
        else:
            return None


class RecordingLog(AccessLog):
    """Keeps the records instead."""

    def __init__(self, records: list[AccessRecord]) -> None:
        super().__init__("modal")
        self.records = records

    def write(self, record: AccessRecord) -> None:
        self.records.append(record)


class EdgeCase(TestCase):
    """Starts an edge before each test and takes it down after, with everything back at nothing."""

    timeout = 110
    limits = EdgeLimits(upstream_idle=2.0, linger_timeout=1.0)
    site = Site(name=SERVER)
    own_transports = True  # False: Twisted's, which TLS and unknown endpoints may bring

    def setUp(self) -> None:
        self.clients: list[RawClient] = []
        self.ports: list[Any] = []
        self.routing = FakeRouting(TCPAddress("127.0.0.1", 1))
        self.verifier = FakeVerifier()
        self.control = FakeControl()
        self.records: list[AccessRecord] = []

    def start(self, container: Factory | None, *, site: Site | None = None, unix: str | None = None,
              websocket_relay: WebSocketRelay | None = None) -> None:  # fmt: skip
        """Listen, with this container behind."""
        if container is not None:
            if unix is None:
                port = reactor.listenTCP(0, container, interface="127.0.0.1")
                self.routing.address = TCPAddress("127.0.0.1", port.getHost().port)
            else:
                port = reactor.listenUNIX(unix, container)
                self.routing.address = UNIXAddress(unix)
            self.ports.append(port)
        self.context = EdgeContext(
            EdgeSettings(limits=self.limits),
            Sites([site or self.site]),
            Names(),
            self.verifier,
            self.routing,
            self.control,
            Dialler(reactor) if self.own_transports else reactor,
            wall=time.time,
            websocket_relay=websocket_relay,
            access=RecordingLog(self.records),
        )
        self.factory = EdgeFactory(self.context)
        self.port = self.listen(self.factory)
        if self.own_transports:
            self.port = self.factory.listening(self.port)
        self.ports.append(self.port)

    def listen(self, factory: Factory) -> Any:
        """Where the edge listens."""
        return reactor.listenTCP(0, factory, interface="127.0.0.1", backlog=1024)

    async def connect(self) -> RawClient:
        """A client of the edge."""
        client: RawClient = await ClientCreator(reactor, RawClient).connectTCP("127.0.0.1", self.port.getHost().port)
        self.clients.append(client)
        return client

    async def until(self, what: Callable[[], object], seconds: float = 30.0, why: str = "") -> None:
        """Wait for something to become true; fails after a while."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                self.fail(f"it did not come true in {seconds} s: {why or what}")
            await deferLater(reactor, 0.003)

    async def answers(self, client: RawClient, count: int, methods: list[bytes] | None = None) -> list[Answered]:
        """Wait for this many answers, or the end of the connection."""

        def there() -> bool:
            return client.lost or len(read_answers(client.received, False, methods)) >= count

        await self.until(there, why=f"{count} answers in {client.received[:300]!r}")
        return read_answers(client.received, client.lost, methods)

    async def tearDown(self) -> None:  # type: ignore[override]
        for client in self.clients:
            if not client.lost and client.transport is not None:
                client.transport.abortConnection()
        if hasattr(self, "context"):
            await self.until(lambda: not self.context.doors.inside, why="clients' connections")
            self.context.upstreams.drop_idle()
            await self.until(lambda: not len(self.context.upstreams), why="upstream pools")
            self.assertEqual(self.routing.held, set())
            self.context.sweep.stop()
        for port in self.ports:
            stopped = port.stopListening()
            if isinstance(stopped, Deferred):
                await stopped
        for port in self.ports:
            for connection in getattr(port.factory, "connections", []):
                if getattr(connection, "lost", False) is False and connection.transport is not None:
                    connection.transport.abortConnection()
        await deferLater(reactor, 0.01)

"""An edge without sockets: a context over fakes, clients as fake transports, containers as connections the test decides."""

from __future__ import annotations

import attrs

from sticky.edge.context import EdgeContext, EdgeFactory, WebSocketRelay
from sticky.edge.frontend import Frontend
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site, Sites
from sticky.edge.wire import Names
from sticky.isticky import TCPAddress
from sticky.observe.access import AccessLog, AccessRecord
from tests.fakes.routing import SERVER, TOKEN, FakeControl, FakeRouting, FakeVerifier
from tests.fakes.transport import FakeReactor, FakeTransport

AUTHORIZED = b"Host: game.example\r\nModal-Authorization: Bearer " + TOKEN + b"\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@attrs.frozen
class PeerAddress:
    """Where a client connects from."""

    host: str = "192.0.2.7"


class RecordingLog(AccessLog):
    """Keeps the records instead of logging them."""

    def __init__(self) -> None:
        super().__init__("modal")
        self.records: list[AccessRecord] = []

    def write(self, record: AccessRecord) -> None:
        self.records.append(record)


class FakeEdge:
    """The edge and its fakes."""

    def __init__(
        self, site: Site | None = None, limits: EdgeLimits | None = None, relay: WebSocketRelay | None = None
    ) -> None:
        self.reactor = FakeReactor()
        self.routing = FakeRouting(TCPAddress("127.0.0.1", 9))
        self.verifier = FakeVerifier()
        self.control = FakeControl()
        self.log = RecordingLog()
        self.context = EdgeContext(
            EdgeSettings(limits=limits or EdgeLimits()),
            Sites([site or Site(name=SERVER)]),
            Names(),
            self.verifier,
            self.routing,
            self.control,
            self.reactor,
            wall=lambda: 1_800_000_100.0,
            websocket_relay=relay,
            access=self.log,
        )
        self.factory = EdgeFactory(self.context)

    @property
    def records(self) -> list[AccessRecord]:
        return self.log.records

    def client(self, host: str = "192.0.2.7") -> FakeTransport:
        """A client connects."""
        transport = FakeTransport(self.reactor)
        transport.connect(self.factory.buildProtocol(PeerAddress(host)))  # type: ignore[arg-type]
        return transport

    def front(self, client: FakeTransport) -> Frontend:
        """The protocol that a client met."""
        assert isinstance(client.protocol, Frontend)
        return client.protocol

    def container(self) -> FakeTransport:
        """The container takes the connection that is being dialled."""
        (dial,) = self.reactor.undecided
        return dial.succeed()


def get(target: bytes = b"/x", extra: bytes = b"", method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """A request of the session."""
    return method + b" " + target + b" HTTP/" + version + b"\r\n" + AUTHORIZED + extra + b"\r\n"


def handshake(extra: bytes = b"") -> bytes:
    """A WebSocket handshake of the session."""
    fields = (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    return get(b"/ws", fields + extra)

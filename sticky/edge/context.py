"""What all clients' connections share, made once, and the factory that listeners get. Wires the edge; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.interfaces import IAddress, IListeningPort, IProtocol, IProtocolNegotiationFactory
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from zope.interface import implementer

from sticky.core.tokens import Claims
from sticky.edge.accepting import Acceptor, adoptable
from sticky.edge.doors import Doors
from sticky.edge.frontend import Frontend
from sticky.edge.gate import Gate
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.limits import EdgeSettings
from sticky.edge.plain import PlainFields
from sticky.edge.proxied import watch_headers
from sticky.edge.readers import reader
from sticky.edge.site import Sites
from sticky.edge.sweep import Sweep
from sticky.edge.turns import Turn
from sticky.edge.upstream import Upstreams
from sticky.edge.wire import Names
from sticky.isticky import IControl, ILease, IRouting
from sticky.observe.access import AccessLog
from sticky.observe.safely import safely

MAX_REMEMBERED = 1024  #: clients' addresses whose field lines are remembered, about 2 KB each

WebSocketRelay = Callable[[IWebSocketFront, Handshake, ILease], None]


class TokenVerifier(Protocol):
    """Checks session tokens (`core.tokens.Verifier`)."""

    def verify(self, token: bytes, wall: float) -> Claims:
        """What the token says. Raises `errors.BadCredential` or `errors.SessionEnded`."""

    def remembers(self, token: bytes) -> bool:
        """Whether it was verified before, so that to do it again costs nothing."""


class Failures(Protocol):
    """Counts wrong credentials by client address (`core.proxy_tokens.FailureLimit`); one for edge and control calls."""

    def check(self, address: str, now: float) -> None:
        """Whether to look at a credential. Raises `errors.TooManyFailures`."""

    def failed(self, address: str, now: float) -> None:
        """One more. Raises `errors.TooManyFailures` if there were too many before."""


class EdgeContext:
    """The edge: its settings, its neighbours, and the objects that all its connections share."""

    def __init__(
        self,
        settings: EdgeSettings,
        sites: Sites,
        names: Names,
        verifier: TokenVerifier,
        routing: IRouting,
        control: IControl,
        reactor: Any,
        *,
        wall: Callable[[], float],
        websocket_relay: WebSocketRelay | None = None,
        access: AccessLog | None = None,
        failures: Failures | None = None,
        turn: Turn | None = None,
    ) -> None:
        """`reactor` connects, and its clock is monotonic; `wall` is the Unix time, for tokens' expiry only.

        Without `websocket_relay`, handshakes are answered with 503; without `failures`, wrong tokens are not counted. `turn`:
        of the loop, if it tells its turns.
        """
        self.settings = settings
        self.sites = sites
        self.names = names
        self.verifier = verifier
        self.routing = routing
        self.control = control
        self.reactor = reactor
        self.seconds: Callable[[], float] = reactor.seconds  #: `reactor`'s clock
        self.wall = wall
        self.websocket_relay = websocket_relay
        self.failures = failures
        self.turn = turn or Turn()
        self.log = Logger(namespace="sticky.edge")
        self.access = AccessLog(names.brand) if access is None else access
        self.sweep = Sweep(reactor)
        self.doors = Doors(settings.limits, reactor)
        self.upstreams = Upstreams(
            reactor,
            self.sweep,
            connect_timeout=settings.limits.connect_timeout,
            idle=settings.limits.upstream_idle,
        )
        #: Of the last connection from each address, TLS or not: the next one often begins with the same field lines.
        self.fields: dict[tuple[str, bool], PlainFields] = {}
        self.plain = reader(names, settings.limits.heads)
        self.gate = Gate(self)

    def remember(self, address: str, secure: bool, fields: PlainFields) -> None:
        """A connection from there ends."""
        if len(self.fields) >= MAX_REMEMBERED:
            self.fields.clear()
        self.fields[address, secure] = fields

    def stop(self) -> None:
        """Cut every client of this edge and every connection to a container, and leave no timer. WebSockets are their relay's."""
        for entry in self.sweep.entries():
            if isinstance(entry, Frontend):
                safely(self.log, entry.cut)
        self.upstreams.drop_idle()
        self.sweep.stop()
        self.access.close()


@implementer(IProtocol)
class _TurnedAway:
    """The protocol of a client that may not come in: closed at once. (None would break a TLS listener.)"""

    def makeConnection(self, transport: Any) -> None:
        transport.abortConnection()

    def connectionMade(self) -> None:
        """Part of IProtocol."""

    def dataReceived(self, data: bytes) -> None:
        """What it says is not read."""

    def connectionLost(self, reason: object) -> None:
        """As was to be."""


@implementer(IProtocolNegotiationFactory)
class EdgeFactory(Factory):
    """Makes the protocols of clients' connections, for any stream endpoint."""

    noisy = False

    @staticmethod
    def acceptableProtocols() -> list[bytes]:
        """For TLS: a client that offers ALPN must be answered, and upgrades need HTTP/1.1."""
        return [b"http/1.1"]

    def __init__(self, context: EdgeContext) -> None:
        self.context = context

    def buildProtocol(self, addr: IAddress | None) -> Any:
        address = getattr(addr, "host", "")
        return Frontend(self.context, address) if self.context.doors.enter(address) else _TurnedAway()

    def listening(self, port: IListeningPort) -> IListeningPort:
        """This factory, alone or within others, listens there. Returns the port that takes that one's place.

        Accepting pauses when the edge is full. Ports that we do not know go on as they are.
        """
        context = self.context
        watch_headers(getattr(port, "factory", None))
        if adoptable(port):
            port = Acceptor(port, context.doors.say)
        if hasattr(port, "stopReading") and hasattr(port, "startReading"):
            context.doors.add_listener(port)
        return port

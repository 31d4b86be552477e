"""How Autobahn is set up for the two legs of a relay: options, silence, and all that it keeps for a connection kept once for all.

Must not know what a relay does. Autobahn (pinned in setup.cfg) copies some 25 options and 30 start values into each connection
and formats them for a debug line: half of the CPU of a set-up, and six of its seven KiB in memory. Here they are attributes of a
class of our own, one for each daemon and side; `tests/edge/test_autobahn_config.py` names everything this relies on.
"""

from __future__ import annotations

from typing import Any, ClassVar

from autobahn.twisted import websocket
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketServerFactory
from autobahn.wamp.types import TransportDetails
from autobahn.websocket import protocol
from autobahn.websocket.protocol import WebSocketProtocol
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

_COLOURING: tuple[Any, ...] = (protocol, websocket)

_log = Logger()


class Quiet:
    """Autobahn's logger. Its info lines quote header values, its debug lines whole heads; what counts is logged by the relay."""

    def debug(self, *args: object, **kwargs: object) -> None:
        """Nothing."""

    info = warn = trace = debug

    def error(self, format: str = "", *args: object, **kwargs: object) -> None:
        """The constant text only: values may hold what a peer sent."""
        _log.error("Autobahn reports an error: {text}", text=format)


class Fresh:
    """An attribute that gives a new Deferred at each look: Autobahn fires `is_closed` with the protocol, a cycle for each."""

    def __get__(self, instance: object, owner: object = None) -> Deferred[Any]:
        return Deferred()


class Quietly:
    """Attributes that take the place of what Autobahn would keep in each connection."""

    log: ClassVar[Quiet] = Quiet()
    is_open = Fresh()
    is_closed = Fresh()
    peer: ClassVar[str | None] = None
    connected: ClassVar[int] = 1
    _transport_details: ClassVar[TransportDetails] = TransportDetails()
    __slots__ = ()


#: No timer of Autobahn's is ever started: they hang on the global reactor and are cut to whole seconds. The relay bounds the
#: opening handshake, pings and closes with its own sweep. No compression functions: extensions are the peers' own affair.
COMMON = {
    "openHandshakeTimeout": 0,
    "closeHandshakeTimeout": 0,
    "autoPingInterval": 0,
    "failByDrop": True,
}
SERVER = {**COMMON, "versions": [13], "webStatus": False, "allowNullOrigin": True}
CLIENT = {**COMMON, "serverConnectionDropTimeout": 0}


def plain_names() -> bool:
    """Have Autobahn name things without terminal colours, in log lines that nobody sees here: 20 microseconds a handshake.

    Private to Autobahn: where it is not as we know it, nothing changes. Returns whether it is.
    """
    known = all(callable(getattr(module, "hltype", None)) for module in _COLOURING)
    if known:
        for module in _COLOURING:
            module.hltype = _name
    return known


def _name(what: object) -> str:
    return "<" + type(what).__name__ + ">"


def server_factory(reactor: IReactorTime, **options: object) -> WebSocketServerFactory:
    """Autobahn's factory for all connections from clients."""
    factory = WebSocketServerFactory(reactor=reactor, server=None)
    factory.setProtocolOptions(**(SERVER | options))
    return factory


def client_factory(reactor: IReactorTime, **options: object) -> WebSocketClientFactory:
    """Autobahn's factory for all connections to containers."""
    factory = WebSocketClientFactory(reactor=reactor)
    factory.setProtocolOptions(**(CLIENT | options))
    return factory


def configured(leg: Any, factory: WebSocketServerFactory | WebSocketClientFactory) -> Any:
    """A subclass of this leg whose class holds the factory, its options and the start values of a connection."""
    made: Any = type(leg.__name__, (leg,), {"__slots__": (), "__module__": leg.__module__, "factory": factory})
    for name in leg.CONFIG_ATTRS:
        value = getattr(factory, name)
        setattr(made, name, staticmethod(value) if callable(value) else value)
    made.CONFIG_ATTRS = ()
    pattern = made.__new__(made)
    WebSocketProtocol._connectionMade(pattern)  # no start value is missed, whatever Autobahn adds
    start = {**vars(pattern), "inside_message": False, "current_frame": None}
    for name, value in start.items():
        setattr(made, name, value)
    return made

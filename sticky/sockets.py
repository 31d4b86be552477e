"""Listening sockets that several processes use, at once or one after the other: opened, taken over, accepted from.

Knows endpoint strings, and nothing of who serves there. Twisted's endpoints can neither be opened with SO_REUSEPORT nor be
given to another process, so that they are run here against reactors that note what is asked for, or have a socket already.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

import attrs
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOFactory

SHARED_KINDS = ("tcp", "tcp6", "ssl", "unix")  #: endpoint types whose sockets can be shared and handed over
WRAPPERS = ("haproxy",)  #: endpoint types around one of these


def kind_of(endpoint: str) -> str:
    """The endpoint type that opens the socket."""
    kind, _, rest = endpoint.partition(":")
    return kind_of(rest) if kind in WRAPPERS else kind


def shareable(endpoint: str) -> bool:
    """Whether several processes can listen there, and a next daemon can take it over (config.md, Listeners)."""
    return kind_of(endpoint) in SHARED_KINDS


@attrs.frozen
class Place:
    """Where an endpoint string listens."""

    family: socket.AddressFamily
    host: str  #: an address; empty: all of them
    port: int  #: 0: any
    path: str  #: of a Unix socket
    backlog: int

    def is_at(self, bound: socket.socket) -> bool:
        """Whether this socket is bound there, so that it can be taken instead of opening one."""
        if bound.family != self.family or bound.type != socket.SOCK_STREAM:
            return False
        name = bound.getsockname()
        if self.family == socket.AF_UNIX:
            return bool(name == self.path)
        wildcard = "::" if self.family == socket.AF_INET6 else "0.0.0.0"
        return bool(name[0] == (self.host or wildcard) and name[1] == self.port and self.port)


class _Noting:
    """A reactor that opens nothing: it notes where it was to listen."""

    place: Place | None = None

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> None:
        """As of a reactor."""
        family = socket.AF_INET6 if ":" in interface else socket.AF_INET
        self.place = Place(family, interface, port, "", backlog)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> None:
        """As of a reactor."""
        self.listenTCP(port, factory, backlog, interface)

    def listenUNIX(self, address: str, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0) -> None:
        """As of a reactor."""
        self.place = Place(socket.AF_UNIX, "", 0, address, backlog)


class _Given:
    """A reactor that listens on a socket which is there already, whatever it is asked for."""

    def __init__(self, reactor: Any, given: socket.socket) -> None:
        self._reactor = reactor
        self._given = given

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """As of a reactor."""
        return self._reactor.adoptStreamPort(self._given.fileno(), self._given.family, factory)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:
        """As of a reactor."""
        return self.listenTCP(port, TLSMemoryBIOFactory(contextFactory, False, factory))

    def listenUNIX(self, address: str, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0) -> Any:
        """As of a reactor."""
        return self.listenTCP(0, factory)


def place_of(endpoint: str) -> Place:
    """Where this `shareable` endpoint string listens."""
    noting = _Noting()
    serverFromString(noting, endpoint).listen(Factory())
    assert noting.place is not None, endpoint
    return noting.place


def accept_on(reactor: Any, endpoint: str, given: socket.socket, factory: Any) -> IListeningPort:
    """Listen on a socket that is there already, the way its endpoint string says (TLS, haproxy). The socket is duplicated."""
    found: list[Any] = []
    serverFromString(_Given(reactor, given), endpoint).listen(factory).addCallback(found.append)
    port: IListeningPort = found[0]
    return port


def open_tcp(place: Place, copies: int) -> list[socket.socket]:
    """So many sockets on one port; the kernel spreads clients over them. Raises OSError if somebody listens there."""
    opened: list[socket.socket] = []
    try:
        # With SO_REUSEPORT another daemon of the same user could share the port unnoticed: look first.
        probe = _bound(place, place.port, reuse_port=False)
        port = probe.getsockname()[1]
        try:
            probe.listen(1)
        finally:
            probe.close()
        for _ in range(copies):
            one = _bound(place, port, reuse_port=True)
            opened.append(one)
            one.listen(place.backlog)
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


def more_tcp(place: Place, beside: socket.socket, copies: int) -> list[socket.socket]:
    """So many more on the port of one that is open; none if that was opened to be alone there.

    Not listening yet: whoever does gets his share of those who connect. `serve` has them listen.
    """
    if not beside.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
        return []
    made: list[socket.socket] = []
    for _ in range(copies):
        one = _bound(place, beside.getsockname()[1], reuse_port=True)
        made.append(one)
    return made


def serve(place: Place, opened: socket.socket) -> None:
    """Let clients connect to a socket that is bound."""
    opened.listen(place.backlog)


def _bound(place: Place, port: int, *, reuse_port: bool) -> socket.socket:
    one = socket.socket(place.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            one.bind((place.host, port))
        except OverflowError:
            raise OSError(errno.EINVAL, "no such port") from None
    except OSError:
        one.close()
        raise
    return one


def for_endpoints(endpoints: Sequence[str], given: Sequence[socket.socket]) -> dict[str, list[socket.socket]]:
    """Those of the given listening sockets that are where these endpoint strings listen. The others are closed."""
    found: dict[str, list[socket.socket]] = {}
    for one in given:
        at = next((each for each in endpoints if shareable(each) and place_of(each).is_at(one)), None)
        if at is None:
            one.close()
        else:
            found.setdefault(at, []).append(one)
    return found

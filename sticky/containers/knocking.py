"""Does anybody answer on an address: by connecting, and by GET. Must not know whose address it is, nor when to ask again."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
from typing import Any, cast

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectError, ConnectionDone, getConnectError
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IReactorSocket,
    IReactorTCP,
    IReactorTime,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import doors
from sticky.exhaustion import is_ours
from sticky.isticky import Address, TCPAddress
from sticky.networks import inside

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_LONGEST_STATUS_LINE = 1024


class Knocker:
    """Connects to addresses without ever waiting.

    Plain sockets, not the reactor's: on loopback the kernel decides within the call (about 20 us), and a container that is
    starting is asked many times.
    """

    def __init__(self) -> None:
        self._pending: dict[Address, socket.socket] = {}

    def knock(self, address: Address) -> bool:
        """Whether a connection was just accepted. A connection that hangs is looked at again by the next call.

        Raises OSError where no descriptor is left to try it with.
        """
        attempt = self._pending.pop(address, None)
        if attempt is None:
            try:
                with inside(_network(address)):
                    attempt = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError as error:
                if not _network(address) or is_ours(error):
                    raise
                return False  # the container is gone, and its network with it
            try:
                number = _reach(attempt, address)
            except OSError:
                attempt.close()
                raise
            if number not in (0, errno.EINPROGRESS):
                attempt.close()
                return False
        poll = select.poll()  # not select(): it fails for descriptors above 1023
        poll.register(attempt, select.POLLOUT)
        if not poll.poll(0):
            self._pending[address] = attempt
            return False
        with attempt:
            return attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0

    def close(self) -> None:
        """Give up what hangs."""
        pending, self._pending = self._pending, {}
        for attempt in pending.values():
            attempt.close()


class IProbeReactor(IReactorTime, IReactorTCP, IReactorSocket):
    """What `http_status` needs from a reactor."""


def http_status(reactor: IProbeReactor, address: Address, path: str, timeout: float = 5.0) -> Deferred[int]:
    """The status of a GET. Fails with a Twisted connection error, also when there is no answer within `timeout` seconds.

    `exhaustion.is_ours` tells whether it failed for want of a descriptor, so that nobody was asked.

    Its own few lines: Agent would read a body of any length, follow nothing of use here, and keep a pool.
    """
    probe = _Probe(path, _authority(address))
    try:
        with inside(_network(address)):  # where the socket is made, which is at once: there is no name to resolve
            connecting = _endpoint(reactor, address, timeout).connect(_Once(probe))
    except OSError as error:
        ours = is_ours(error)
        connecting = fail(error if ours else ConnectError(string="the container's network is gone"))
    probe.connecting = connecting.addCallbacks(lambda _: None, probe.answered.errback)
    return probe.answered.addTimeout(timeout, reactor)


class _Probe(Protocol):
    """Asks once and takes the status line."""

    transport: ITCPTransport | None

    def __init__(self, path: str, authority: str) -> None:
        self._path = path
        self._authority = authority
        self._received = b""
        self.answered: Deferred[int] = Deferred(self._cancelled)
        self.connecting: Deferred[None] | None = None

    def connectionMade(self) -> None:
        assert self.transport is not None
        request = f"GET {self._path} HTTP/1.1\r\nHost: {self._authority}\r\nConnection: close\r\n\r\n"
        self.transport.write(request.encode("utf-8"))

    def dataReceived(self, data: bytes) -> None:
        if self.answered.called:
            return
        self._received += data
        found = _STATUS_LINE.match(self._received)
        if found is None and b"\n" not in self._received and len(self._received) < _LONGEST_STATUS_LINE:
            return
        self._hang_up()
        if found:
            self.answered.callback(int(found.group(1)))
        else:
            self.answered.errback(ConnectionDone("not an HTTP answer"))

    def connectionLost(self, reason: Failure | None = None) -> None:
        if not self.answered.called:
            self.answered.errback(reason or ConnectionDone())

    def _cancelled(self, _: Deferred[int]) -> None:
        if self.connecting is not None:
            self.connecting.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abortConnection()


@implementer(IStreamClientEndpoint)
class _Door:
    """A Unix socket, connected to or not within the call."""

    def __init__(self, reactor: IProbeReactor, path: str) -> None:
        self._reactor = reactor
        self._path = path

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Part of IStreamClientEndpoint."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as attempt:
            number = doors.connect(attempt, self._path)
            if number:
                return fail(getConnectError((number, os.strerror(number))))
            protocol = protocolFactory.buildProtocol(UNIXAddress(self._path))
            assert protocol is not None
            self._reactor.adoptStreamConnection(attempt.fileno(), socket.AF_UNIX, cast(Any, _Once(protocol)))
        return succeed(protocol)


class _Once(Factory):
    noisy = False

    def __init__(self, protocol: IProtocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: object) -> Any:
        return self._protocol


def _endpoint(reactor: IProbeReactor, address: Address, timeout: float) -> IStreamClientEndpoint:
    if not isinstance(address, TCPAddress):
        return _Door(reactor, address.path)
    if _family(address) == socket.AF_INET6:
        return TCP6ClientEndpoint(reactor, address.host, address.port, timeout)
    return TCP4ClientEndpoint(reactor, address.host, address.port, timeout)


def _authority(address: Address) -> str:
    if not isinstance(address, TCPAddress):
        return "localhost"
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def _network(address: Address) -> str:
    return address.network if isinstance(address, TCPAddress) else ""


def _family(address: Address) -> socket.AddressFamily:
    if not isinstance(address, TCPAddress):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _reach(attempt: socket.socket, address: Address) -> int:
    """An errno. Raises OSError where no descriptor is left."""
    if isinstance(address, TCPAddress):
        return attempt.connect_ex((address.host, address.port))
    return doors.connect(attempt, address.path)

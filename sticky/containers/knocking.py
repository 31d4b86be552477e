"""Does anybody answer on an address: by connecting, and by GET. Must not know whose address it is, nor when to ask again."""

from __future__ import annotations

import errno
import os
import re
import select
import socket

from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, UNIXClientEndpoint
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.interfaces import IReactorTCP, IReactorTime, IReactorUNIX, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

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
                attempt.connect(_place(address))
            except OSError as error:
                if error.errno != errno.EINPROGRESS:
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


class IProbeReactor(IReactorTime, IReactorTCP, IReactorUNIX):
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


class _Once(Factory):
    noisy = False

    def __init__(self, probe: _Probe) -> None:
        self._probe = probe

    def buildProtocol(self, addr: object) -> _Probe:
        return self._probe


def _endpoint(reactor: IProbeReactor, address: Address, timeout: float) -> IStreamClientEndpoint:
    if not isinstance(address, TCPAddress):
        return UNIXClientEndpoint(reactor, address.path, timeout)
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


def _place(address: Address) -> tuple[str, int] | bytes:
    return (address.host, address.port) if isinstance(address, TCPAddress) else os.fsencode(address.path)

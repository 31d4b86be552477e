"""Connects to containers with streams of our own, in the shape of a reactor's `connectTCP` and `connectUNIX`. Knows no pools.

Names are the reactor's to resolve: only addresses are connected to here.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from enum import Enum
from functools import partial
from ipaddress import ip_address
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.address import UNIXAddress as TwistedUNIXAddress
from twisted.internet.error import ConnectError, TimeoutError, UserError, getConnectError
from twisted.internet.interfaces import IConnector, IDelayedCall, IWriteDescriptor
from twisted.internet.protocol import ClientFactory
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import doors
from sticky.edge.tcp import TCPStream
from sticky.edge.transport import Stream, begin
from sticky.isticky import Address, TCPAddress, UNIXAddress
from sticky.networks import inside

_log = Logger(namespace="sticky.edge")


class Dialler:
    """A reactor as far as the edge uses one: it dials, and its clock and calls are the real reactor's; so is everything else."""

    def __init__(self, reactor: Any, failed: Callable[[Address], None] = lambda address: None) -> None:
        """`failed` hears of each address that could not be connected to, but not of attempts that were given up."""
        self.reactor = reactor
        self._failed = failed
        self.seconds = reactor.seconds
        self.callLater = reactor.callLater

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reactor, name)

    def connectTCP(
        self, host: str, port: int, factory: ClientFactory, timeout: float = 30, *, network: str = ""
    ) -> Any:
        """Connect; the factory hears of it in a later turn. In a `network` of a container's own only to an address."""
        try:
            version = ip_address(host).version
        except ValueError:
            return self.reactor.connectTCP(host, port, factory, timeout=timeout)
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        failed = partial(self._failed, TCPAddress(host, port, network))
        return Connecting(self.reactor, family, (host, port), factory, timeout, network, failed)

    def connectUNIX(self, path: str, factory: ClientFactory, timeout: float = 30) -> Any:
        """Connect; the factory hears of it in a later turn."""
        failed = partial(self._failed, UNIXAddress(path))
        return Connecting(self.reactor, socket.AF_UNIX, path, factory, timeout, failed=failed)


class Attempt(Enum):
    """How an attempt to connect stands."""

    UNDER_WAY = "under way"
    CONNECTED = "connected"
    FAILED = "failed"  # or given up


@implementer(IWriteDescriptor, IConnector)
class Connecting:
    """One attempt."""

    def __init__(
        self,
        reactor: Any,
        family: socket.AddressFamily,
        address: Any,
        factory: ClientFactory,
        timeout: float,
        network: str = "",
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = Attempt.UNDER_WAY
        self._reactor = reactor
        self._factory: Any = factory
        self._failed = failed
        self._handle: socket.socket | None = None
        self._stream: Stream | None = None
        self._address = address
        self._call: IDelayedCall | None = None  # the end of our patience, or the look at what stands already
        self._writer = False
        try:
            with inside(network):
                self._handle = handle = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            code = doors.connect(handle, address) if family == socket.AF_UNIX else handle.connect_ex(address)
            if code == errno.EINPROGRESS:
                # On this machine it stands by now (connect(2) says so when asked again): nobody has to wait to be told.
                code = handle.connect_ex(address)
        except OSError as error:  # no descriptors left, no such family, or the container's network is gone
            code = error.errno or errno.EIO
        if self._handle is not None and code in (0, errno.EISCONN):
            self._call = reactor.callLater(0, self.doWrite)
        elif self._handle is not None and code in (errno.EALREADY, errno.EINPROGRESS):
            self._call = reactor.callLater(timeout, self._too_late)
            self._writer = True
            reactor.addWriter(self)
        else:
            reactor.callLater(0, self._fail, getConnectError((code, os.strerror(code))))

    def fileno(self) -> int:
        """For the reactor."""
        return -1 if self._handle is None else self._handle.fileno()

    def doWrite(self) -> None:
        """It is decided."""
        assert self._handle is not None
        code = self._handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(getConnectError((code, os.strerror(code))))
            return
        self._settle(Attempt.CONNECTED)
        handle, self._handle = self._handle, None
        factory, self._factory = self._factory, None
        try:
            protocol = factory.buildProtocol(self._peer())
        except Exception:
            failure = Failure()
            _log.failure("a connection to a container has no protocol", failure)
            handle.close()
            factory.clientConnectionFailed(self, failure)
            return
        if protocol is None:
            handle.close()
            return
        stream = (Stream if handle.family == socket.AF_UNIX else TCPStream)(self._reactor, handle, protocol)
        self._stream = stream
        begin(stream)

    def _too_late(self) -> None:
        """It has taken too long. Or we have, and it stands or was refused: a reactor calls what is due before it looks."""
        assert self._handle is not None
        code = self._handle.connect_ex(self._address)
        if code in (0, errno.EISCONN):
            self.doWrite()
        elif code in (errno.EALREADY, errno.EINPROGRESS):
            self._fail(TimeoutError())
        else:
            self._fail(getConnectError((code, os.strerror(code))))

    def _peer(self) -> Any:
        # What was dialled: the kernel no longer knows the peer of a connection that was reset meanwhile (ENOTCONN).
        if isinstance(self._address, str):
            return TwistedUNIXAddress(self._address)
        host, port = self._address
        return (IPv6Address if ":" in host else IPv4Address)("TCP", host, port)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor met an error before it looked, or is being taken down."""
        if self._handle is not None and self.state is Attempt.UNDER_WAY:
            code = self._handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._fail(getConnectError((code, os.strerror(code))) if code else ConnectError())

    def logPrefix(self) -> str:
        """In front of what is logged while the reactor calls."""
        return "edge"

    def disconnect(self) -> None:
        """Give up, or close what stands. A no-op on an attempt that failed."""
        if self.state is Attempt.UNDER_WAY:
            self._fail(UserError())
        elif self._stream is not None:
            self._stream.loseConnection()

    stopConnecting = disconnect

    def connect(self) -> None:
        """Part of IConnector: an attempt is made once."""
        raise RuntimeError("an attempt to connect cannot be made again")

    def getDestination(self) -> Any:
        """The address."""
        return self._address

    def _settle(self, state: Attempt) -> None:
        self.state = state
        # What has been called still knows this object: a cycle for the garbage collector.
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        if self._writer:
            self._reactor.removeWriter(self)

    def _fail(self, error: BaseException) -> None:
        if self.state is not Attempt.UNDER_WAY:
            return
        self._settle(Attempt.FAILED)
        handle, self._handle = self._handle, None
        if handle is not None:
            self._reactor.callLater(0, handle.close)  # not now: events under its number may be waiting for a turn
        factory, self._factory = self._factory, None
        factory.clientConnectionFailed(self, Failure(error))
        if not isinstance(error, UserError):
            self._failed()

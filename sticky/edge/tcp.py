"""A TCP connection: a stream that knows its addresses and the options of its socket. Must not know HTTP."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import ITCPTransport
from zope.interface import implementer

from sticky.edge.transport import Stream


@implementer(ITCPTransport)
class TCPStream(Stream):
    """A TCP connection."""

    __slots__ = ()

    def getTcpNoDelay(self) -> bool:
        """Whether small writes go out at once."""
        return bool(self._handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Whether small writes go out at once."""
        self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, enabled)

    def getTcpKeepAlive(self) -> bool:
        """Whether the kernel looks for peers that are silent."""
        return bool(self._handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Whether the kernel looks for peers that are silent."""
        self._set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, enabled)

    def _set(self, level: int, option: int, enabled: bool) -> None:
        try:
            self._handle.setsockopt(level, option, int(enabled))
        except OSError:  # the peer is gone already, which is told by itself
            return

    def getPeer(self) -> IPv4Address | IPv6Address:
        """The other end; without an address once the connection was reset, when the kernel no longer knows it."""
        try:
            return _address(self._handle.getpeername())
        except OSError:
            return IPv4Address("TCP", "", 0)

    def getHost(self) -> IPv4Address | IPv6Address:
        """This end."""
        return _address(self._handle.getsockname())


def _address(name: tuple[Any, ...]) -> IPv4Address | IPv6Address:
    return IPv4Address("TCP", *name) if len(name) == 2 else IPv6Address("TCP", *name)

"""Connections that begin with a PROXY header (`haproxy:` endpoints): whose they really are, and FINs behind it. Parses nothing.

Twisted's own wrapper reads the header. It tells nobody when it is there, and takes a FIN for the end of the connection.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper, HAProxyWrappingFactory
from zope.interface import implementer


class _Catch:
    """Stands where the protocol stands while the header may still be coming."""

    def __init__(self) -> None:
        self.data: bytes | None = None

    def dataReceived(self, data: bytes) -> None:
        """What follows the header."""
        self.data = data


@implementer(IHalfCloseableProtocol)
class ProxiedConnection(HAProxyProtocolWrapper):
    """Tells its protocol's `known_as`, if it has one, the address in the header before the first byte behind it."""

    _named = False

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the header, or behind it."""
        protocol: Any = self.wrappedProtocol
        if self._named:
            protocol.dataReceived(data)
            return
        catch = _Catch()
        self.wrappedProtocol = catch  # type: ignore[assignment]  # for this call
        try:
            super().dataReceived(data)
        finally:
            self.wrappedProtocol = protocol
        peer = self.getPeer()
        if catch.data is None and peer == self.transport.getPeer():  # type: ignore[union-attr]
            return  # more of it is to come, or it names nobody
        self._named = True
        known_as = getattr(protocol, "known_as", None)
        if known_as is not None:
            known_as(getattr(peer, "host", ""))
        if catch.data is not None:
            self.wrappedProtocol.dataReceived(catch.data)

    def readConnectionLost(self) -> None:
        """The peer's FIN."""
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is None or not self._named:
            self.loseConnection()  # type: ignore[no-untyped-call]
        else:
            half.readConnectionLost()

    def writeConnectionLost(self) -> None:
        """Our own FIN is out."""
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is not None:
            half.writeConnectionLost()


def watch_headers(factory: Any) -> None:
    """If this factory, or one that it wraps, reads PROXY headers: have it make connections of the kind above."""
    while factory is not None:
        if isinstance(factory, HAProxyWrappingFactory):
            factory.protocol = ProxiedConnection  # type: ignore[assignment]  # a class of that kind
        factory = getattr(factory, "wrappedFactory", None)

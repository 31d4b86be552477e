"""Who may connect: only the daemon's own user and root, as the kernel says (SO_PEERCRED). Knows nothing of what is spoken."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import ITransport
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from sticky.peer import peer


def peer_uid(transport: Any) -> int:
    """The user at the other end of a Unix socket's connection. Raises OSError."""
    return peer(transport)[1]


class _Guarded(ProtocolWrapper):
    """Lets nothing through of a connection from somebody else."""

    factory: Guard

    def makeConnection(self, transport: ITransport) -> None:
        """The file's mode keeps others out already; this holds where somebody has widened it."""
        uid = self.factory.peer_uid(transport)
        if uid in (0, os.geteuid()):
            super().makeConnection(transport)  # type: ignore[no-untyped-call]
            return
        Guard.log.warn("the admin API refused a connection of user {uid}", uid=uid)
        transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        if self.connected:
            super().dataReceived(data)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any = None) -> None:
        if self.connected:
            super().connectionLost(reason)  # type: ignore[no-untyped-call]


class Guard(WrappingFactory):
    """Wraps a factory; `protocols` has the connections that were let in."""

    log = Logger()
    protocol = _Guarded
    noisy = False

    def __init__(self, wrapped: Any, peer_uid: Callable[[Any], int] = peer_uid) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call]
        self.peer_uid = peer_uid

    def abort(self) -> None:
        """Drop every connection."""
        for connection in list(self.protocols):
            connection.transport.abortConnection()

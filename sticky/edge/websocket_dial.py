"""How a WebSocket relay reaches its container: one attempt, and nothing that stays with the connection after it.

Must not know what a relay does with the connection.
"""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure

from sticky import errors
from sticky.edge.leg import Phase
from sticky.edge.legs import ContainerLeg


class Dials(Protocol):
    """Who wants the connection."""

    def failed(self, error: errors.Refusal) -> None:
        """It cannot be had."""


class Dialler(ClientFactory):
    """One attempt to reach a container."""

    noisy = False

    def __init__(self, relay: Dials, leg: ContainerLeg) -> None:
        self._relay: Dials | None = relay
        self._leg: ContainerLeg | None = leg

    def buildProtocol(self, address: IAddress | None) -> Any:
        """Connected. This factory stays with the connection, and keeps nothing."""
        leg, self._leg, self._relay = self._leg, None, None
        return leg if leg is not None and leg.phase is Phase.SHAKING else None

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        """The container is not there, or the dial was given up."""
        relay, self._leg, self._relay = self._relay, None, None
        if relay is not None:
            relay.failed(errors.ContainerUnavailable())


class Connected:
    """In place of the connector of a connection that is open: Twisted keeps that and its factory, 250 bytes, to tell of the end."""

    __slots__ = ()

    def connectionLost(self, reason: Failure) -> None:
        """The leg knows."""


CONNECTED = Connected()

"""All WebSocket relays of a daemon: what they share, how many there are, and how they end with it.

Must not know what a relay does (`websocket_relay`): it starts them, keeps their clock and closes them all.
"""

from __future__ import annotations

import os
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.autobahn_config import client_factory, configured, server_factory
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.legs import ClientLeg, ContainerLeg
from sticky.edge.liveness import Liveness
from sticky.edge.websocket_relay import Relay
from sticky.isticky import ILease

MAX_HANDSHAKES = 10_000  #: that may be under way at once; each holds two connections


@attrs.frozen(kw_only=True)
class RelayTimes:
    """How long a relay waits for what. Seconds."""

    ping_interval: float = 30.0  #: between two pings to one client; 0: none
    ping_timeout: float = 20.0  #: for a sign of life after a ping
    handshake_timeout: float = 60.0  #: for the connection to the container and its answer; 0: no limit
    close_timeout: float = 10.0  #: for both peers' answers to a Close of ours, and for a connection to empty its buffer
    linger_timeout: float = 30.0  #: between the first Close of a peer's own and the end


class WebSocketRelays:
    """One for each daemon. `reactor` dials and is the clock."""

    def __init__(self, reactor: Any, times: RelayTimes | None = None, *, max_handshakes: int = MAX_HANDSHAKES) -> None:
        times = times or RelayTimes()
        self.reactor = reactor
        # Both factories serve every connection; their options are on classes of this object's own.
        self.client_leg: type[ClientLeg] = configured(ClientLeg, server_factory(reactor))
        self.container_leg: type[ContainerLeg] = configured(ContainerLeg, client_factory(reactor))
        self._liveness = Liveness(
            reactor,
            times.ping_interval,
            times.ping_timeout,
            times.handshake_timeout,
            times.close_timeout,
            times.linger_timeout,
        )
        self.pongs = self._liveness.deadlines(times.ping_timeout, Relay.silent)
        self.ending = self._liveness.deadlines(times.close_timeout, Relay.late)
        self.lingering = self._liveness.deadlines(times.linger_timeout, Relay.late)
        self._handshakes = self._liveness.deadlines(times.handshake_timeout, _unanswered)
        self._dialling: set[Relay] = set()
        self._max_handshakes = max_handshakes
        self._prefix = os.urandom(4)
        self.pings = 0  #: sent so far
        self._stopped: Deferred[None] | None = None

    @property
    def open(self) -> int:
        """Relays whose handshake is over and which are not gone."""
        return len(self._liveness)

    @property
    def dialling(self) -> int:
        """Handshakes under way."""
        return len(self._dialling)

    def relay(self, front: IWebSocketFront, handshake: Handshake, lease: ILease, mode: str = "frames") -> None:
        """Make a WebSocket of this handshake, or have the front refuse it. Never raises for what a peer does.

        `mode` is the site's `websocket` setting; "frames" is the only one there is: `ValueError` for another.

        The lease is the relay's from now on: it becomes the holder, and releases it when both sides are closed, or the
        client has left. It is the front's again when the front's `refuse` or `pass_on` is called: the answer is in flight
        until the client has it.
        """
        if mode != "frames":
            raise ValueError(mode)
        if self._stopped is not None:
            front.refuse(errors.ShuttingDown())
        elif len(self._dialling) >= self._max_handshakes:
            front.refuse(errors.Unavailable("Too many WebSocket handshakes are under way.", retry_after=1))
        else:
            relay = Relay(self, front, handshake, lease)
            self._dialling.add(relay)
            self._handshakes.add(relay)
            relay.start()

    def close_all(self, code: int = 1001, reason: str = EndReason.SERVER_STOPPED.value) -> Deferred[None]:
        """Refuse new handshakes, close all relays with this code; fires when all are gone.

        That is bounded: whoever has not answered after the close timeout is cut.
        """
        if self._stopped is None:
            self._stopped = Deferred()
            for dialling in list(self._dialling):
                dialling.failed(errors.ShuttingDown())
            for relay in self._liveness:
                assert isinstance(relay, Relay)
                relay.close(code, reason.encode())
            self._if_over()
        return self._stopped

    # --- for the relays

    def joined(self, relay: Relay) -> None:
        """Frames pass."""
        self._dialling.discard(relay)
        self._handshakes.discard(relay)
        self._liveness.join(relay)

    def over(self, relay: Relay) -> None:
        """Nothing is left of it."""
        self._dialling.discard(relay)
        for deadlines in (self._handshakes, self.pongs, self.ending, self.lingering):
            deadlines.discard(relay)
        self._liveness.leave(relay)
        self._if_over()

    def mark(self) -> bytes:
        """The payload of the next ping: 8 bytes that nobody else's ping has."""
        self.pings += 1
        return self._prefix + (self.pings & 0xFFFFFFFF).to_bytes(4, "big")

    def is_mark(self, payload: bytes) -> bool:
        """Whether this is the payload of a ping of ours."""
        return len(payload) == 8 and payload.startswith(self._prefix)

    def _if_over(self) -> None:
        if self._stopped is not None and not self._stopped.called and not self._dialling and not self.open:
            self._liveness.stop()
            self._stopped.callback(None)


def _unanswered(relay: Relay) -> None:
    relay.failed(errors.GatewayTimeout())

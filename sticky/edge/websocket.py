"""All WebSocket relays of a daemon: how many there are, how they begin, and how they end with it.

Must not know what a relay does (`websocket_relay`): it starts them and closes them all. What those of one Server share is a
`Home`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from sticky import errors
from sticky.core.values import ContainerId, EndReason
from sticky.edge.autobahn_config import client_factory, configured, plain_names, server_factory
from sticky.edge.doors import connections_possible
from sticky.edge.grammar import HeadLimits
from sticky.edge.handshake import Handshake, IWebSocketFront, RelayRules
from sticky.edge.legs import ClientLeg, ContainerLeg
from sticky.edge.liveness import Liveness, Marks
from sticky.edge.messages import ClientMessages, ContainerMessages
from sticky.edge.websocket_relay import SILENT_CHECKS, Relay
from sticky.isticky import ILease
from sticky.observe.safely import safely

_log = Logger(namespace="sticky.edge")

MAX_HANDSHAKES = 10_000  #: that may be under way at once, where the limit of open files allows it

SHARE = 4  #: one container that does not answer holds up to a quarter of them: others' clients are let in


@attrs.frozen(kw_only=True)
class RelayTimes:
    """How long every relay of a daemon waits for what. Seconds."""

    connect_timeout: float = 5.0  #: for the connection to the container
    handshake_timeout: float = 60.0  #: for the connection to the container and its answer; 0: no limit
    close_timeout: float = 10.0  #: for both peers' answers to a Close of ours, and for a connection to empty its buffer
    linger_timeout: float = 30.0  #: between the first Close of a peer's own and the end


class Home:
    """What the relays of one set of rules share: their kinds of leg and their clock."""

    def __init__(
        self,
        reactor: Any,
        rules: RelayRules,
        times: RelayTimes,
        heads: HeadLimits,
        marks: Marks,
        gone: Callable[[Relay], None],
    ) -> None:
        """`heads`: of containers' answers; `gone` is told of each relay that has left the dialling stage or ended."""
        self.reactor = reactor
        self.connect_timeout = times.connect_timeout
        self.rules = rules
        self.marks = marks
        self._gone = gone
        # Both factories serve every connection; their options are on classes of this object's own.
        messages = rules.mode == "messages"
        options = {"maxMessagePayloadSize": rules.max_message_size} if messages else {}
        client, container = (ClientMessages, ContainerMessages) if messages else (ClientLeg, ContainerLeg)
        self.client_leg: type[ClientLeg] = configured(client, server_factory(reactor, **options))
        self.container_leg: type[ContainerLeg] = configured(container, client_factory(reactor, **options))
        self.container_leg.limits = heads
        silence = (rules.silent_timeout or 0.0) / SILENT_CHECKS
        self.liveness = Liveness(
            reactor,
            rules.ping_interval,
            rules.ping_timeout,
            silence,
            times.handshake_timeout,
            times.close_timeout,
            times.linger_timeout,
        )
        self.pongs = self.liveness.deadlines(rules.ping_timeout, Relay.silent)
        self.silence = self.liveness.deadlines(silence, Relay.nothing_said)
        self.ending = self.liveness.deadlines(times.close_timeout, Relay.late)
        self.lingering = self.liveness.deadlines(times.linger_timeout, Relay.late)
        self.handshakes = self.liveness.deadlines(times.handshake_timeout, _unanswered)

    def joined(self, relay: Relay) -> None:
        """Frames pass."""
        self._gone(relay)
        self.handshakes.discard(relay)
        self.silence.add(relay)
        self.liveness.join(relay)

    def over(self, relay: Relay) -> None:
        """Nothing is left of it."""
        for deadlines in (self.handshakes, self.pongs, self.silence, self.ending, self.lingering):
            deadlines.discard(relay)
        self.liveness.leave(relay)
        self._gone(relay)


class WebSocketRelays:
    """One for each daemon. `reactor` dials and is the clock."""

    def __init__(
        self,
        reactor: Any,
        times: RelayTimes | None = None,
        *,
        heads: HeadLimits | None = None,
        max_handshakes: int | None = None,
    ) -> None:
        """`heads`: the limits of containers' answers.

        `max_handshakes`: that may be under way at once; None: so many that as many other clients still find room.
        """
        plain_names()
        self._reactor = reactor
        self._times = times or RelayTimes()
        self._heads = heads or HeadLimits()
        self._homes: dict[RelayRules, Home] = {}
        self._dialling: dict[Relay, ContainerId] = {}
        self._dialled: Counter[ContainerId] = Counter()
        self._max_handshakes = max_handshakes or min(MAX_HANDSHAKES, max(1, connections_possible() // 2))
        self.marks = Marks()
        self._stopped: Deferred[None] | None = None

    @property
    def open(self) -> int:
        """Relays whose handshake is over and which are not gone."""
        return sum(len(home.liveness) for home in self._homes.values())

    @property
    def dialling(self) -> int:
        """Handshakes under way."""
        return len(self._dialling)

    def relay(self, front: IWebSocketFront, handshake: Handshake, lease: ILease) -> None:
        """Make a WebSocket of this handshake, or have the front refuse it. Never raises for what a peer does.

        The lease is the relay's from now on: it becomes the holder, and releases it when both sides are closed, or the
        client has left. It is the front's again when the front's `refuse` or `pass_on` is called: the answer is in flight
        until the client has it.
        """
        if self._stopped is not None:
            front.refuse(errors.ShuttingDown())
        elif (
            len(self._dialling) >= self._max_handshakes
            or self._dialled[lease.container] >= self._max_handshakes // SHARE + 1
        ):
            front.refuse(errors.Unavailable("Too many WebSocket handshakes are under way.", retry_after=1))
        else:
            home = self._homes.get(handshake.rules)
            if home is None:
                home = Home(self._reactor, handshake.rules, self._times, self._heads, self.marks, self._settled)
                self._homes[handshake.rules] = home
            relay = Relay(home, front, handshake, lease)
            self._dialling[relay] = lease.container
            self._dialled[lease.container] += 1
            home.handshakes.add(relay)
            relay.start()

    def close_all(self, code: int = 1001, reason: str = EndReason.SERVER_STOPPED.value) -> Deferred[None]:
        """Refuse new handshakes, close all relays with this code; fires when all are gone.

        That is bounded: whoever has not answered after the close timeout is cut.
        """
        if self._stopped is None:
            self._stopped = Deferred()
            for dialling in list(self._dialling):
                safely(_log, dialling.failed, errors.ShuttingDown())
            for relay in self._joined():
                safely(_log, relay.close, code, reason.encode())
            self._if_over()
        return self._stopped

    def cut_all(self) -> None:
        """Close every connection of every relay now: nobody is waited for any more."""
        for dialling in list(self._dialling):
            safely(_log, dialling.failed, errors.ShuttingDown())
        for relay in self._joined():
            safely(_log, relay.late)

    def _joined(self) -> list[Relay]:
        return [relay for home in self._homes.values() for relay in home.liveness if isinstance(relay, Relay)]

    def _settled(self, relay: Relay) -> None:
        container = self._dialling.pop(relay, None)
        if container is not None:
            self._dialled[container] -= 1
            if not self._dialled[container]:
                del self._dialled[container]
        self._if_over()

    def _if_over(self) -> None:
        if self._stopped is not None and not self._stopped.called and not self._dialling and not self.open:
            for home in self._homes.values():
                home.liveness.stop()
            self._stopped.callback(None)


def _unanswered(relay: Relay) -> None:
    relay.failed(errors.GatewayTimeout())

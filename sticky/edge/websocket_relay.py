"""One WebSocket relay: from a handshake that the front has read to the moment when both connections are closed.

Must not know HTTP beyond the handshake, nor what a frame holds (`legs`, `frames`). It is its lease's holder: the lease is
released when both sides are closed, and what ends the session ends the relay with a Close that says why.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ClientFactory
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.handshake import Handshake
from sticky.edge.leg import Leg, Phase
from sticky.edge.legs import ClientLeg, ContainerLeg
from sticky.edge.liveness import Deadlines
from sticky.edge.parsing import ResponseHead
from sticky.edge.wire import close_code
from sticky.isticky import ILeaseHolder, TCPAddress

_log = Logger()

DIAL_TIMEOUT = 30  #: seconds for a connection to a container


class RelayHome(Protocol):
    """What all relays of a daemon share."""

    reactor: Any
    client_leg: type[ClientLeg]
    container_leg: type[ContainerLeg]
    pongs: Deadlines  #: who waits for a sign of life
    ending: Deadlines  #: who waits for the answers to a Close of ours
    lingering: Deadlines  #: who waits for the end after a peer's own Close

    def joined(self, relay: Relay) -> None:
        """Frames pass: pings may begin."""

    def over(self, relay: Relay) -> None:
        """It needs nothing more."""

    def mark(self) -> bytes:
        """The payload of the next ping."""

    def is_mark(self, payload: bytes) -> bool:
        """Whether a ping of ours had this payload."""


class Stage(Enum):
    """What a relay is at."""

    DIALLING = "dialling"  # the front has the client; the container connects or has not answered yet
    JOINED = "joined"  # frames pass
    ENDING = "ending"  # a Close has passed, or a side is gone
    GONE = "gone"  # both connections are closed, or the front has the client again


STAGES: dict[Stage, frozenset[Stage]] = {
    Stage.DIALLING: frozenset({Stage.JOINED, Stage.GONE}),
    Stage.JOINED: frozenset({Stage.ENDING}),
    Stage.ENDING: frozenset({Stage.GONE}),
    Stage.GONE: frozenset(),
}


class Dialler(ClientFactory):
    """One attempt to reach a container."""

    noisy = False

    def __init__(self, relay: Relay, leg: ContainerLeg) -> None:
        self._relay: Relay | None = relay
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


@implementer(ILeaseHolder)
class Relay:
    """One WebSocket. Owns its two legs and its lease."""

    __slots__ = ("_asked", "_connector", "_front", "_handshake", "_lease", "_mark", "_moved", "_relays",
                 "client", "container", "slot", "stage")  # fmt: skip

    client: ClientLeg
    container: ContainerLeg

    def __init__(self, relays: RelayHome, front: Any, handshake: Handshake, lease: Any) -> None:
        key = handshake.head.value(b"sec-websocket-key") or b""
        self._relays = relays
        self._front = front
        self._handshake: Handshake | None = handshake
        self._lease = lease
        self._connector: Any = None
        self._mark: bytes | None = None  # the payload of our ping that has not been answered
        self._asked: bytes | None = None  # the payload of the container's last ping, if not answered
        self._moved = False  # the client's connection took bytes since our last ping
        self.slot = 0
        self.stage = Stage.DIALLING
        self.client = relays.client_leg(self)
        self.container = relays.container_leg(self, key, handshake.container_head)
        self.client.other, self.container.other = self.container, self.client

    # --- until the legs are joined

    def start(self) -> None:
        """Check the client's handshake and dial the container."""
        assert self._handshake is not None
        if not self.client.check(self._handshake.head.value(b"sec-websocket-key") or b""):
            self.failed(errors.BadRequest("The WebSocket handshake is not valid."))
            return
        self._lease.transfer(self)
        self._front.on_gone(self.client_left)
        dialler = Dialler(self, self.container)
        address = self._lease.address
        if isinstance(address, TCPAddress):
            self._connector = self._relays.reactor.connectTCP(address.host, address.port, dialler, DIAL_TIMEOUT)
        else:
            self._connector = self._relays.reactor.connectUNIX(address.path, dialler, DIAL_TIMEOUT)

    def client_left(self) -> None:
        """The front lost the client."""
        if self.stage is Stage.DIALLING:
            self._give_up()
            self._lease.release()

    def failed(self, error: errors.Refusal) -> None:
        """No WebSocket comes of it: the front answers, and has the lease again. No-op once that is settled."""
        if self.stage is Stage.DIALLING:
            front = self._give_up()
            front.refuse(error)

    def refused(self, data: bytes) -> None:
        """The container's own refusal: the front streams it, and has the lease again."""
        if self.stage is Stage.DIALLING:
            transport = self.container.drop()
            front = self._give_up()
            front.pass_on(transport, data)

    def _give_up(self) -> Any:
        front = self._front
        self._enter(Stage.GONE)
        if self.container.transport is not None:
            self.container.abort()
        elif self.container.phase is Phase.SHAKING:
            self.container.leave()
            if self._connector is not None:
                self._connector.disconnect()
        self._relays.over(self)
        self._forget()
        return front

    def answered(self, head: ResponseHead, early: bytes) -> None:
        """The container's 101: hand it to the client and join the legs."""
        handshake, front = self._handshake, self._front
        assert handshake is not None
        switched = head.raw
        selected = head.values(b"sec-websocket-protocol")
        if selected:
            if len(selected) > 1 or selected[0] not in handshake.offers:
                self.failed(errors.BadGateway("The container selected a subprotocol that was not offered."))
                return
        elif handshake.echo is not None:
            switched = switched[:-2] + b"Sec-WebSocket-Protocol: " + handshake.echo + b"\r\n\r\n"
        transport = front.transport
        from_client = front.take_over()
        self._front = self._handshake = self._connector = None
        client, container = self.client, self.container
        client.transport = transport
        if isinstance(transport, ProtocolWrapper):
            transport.wrappedProtocol = client
        else:
            transport.protocol = client
        for end in (client, container):
            _tune(end.transport)
        transport.write(switched)
        transport.registerProducer(container, True)
        container.transport.registerProducer(client, True)
        client.opened()
        container.opened()
        self._enter(Stage.JOINED)
        self._relays.joined(self)
        if early:
            container.dataReceived(early)
        if from_client:
            client.dataReceived(from_client)

    # --- while frames pass

    def turn(self) -> None:
        """Time for a ping."""
        if self.stage is not Stage.JOINED or self.client.queue or self in self._relays.pongs:
            return
        if self._asked is not None:
            # Two pings may be answered by one pong, for the later (RFC 6455, 5.5.3): the container would miss its own. Its
            # ping does as well as ours, unless the client never answers it.
            self._relays.pongs.add(self)
            self.client.listen()
        else:
            self._ping()

    def _ping(self) -> None:
        self._moved = False
        self._asked = None
        self._mark = self._relays.mark()
        self._relays.pongs.add(self)
        self.client.listen()
        self.client.sendPing(self._mark)

    def silent(self) -> None:
        """The time for a sign of life is over."""
        if self.stage is not Stage.JOINED:
            return
        if self._mark is None:
            self._ping()
        elif self._moved or self.client.paused:
            # It takes what we send, and the pong comes after; or it is we who do not read, since the container does not.
            self._moved = False
            self._relays.pongs.add(self)
            self.client.listen()
        else:
            _log.info("A client answers no ping: its connection is cut. {session}", session=self._lease.session)
            self.client.abort()
            self.bereft(self.container)

    def written(self) -> None:
        """A ping that had to wait for the end of a frame is written: the time to answer it begins."""
        if self in self._relays.pongs:
            self._moved = False
            self._relays.pongs.add(self)

    def listening(self) -> bool:
        """Whether a sign of life is awaited."""
        return self in self._relays.pongs

    def alive(self) -> None:
        """Bytes came from the client."""
        self._relays.pongs.discard(self)

    def ponged(self, payload: bytes) -> bool:
        """Whether this pong answers a ping of ours."""
        if payload == self._asked:
            self._asked = None
        if not self._relays.is_mark(payload):
            return False
        if payload == self._mark:
            self._mark = None
        return True

    def pinged(self, payload: bytes) -> None:
        """The container pings the client."""
        self._asked = payload

    def progressed(self) -> None:
        """The client's connection took bytes."""
        self._moved = True

    # --- the end

    def bereft(self, leg: Leg) -> None:
        """The other peer is gone without a Close."""
        if leg is self.container:
            leg.leave()  # as without a proxy: it sees its client vanish
        elif self.container.left:
            leg.abort()  # inside a frame nothing can be said
        else:
            leg.tell(close_code(EndReason.CONTAINER_LOST), EndReason.CONTAINER_LOST.value.encode())
        self._relays.ending.add(self)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """The lease is gone: say so to both sides."""
        if self.stage is Stage.DIALLING:
            self.failed(errors.SessionEnded(reason.value, detail))
        else:
            self.close(close_code(reason), reason.value.encode())

    def close(self, code: int, reason: bytes) -> None:
        """Send our Close to both peers, at the next boundary; whoever has not answered in time is cut."""
        if self.stage is Stage.JOINED or self.stage is Stage.ENDING:
            self._relays.ending.add(self)
            self.client.tell(code, reason)
            self.container.tell(code, reason)

    def late(self) -> None:
        """The time for a tidy end is over."""
        for leg in (self.client, self.container):
            leg.abort()

    def changed(self) -> None:
        """A leg has entered another phase."""
        if self.stage is Stage.JOINED:
            self._enter(Stage.ENDING)
            self._relays.lingering.add(self)
        if self.stage is Stage.ENDING and self.client.phase is self.container.phase is Phase.LOST:
            self._enter(Stage.GONE)
            self._relays.over(self)
            self._lease.release()
            self._forget()

    def _enter(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage]:
            raise errors.IllegalEvent(f"a relay cannot go from {self.stage.name} to {stage.name}")
        self.stage = stage

    def _forget(self) -> None:
        """Without these no cycle is left for the garbage collector."""
        self._front = self._handshake = self._connector = None
        self.client.other, self.container.other = self.client, self.container
        del self.client, self.container


def _tune(transport: Any) -> None:
    """No waiting for more to send, and a peer that died without a word is found in the end. Unix sockets know neither."""
    try:
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
    except (AttributeError, OSError):
        pass

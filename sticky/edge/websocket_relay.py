"""One WebSocket relay: from a handshake that the front has read to the moment when both connections are closed.

Must not know HTTP beyond the handshake, nor what a frame holds (`legs`, `frames`). It is its lease's holder: the lease is
released when both sides are closed, and what ends the session ends the relay with a Close that says why.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from zope.interface import implementer

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.handshake import Handshake
from sticky.edge.leg import NOBODY, Leg, Phase
from sticky.edge.legs import ClientLeg, ContainerLeg
from sticky.edge.liveness import Deadlines, Marks
from sticky.edge.parsing import ResponseHead
from sticky.edge.websocket_dial import CONNECTED, Dialler
from sticky.edge.wire import close_code
from sticky.isticky import ILeaseHolder, TCPAddress

_log = Logger()

#: What a peer did, by the code that says so (RFC 6455, 7.4.1).
BROKEN = {1002: "protocol_error", 1007: "invalid_payload", 1009: "message_too_big"}
#: In a silent timeout: a WebSocket is found silent a quarter of it late at most, by these and the clock's steps.
SILENT_CHECKS = 8
HEARD, UNCOUNTED = 0, -1  # of a relay's silence, else the number of checks since it began


class RelayHome(Protocol):
    """What relays share."""

    reactor: Any
    connect_timeout: float  #: seconds
    client_leg: type[ClientLeg]
    container_leg: type[ContainerLeg]
    marks: Marks
    pongs: Deadlines  #: who waits for a sign of life
    silence: Deadlines  #: who waits for data
    ending: Deadlines  #: who waits for the answers to a Close of ours
    lingering: Deadlines  #: who waits for the end after a peer's own Close

    def joined(self, relay: Relay) -> None:
        """Frames pass: pings may begin."""

    def over(self, relay: Relay) -> None:
        """It needs nothing more."""


class Stage(Enum):
    """What a relay is at."""

    DIALLING = "dialling"  # the front has the client; the container connects or has not answered yet
    JOINED = "joined"  # frames pass
    ENDING = "ending"  # a Close has passed, or a side is gone
    GONE = "gone"  # both connections are closed, or the front has the client again

    __hash__ = object.__hash__  # Enum's own is Python code


_DIALLING, _JOINED, _ENDING, _GONE = Stage

STAGES: dict[Stage, frozenset[Stage]] = {
    _DIALLING: frozenset({_JOINED, _GONE}),
    _JOINED: frozenset({_ENDING}),
    _ENDING: frozenset({_GONE}),
    _GONE: frozenset(),
}


@implementer(ILeaseHolder)
class Relay:
    """One WebSocket. Owns its two legs and its lease."""

    __slots__ = ("_asked", "_connector", "_front", "_handshake", "_home", "_lease", "_mark", "_moved", "_reason",
                 "_silence", "client", "container", "slot", "stage")  # fmt: skip

    client: ClientLeg
    container: ContainerLeg

    def __init__(self, home: RelayHome, front: Any, handshake: Handshake, lease: Any) -> None:
        key = handshake.head.value(b"sec-websocket-key") or b""
        self._home = home
        self._front = front
        self._handshake: Handshake | None = handshake
        self._lease = lease
        self._connector: Any = None
        self._mark: bytes | None = None  # the payload of our ping that has not been answered
        self._asked: bytes | None = None  # the payload of the container's last ping, if not answered
        self._moved = False  # the client's connection took bytes since our last ping
        self._silence = HEARD
        self._reason = ""  # why it ends, for the log: the first cause
        self.slot = 0
        self.stage = _DIALLING
        self.client = home.client_leg(self)
        self.container = home.container_leg(self, key, handshake.container_head, handshake.head)
        self.client.other, self.container.other = self.container, self.client

    # --- until the legs are joined

    def start(self) -> None:
        """Check the client's handshake and dial the container."""
        if not self.client.check(self.container.key):
            self.failed(errors.BadRequest("The WebSocket handshake is not valid."))
            return
        self._lease.transfer(self)
        self._front.on_gone(self.client_left)
        dialler = Dialler(self, self.container)
        address = self._lease.address
        if isinstance(address, TCPAddress):
            where = {"network": address.network} if address.network else {}
            self._connector = self._home.reactor.connectTCP(
                address.host, address.port, dialler, self._home.connect_timeout, **where
            )
        else:
            self._connector = self._home.reactor.connectUNIX(address.path, dialler, self._home.connect_timeout)

    def client_left(self) -> None:
        """The front lost the client."""
        if self.stage is _DIALLING:
            lease = self._lease
            self._give_up()
            lease.release()

    def failed(self, error: errors.Refusal) -> None:
        """No WebSocket comes of it: the front answers, and has the lease again. No-op once that is settled."""
        if self.stage is _DIALLING:
            front = self._give_up()
            front.refuse(error)

    def refused(self, data: bytes) -> None:
        """The container's own refusal: the front streams it, and has the lease again."""
        if self.stage is _DIALLING:
            transport = self.container.drop()
            front = self._give_up()
            front.pass_on(transport, data)

    def _give_up(self) -> Any:
        front = self._front
        self._enter(_GONE)
        if self.container.transport is not None:
            self.container.abort()
        elif self.container.phase is Phase.SHAKING:
            self.container.leave()
            if self._connector is not None:
                self._connector.disconnect()
        self._home.over(self)
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
        switched = self.client.switching(switched, handshake.head)
        transport = front.transport
        from_client = front.take_over()
        self._handshake = self._connector = None
        client, container = self.client, self.container
        client.transport = transport
        if isinstance(transport, ProtocolWrapper):
            transport.wrappedProtocol = client
        else:
            transport.protocol = client
        for end in (client, container):
            _tune(end.transport)
        container.transport.connector = CONNECTED
        container.key = b""
        transport.write(switched)
        transport.registerProducer(container, True)
        container.transport.registerProducer(client, True)
        client.opened()
        container.opened()
        self._enter(_JOINED)
        self._home.joined(self)
        if early:
            container.dataReceived(early)
        if from_client:
            client.dataReceived(from_client)

    # --- while frames pass

    def turn(self) -> None:
        """Time for a ping."""
        if self.stage is not _JOINED or self.client.queue or self in self._home.pongs:
            return
        if self._asked is not None:
            # Two pings may be answered by one pong, for the later (RFC 6455, 5.5.3): the container would miss its own. Its
            # ping does as well as ours, unless the client never answers it.
            self._home.pongs.add(self)
            self.client.listen()
        else:
            self._ping()

    def _ping(self) -> None:
        self._moved = False
        self._asked = None
        self._mark = self._home.marks.next()
        self._home.pongs.add(self)
        self.client.listen()
        self.client.sendPing(self._mark)

    def silent(self) -> None:
        """The time for a sign of life is over."""
        if self.stage is not _JOINED:
            return
        if self._mark is None:
            self._ping()
        elif self._moved or self.client.paused:
            # It takes what we send, and the pong comes after; or it is we who do not read, since the container does not.
            self._moved = False
            self._home.pongs.add(self)
            self.client.listen()
        else:
            _log.info("A client answers no ping: its connection is cut. {session}", session=self._lease.session)
            self._because("no_pong")
            self.client.abort()
            self.bereft(self.container)

    def written(self) -> None:
        """A ping that had to wait for the end of a frame is written: the time to answer it begins."""
        if self in self._home.pongs:
            self._moved = False
            self._home.pongs.add(self)

    def watching(self, leg: Leg) -> bool:
        """Whether data is awaited, or a sign of life from the client."""
        return self._silence != HEARD or (leg is self.client and self in self._home.pongs)

    def alive(self) -> None:
        """Bytes came from the client."""
        self._home.pongs.discard(self)

    def ponged(self, payload: bytes) -> bool:
        """Whether this pong answers a ping of ours."""
        if payload == self._asked:
            self._asked = None
        if payload not in self._home.marks:
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

    # --- whether it counts

    def nothing_said(self) -> None:
        """An eighth of the silent timeout has passed. In the first of them data may have come that nobody looked at."""
        if self.stage is not _JOINED or self._silence == UNCOUNTED:
            return
        if self._silence > SILENT_CHECKS:
            self._silence = UNCOUNTED
            self._lease.suspend()
            return
        self._silence += 1
        self._home.silence.add(self)
        self.client.listen()
        self.container.listen()

    def spoke(self) -> None:
        """A data frame has come."""
        silence, self._silence = self._silence, HEARD
        if silence == UNCOUNTED and self.stage is _JOINED:
            self._home.silence.add(self)
            try:
                self._lease.resume()
            except errors.SessionEnded as error:
                self.session_ended(EndReason(error.code), error.detail)

    def later(self, leg: Leg) -> None:
        """A leg has more to do than others should wait for."""
        self._home.reactor.callLater(0, leg.go_on)

    # --- the end

    def broken(self, leg: Leg, code: int) -> None:
        """A peer sent what no peer may send, or too much: both are told. What a container breaks is no client's error."""
        who = "client" if leg is self.client else "container"
        reason = f"{who}_{BROKEN[code]}"
        self._because(reason)
        _log.info("A WebSocket is closed: {reason}. {session}", reason=reason, session=self._lease.session)
        self._home.ending.add(self)
        self.client.tell(1011 if leg is self.container and code == 1002 else code, reason.encode())
        self.container.tell(code, reason.encode())

    def bereft(self, leg: Leg) -> None:
        """The other peer is gone without a Close."""
        self._because("client_gone" if leg is self.container else EndReason.CONTAINER_LOST.value)
        if leg is self.container:
            leg.leave()  # as without a proxy: it sees its client vanish
        elif self.container.left:
            leg.abort()  # inside a frame nothing can be said
        else:
            leg.tell(close_code(EndReason.CONTAINER_LOST), EndReason.CONTAINER_LOST.value.encode())
        self._home.ending.add(self)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """The lease is gone: say so to both sides."""
        if self.stage is _DIALLING:
            self.failed(errors.SessionEnded(reason.value, detail))
        else:
            self.close(close_code(reason), reason.value.encode())

    def close(self, code: int, reason: bytes) -> None:
        """Send our Close to both peers, at the next boundary; whoever has not answered in time is cut."""
        if self.stage is _JOINED or self.stage is _ENDING:
            self._because(reason.decode())
            self._home.ending.add(self)
            self.client.tell(code, reason)
            self.container.tell(code, reason)

    def parted(self, code: int | None) -> None:
        """A peer's own Close, or its answer to ours."""
        self._because("closed" if code is None else f"closed_{code}")

    def _because(self, reason: str) -> None:
        self._reason = self._reason or reason

    def late(self) -> None:
        """The time for a tidy end is over."""
        for leg in (self.client, self.container):
            leg.abort()

    def changed(self) -> None:
        """A leg has entered another phase."""
        if self.stage is _JOINED:
            self._enter(_ENDING)
            self._home.lingering.add(self)
        if self.stage is _ENDING and self.client.phase is self.container.phase is Phase.LOST:
            self._enter(_GONE)
            self._home.over(self)
            self._front.over(self._reason or "-", self.client.taken, self.container.taken)
            self._lease.release()
            self._forget()

    def _enter(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage]:
            raise errors.IllegalEvent(f"a relay cannot go from {self.stage.name} to {stage.name}")
        self.stage = stage

    def _forget(self) -> None:
        """Without these no cycle is left for the garbage collector: the lease's holder is this object."""
        self._front = self._handshake = self._connector = self._lease = None
        self.client.other = self.container.other = NOBODY
        del self.client, self.container


def _tune(transport: Any) -> None:
    """No waiting for more to send, and a peer that died without a word is found in the end. Unix sockets know neither."""
    if getattr(transport, "tuned", False):
        return
    try:
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
    except (AttributeError, OSError):
        pass

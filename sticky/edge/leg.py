"""One of the two connections of a WebSocket relay: frames to the other, our own in between, and who has said goodbye.

A leg receives from its peer and writes to the other leg's. Must not know leases, fronts or time, nor which side it is on; it
tells its relay what happened. Data frames pass as they come (`frames`); our own are made by Autobahn.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from autobahn.websocket.protocol import WebSocketProtocol
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.edge.autobahn_config import Quietly
from sticky.edge.frames import CLOSE, Control, cut, walk
from sticky.edge.parsing import ResponseHead


class Phase(Enum):
    """What one leg and its peer have said to each other. A Close is ours or the other peer's, passed on."""

    SHAKING = "shaking"  # the opening handshake is not over
    OPEN = "open"  # no Close yet
    HEARD = "heard"  # the peer's Close has come, none has been written to it
    TOLD = "told"  # a Close has been written to the peer, none has come; nothing more is written
    LEAVING = "leaving"  # both, or cut off: nothing passes, the connection is being closed
    LOST = "lost"  # the connection is gone

    __hash__ = object.__hash__  # Enum's own is Python code


_SHAKING, _OPEN, _HEARD, _TOLD, _LEAVING, _LOST = Phase  # Python 3.11 takes 0.1 µs to find a member through its class


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    _SHAKING: frozenset({_OPEN, _LEAVING, _LOST}),
    _OPEN: frozenset({_HEARD, _TOLD, _LEAVING, _LOST}),
    _HEARD: frozenset({_LEAVING, _LOST}),
    _TOLD: frozenset({_LEAVING, _LOST}),
    _LEAVING: frozenset({_LOST}),
    _LOST: frozenset(),
}
TAKES = frozenset({_OPEN, _HEARD})  #: its peer may still be written to
HEARS = frozenset({_OPEN, _TOLD})  #: its peer's Close is still to come; after it nothing counts (RFC 6455, 5.5.1)

CUTS_A_TURN = 512  #: of the careful path: a read may hold ten thousand control frames, a tenth of a second of work


class LegOwner(Protocol):
    """The relay, as its legs see it."""

    def answered(self, head: ResponseHead, early: bytes) -> None:
        """The container answered 101, checked; `early` came after its head."""

    def refused(self, data: bytes) -> None:
        """The container answered something else; `data` is all of it so far."""

    def failed(self, error: errors.Refusal) -> None:
        """The container's answer is no use."""

    def changed(self) -> None:
        """A leg has entered another phase."""

    def watching(self, leg: Leg) -> bool:
        """Whether the relay waits for data, or from the client for a sign of life: then each read is looked at."""

    def alive(self) -> None:
        """The client sent something. Told of every read only while the relay is watching."""

    def spoke(self) -> None:
        """A data frame has come. Told of each only while the relay is watching."""

    def broken(self, leg: Leg, code: int) -> None:
        """What this leg's peer sent is against the protocol; `code` says how. Only where messages are relayed whole."""

    def ponged(self, payload: bytes) -> bool:
        """The client sent a pong; whether it answers a ping of ours."""

    def pinged(self, payload: bytes) -> None:
        """The container sent a ping."""

    def written(self) -> None:
        """Frames of ours that waited are on their way to the client."""

    def progressed(self) -> None:
        """The client's connection took bytes."""

    def later(self, leg: Leg) -> None:
        """Call the leg's `go_on` in a later turn."""

    def bereft(self, leg: Leg) -> None:
        """The other leg's peer is gone without a Close; this one is still there."""

    def parted(self, code: int | None) -> None:
        """A peer's Close, with this code or none."""


@implementer(IPushProducer, IHalfCloseableProtocol)
class Leg(Quietly):
    """One connection. `careful` says that the next read cannot go the fast way; `_settle` works it out anew.

    The slots are all that an idle connection keeps: what Autobahn has put beside them is dropped when it opens.
    """

    __slots__ = ("careful", "left", "other", "part", "paused", "phase", "queue", "relay", "state", "taken",
                 "transport", "waits")  # fmt: skip

    state: int  #: Autobahn's
    sendCloseFrame: Any  #: the same

    def __init__(self, relay: LegOwner) -> None:
        # Autobahn's own __init__ makes Deferreds and details that nobody reads.
        self.transport: Any = None
        self.relay = relay
        self.other: Leg = self
        self.phase = _SHAKING
        self.state = WebSocketProtocol.STATE_CONNECTING
        self.careful = True
        self.left = 0  # bytes of the peer's frame that are still to come; 0: what we passed on ends at a boundary
        self.part = b""  # the beginning of a frame, held back until its length, or all of a control frame, is there
        self.queue = b""  # our own frames, waiting for the end of the frame that is being written to this peer
        self.paused = False  # the other peer does not take what this one sends
        self.waits = False  # the rest of what has been read is for a later turn, and no more is read until then
        self.taken = 0  # bytes from the peer since the handshake

    # --- frames

    def dataReceived(self, data: bytes) -> None:
        """From the peer, to the other leg's."""
        size = len(data)
        self.taken += size
        if self.careful:
            self._look(data)
            return
        end, self.left = walk(data, self.left)
        if end == size:
            self.other.transport.write(data)
            return
        if end:
            self.other.transport.write(data[:end])
        self._look(data[end:])

    def _look(self, data: bytes) -> None:
        """The careful path: frame by frame, and not more of them in one turn than others can wait for."""
        if self.phase is _SHAKING:
            self._shake(data)
            return
        self._noticed()
        if self.part:
            data, self.part = self.part + data, b""
        if self.waits:
            self.part = data
            return
        at, size, steps = 0, len(data), 0
        out: list[bytes] = []
        while at < size and self.phase in HEARS:
            if steps == CUTS_A_TURN:
                self.part = data[at:]
                self._wait()
                break
            steps += 1
            found = cut(data, at, self.left)
            if found.end > at:
                self.relay.spoke()
                out.append(data[at : found.end])
            self.left = found.left
            at = found.next
            if self.other.queue and not self.left:
                self._flush(out)
                self.other._insert_queue()
            if found.control is None:
                pass
            elif found.control.opcode == CLOSE:
                self._flush(out)
                self._closed(found.control)
            elif self._passes(found.control.opcode, found.control.payload):
                out.append(found.control.raw)
            if found.held:
                self.part = data[at:]
                break
        self._flush(out)
        self._settle()

    def _flush(self, out: list[bytes]) -> None:
        if out and self.other.phase in TAKES:
            self.other.transport.write(b"".join(out))
        out.clear()

    def _closed(self, control: Control) -> None:
        """The peer's Close: passed on unless the other peer has had one, or its answer to ours."""
        other = self.other
        self.relay.parted(int.from_bytes(control.payload[:2], "big") if len(control.payload) > 1 else None)
        if other.phase in TAKES:
            other.transport.write(control.raw)
            other._told()
        self._enter(_HEARD if self.phase is _OPEN else _LEAVING)

    def _told(self) -> None:
        self._enter(_TOLD if self.phase is _OPEN else _LEAVING)

    def _noticed(self) -> None:
        """Bytes came from the peer."""

    def _passes(self, opcode: int, payload: bytes) -> bool:
        """Whether this control frame, no Close, is the other peer's."""
        return True

    def _wait(self) -> None:
        """Leave the rest of what has been read for a later turn."""
        self.waits = True
        self.transport.pauseProducing()
        self.relay.later(self)

    def go_on(self) -> None:
        """The later turn that was asked for has come. No-op when it came before, or the other peer has enough."""
        if self.waits and not self.paused and self.phase is not _LOST:
            self.waits = False
            self._go_on()

    def _go_on(self) -> None:
        self._take_rest()
        if not (self.paused or self.waits):
            self.transport.resumeProducing()

    def _take_rest(self) -> None:
        self._look(b"")

    def listen(self) -> None:
        """The relay is watching."""
        self.careful = True

    # --- frames of our own

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Everything that Autobahn writes. Its half of the handshake is only a check: the peer gets the other peer's own."""
        if self.phase is _SHAKING:
            return
        if self.other.left:
            self.queue += data
            self.other.careful = True
        else:
            self.transport.write(data)

    def _insert_queue(self) -> None:
        """The frame that was being written to this peer is complete."""
        data, self.queue = self.queue, b""
        if self.phase in TAKES:
            self.transport.write(data)
            if self.state == WebSocketProtocol.STATE_CLOSING:
                self._told()

    def tell(self, code: int, reason: bytes) -> None:
        """Send the peer our Close, at the next boundary. No-op where it has had one."""
        if self.phase not in TAKES or self.state != WebSocketProtocol.STATE_OPEN:
            return
        self.sendCloseFrame(code, reason)
        if not self.queue:
            self._told()

    # --- phases

    def _enter(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise errors.IllegalEvent(f"a leg cannot go from {self.phase.name} to {phase.name}")
        self.phase = phase
        if phase in (_TOLD, _LEAVING, _LOST) and self.transport is not None:
            # Nothing more goes to this peer: what the other one sends is read and dropped, its Close must not wait. And with
            # a producer registered a connection may never finish closing.
            self.transport.unregisterProducer()
            self.other._resume()
        if phase in (_LEAVING, _LOST):
            self.part = self.queue = b""
            if phase is _LEAVING and self.transport is not None:
                self._resume()
                self.transport.loseConnection()
        self._settle()
        self.other._settle()
        self.relay.changed()

    def _settle(self) -> None:
        self.careful = bool(
            self.phase is not _OPEN
            or self.other.phase is not _OPEN
            or self.part
            or self.other.queue
            or self.relay.watching(self)
        )

    def opened(self) -> None:
        """Both handshakes are over and the legs joined. What Autobahn has stored in this instance is dropped."""
        del self.__dict__
        self.part = b""
        self.taken = 0
        self._enter(_OPEN)

    def leave(self) -> None:
        """Close the connection once what was written is out. No-op when that is under way."""
        if self.phase not in (_LEAVING, _LOST):
            self._enter(_LEAVING)

    def drop(self) -> Any:
        """Give the connection away: nothing of it is this leg's any more."""
        transport, self.transport = self.transport, None
        self._enter(_LOST)
        return transport

    def abort(self) -> None:
        """Close the connection now; what was written and not sent is lost."""
        if self.phase is not _LOST:
            self.leave()
            if self.transport is not None:
                self.transport.abortConnection()

    def _gone(self, phase: Phase) -> None:
        """The peer is gone, and nothing will come from it any more."""
        before = self.phase
        self._enter(phase)
        if before is _SHAKING:
            self.relay.failed(errors.BadGateway())
        elif before in (_OPEN, _TOLD) and self.other.phase in TAKES:
            self.relay.bereft(self.other)

    # --- what Twisted calls

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The end of the connection, whoever brought it about."""
        if self.phase is not _LOST:
            self._gone(_LOST)

    def readConnectionLost(self) -> None:
        """FIN from the peer. After its Close that is how it should be; before, the peer is gone (RFC 6455, 7.1.5)."""
        if self.phase in (_OPEN, _TOLD):
            self._gone(_LEAVING)
        elif self.phase is _SHAKING:
            self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Never: our half is not closed alone."""

    def pauseProducing(self) -> None:
        """The other peer's connection has enough for now."""
        self.paused = True
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The other peer's connection has taken what was written."""
        self._resume()

    def stopProducing(self) -> None:
        """The other peer's connection is gone: its own leg reports that."""

    def _resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        if self.waits:
            self.relay.later(self)
        else:
            self.transport.resumeProducing()

    # --- what Autobahn calls; nothing of it is wanted

    def onOpen(self) -> None:
        """The relay goes on when the call that led here has returned: Autobahn still touches the instance after it."""

    def dropConnection(self, abort: bool = False) -> None:
        """Only a failed opening handshake leads here, and whoever asked for the check sees that in `state`."""

    def _shake(self, data: bytes) -> None:
        raise errors.IllegalEvent("bytes during the opening handshake")


class _Nobody:
    """No relay: of a leg that is nobody's other any more."""


#: In place of the other leg, once a relay is over: gone, and taking nothing.
NOBODY = Leg(_Nobody())  # type: ignore[arg-type]
NOBODY.phase = _LOST

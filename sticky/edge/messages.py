"""The legs of message mode: Autobahn reads and checks every frame, and whole messages go from one peer to the other.

Must not know leases, fronts or time. How each message was cut into frames is not kept, all else is: text or binary, the peers'
own pings, pongs and closes, and their order. Memory is bounded by the largest message: while the other peer does not take what
was sent, not even what has been read is decoded. Nor is more than a little of it in one turn: a read may hold ten thousand
frames, half a second of work that others would have to wait for.
"""

from __future__ import annotations

from typing import Any

from autobahn.websocket.protocol import WebSocketProtocol
from autobahn.websocket.utf8validator import Utf8Validator

from sticky.edge import deflate
from sticky.edge.frames import PING, PONG
from sticky.edge.leg import HEARS, TAKES, Leg, LegOwner, Phase
from sticky.edge.legs import ClientLeg, ContainerLeg
from sticky.edge.parsing import RequestHead, ResponseHead

STEPS_A_TURN = 512  #: of Autobahn's parser, at most three a frame; a few milliseconds


class Messages(Leg):
    """What both legs do. Beside the slots of a leg they keep Autobahn's state, in the instance."""

    # What Autobahn has in each of its instances; here from the class until it differs.
    data: bytes
    failedByMe: bool
    maxMessagePayloadSize: int
    message_data_total_length: int
    current_frame: Any
    current_frame_masker: Any
    sendMessage: Any
    sendPing: Any
    sendPong: Any
    consumeData: Any
    _perMessageCompress: Any

    _reading = False  # Autobahn's parser is at work, and must not be entered a second time
    _steps = 0  # of it that are left in this turn
    _binary = False
    _gathered: bytes | bytearray = b""  # of the message that is coming in

    def opened(self) -> None:
        """Both handshakes are over. The legs keep what was agreed, and a validator each."""
        compress = self._perMessageCompress
        del self.__dict__
        self.utf8validator = Utf8Validator()
        self._perMessageCompress = compress
        self.part = b""
        self.taken = 0
        self._enter(Phase.OPEN)

    # --- from the peer

    def dataReceived(self, data: bytes) -> None:
        """From the peer, to Autobahn."""
        self.taken += len(data)
        if self.phase is Phase.SHAKING:
            self._shake(data)
            return
        self._noticed()
        if self.failedByMe:
            self._look(data)
        elif self.phase in HEARS:
            self.data += data
            if not self.waits:
                self._read()

    def _read(self) -> None:
        if self._reading:
            return
        self._reading = True
        self._steps = STEPS_A_TURN
        try:
            self.consumeData()
        finally:
            self._reading = False
        if self.failedByMe and self.data:
            data, self.data = self.data, b""
            self._look(data)
        elif not self._steps and self.data and not self.waits and self.phase in HEARS:
            self._wait()

    def _take_rest(self) -> None:
        if self.data:
            self._read()
        else:
            super()._take_rest()

    def processData(self) -> bool:
        """One step of Autobahn's; no further while the other peer has enough, after the peer's Close, or in this turn."""
        if not self._steps or self.paused or self.failedByMe or self.phase not in HEARS:
            return False
        self._steps -= 1
        return bool(super().processData())  # type: ignore[misc]  # Autobahn's, behind Leg

    def _resume(self) -> None:
        if self.paused and not self.waits:
            self.paused = False
            self._go_on()
        else:
            super()._resume()

    def onMessageBegin(self, isBinary: bool) -> None:
        """The first frame of a message."""
        self._binary = isBinary
        self.message_data_total_length = 0

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame: Autobahn looks whether the message gets too long."""
        self.relay.spoke()
        super().onMessageFrameBegin(length)  # type: ignore[misc]

    def onMessageFrameData(self, payload: bytes) -> None:
        """Part of it. A list of parts, as Autobahn keeps one, grows without end by frames that hold nothing."""
        if not self._gathered:
            self._gathered = payload
        elif isinstance(self._gathered, bytearray):
            self._gathered += payload
        else:
            self._gathered = bytearray(self._gathered) + payload

    def onMessageFrameEnd(self) -> None:
        """Nothing to do."""

    def onMessageEnd(self) -> None:
        """A whole message, to the other peer."""
        gathered, self._gathered = self._gathered, b""
        other = self.other
        if not self.failedByMe and other.phase in TAKES:
            assert isinstance(other, Messages)
            # A message that cannot be compressed grows a little, and Autobahn counts that against the limit.
            plain = len(gathered) + len(gathered) // 1000 + 64 > self.maxMessagePayloadSize
            other.sendMessage(bytes(gathered), self._binary, doNotCompress=plain)

    def onPing(self, payload: bytes) -> None:
        """The peer's own: for the other peer to answer."""
        if self._passes(PING, payload) and self.other.phase in TAKES:
            assert isinstance(self.other, Messages)
            self.other.sendPing(payload)

    def onPong(self, payload: bytes) -> None:
        """An answer: of the other peer's ping, unless it was ours."""
        if self._passes(PONG, payload) and self.other.phase in TAKES:
            assert isinstance(self.other, Messages)
            self.other.sendPong(payload)

    def onCloseFrame(self, code: int | None, reasonRaw: bytes | None) -> bool:
        """The peer's Close: passed on unless the other peer has had one, or its answer to ours."""
        if code is not None and not _may_be_sent(code):
            self._protocol_violation("")
        elif reasonRaw is not None and not _is_text(reasonRaw):
            self._invalid_payload("")
        if self.failedByMe:
            self.leave()  # it has said its last word
            return True
        other = self.other
        self.relay.parted(code)
        if other.phase in TAKES:
            other.sendCloseFrame(code, reasonRaw)
            other._told()
        self._enter(Phase.HEARD if self.phase is Phase.OPEN else Phase.LEAVING)
        return True

    def _fail_connection(self, code: int = 1002, reason: str = "") -> None:
        """Autobahn found a fault. What still comes is only looked through for the peer's Close."""
        if not self.failedByMe:
            self.failedByMe = True
            self._gathered = b""
            frame = self.current_frame
            self.left = 0 if frame is None else frame.length - self.current_frame_masker.pointer()
            self.relay.broken(self, code)

    def _protocol_violation(self, reason: str) -> bool:
        self._fail_connection(WebSocketProtocol.CLOSE_STATUS_CODE_PROTOCOL_ERROR)
        return True

    def _invalid_payload(self, reason: str) -> bool:
        self._fail_connection(WebSocketProtocol.CLOSE_STATUS_CODE_INVALID_PAYLOAD)
        return True

    # --- to the peer

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Everything that Autobahn writes: whole frames."""
        if self.phase is not Phase.SHAKING:
            self.transport.write(data)


class ClientMessages(Messages, ClientLeg):
    """Towards the client."""

    def switching(self, switched: bytes, head: RequestHead) -> bytes:
        """The 101, with what is agreed with the client about compression in place of what is with the container."""
        offer = None
        if isinstance(self.other, Messages) and self.other._perMessageCompress is not None:
            offer = deflate.acceptable(head.values(deflate.FIELD))
        if offer is None:
            return deflate.without_extensions(switched) + b"\r\n"
        switched, self._perMessageCompress = deflate.accepting(switched, offer)
        return switched


class ContainerMessages(Messages, ContainerLeg):
    """Towards the container."""

    _offered = False

    def __init__(self, relay: LegOwner, key: bytes, head: bytes, asked: RequestHead) -> None:
        self._offered = deflate.acceptable(asked.values(deflate.FIELD)) is not None
        head = deflate.offering(head) if self._offered else deflate.without_extensions(head) + b"\r\n"
        super().__init__(relay, key, head, asked)

    def _check(self, head: ResponseHead) -> None:
        super()._check(head)
        self._perMessageCompress = deflate.agreed(head.values(deflate.FIELD), self._offered)


def _may_be_sent(code: int) -> bool:
    if 1000 <= code <= 2999:
        return code in WebSocketProtocol.CLOSE_STATUS_CODES_ALLOWED
    return 3000 <= code <= 4999


def _is_text(data: bytes) -> bool:
    valid, ends, *_ = Utf8Validator().validate(data)
    return bool(valid and ends)

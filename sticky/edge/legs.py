"""The two kinds of leg, with Autobahn's halves of the opening handshake: a server towards the client, a client towards the container.

Must not know leases, fronts or time. Each peer gets the other peer's own head; Autobahn's is only a check.
"""

from __future__ import annotations

from typing import Any, ClassVar

from autobahn.twisted.websocket import WebSocketClientProtocol, WebSocketServerProtocol
from autobahn.websocket.protocol import WebSocketProtocol

from sticky import errors
from sticky.edge.frames import PING, PONG
from sticky.edge.grammar import HeadLimits
from sticky.edge.leg import Leg, LegOwner
from sticky.edge.parsing import MAX_INFORMATIONAL, RequestHead, ResponseHead, find_response_end, parse_response


class ClientLeg(Leg, WebSocketServerProtocol):  # type: ignore[misc]  # Autobahn has no types
    """Towards the client: the server's side. The front reads its head; Autobahn checks what makes it a handshake."""

    __slots__ = ()

    def check(self, key: bytes) -> bool:
        """Whether Autobahn accepts the client's handshake.

        It sees what RFC 6455 asks of a handshake and no more. It splits lines at bytes like 0x85, drops bad ones, and knows
        only one extension: target, Host, Origin, subprotocols and extensions are our parser's and the container's to judge.
        """
        self.data = (  # type: ignore[misc]  # lives in the instance until `opened`
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        self.processHandshake()
        return bool(self.state == WebSocketProtocol.STATE_OPEN)

    def succeedHandshake(self, res: object) -> None:
        """All that Autobahn checks is as it should be. The 101 that it would make now is the container's to make."""
        self.state = WebSocketProtocol.STATE_OPEN

    def switching(self, switched: bytes, head: RequestHead) -> bytes:
        """The 101 for the client, from the container's own."""
        return switched

    def failHandshake(self, reason: str, code: int = 400, responseHeaders: object = None) -> None:
        """The front answers."""

    def onConnect(self, request: object) -> None:
        """The subprotocol is in the container's own 101."""

    def _noticed(self) -> None:
        self.relay.alive()

    def _insert_queue(self) -> None:
        super()._insert_queue()
        self.relay.written()

    def _passes(self, opcode: int, payload: bytes) -> bool:
        return opcode != PONG or not self.relay.ponged(payload)

    def pauseProducing(self) -> None:
        """The container does not keep up. If our Close waits inside the frame it is given, that end is not waited for."""
        super().pauseProducing()
        if self.other.queue:
            self.other.abort()


class ContainerLeg(Leg, WebSocketClientProtocol):  # type: ignore[misc]  # Autobahn has no types
    """Towards the container: the client's side, with the client's own head and key."""

    __slots__ = ("head", "key")

    limits: ClassVar[HeadLimits] = HeadLimits()
    _informational = 0  # 1xx answers so far; in the instance only until `opened`

    def __init__(self, relay: LegOwner, key: bytes, head: bytes, asked: RequestHead) -> None:
        """`head`: what to send; `asked`: what the client sent."""
        super().__init__(relay)
        self.key = key
        self.head = head

    def makeConnection(self, transport: Any) -> None:
        """Connected: ask."""
        self.transport = transport
        transport.write(self.head)
        self.head = b""

    def _shake(self, data: bytes) -> None:
        searched = len(self.part)
        self.part += data
        try:
            while True:
                end = find_response_end(self.part, searched, self.limits)
                if end < 0:
                    return
                head = parse_response(self.part[:end], b"GET", self.limits, upgrading=True)
                if not head.informational:
                    break
                self._informational += 1  # type: ignore[misc]
                if self._informational > MAX_INFORMATIONAL:
                    raise errors.BadGateway("The container sends informational answers without end.")
                self.part, searched = self.part[end:], 0
            if head.status != 101:
                self.relay.refused(self.part)
                return
            early = self.part[end:]
            self._check(head)
        except errors.BadGateway as error:
            self.relay.failed(error)
            return
        self.relay.answered(head, early)

    def _check(self, head: ResponseHead) -> None:
        """Let Autobahn check a 101 (RFC 6455, 4.1): it sees what it asked for and nothing of subprotocol and extensions."""
        lines = [b"HTTP/1.1 101 Switching Protocols"]
        for name, value in head.fields:
            if name.lower() in (b"upgrade", b"connection", b"sec-websocket-accept"):
                if not value.isascii():
                    raise errors.BadGateway("The container's answer to the handshake is not valid.")
                lines.append(name + b": " + value)
        self.websocket_key = self.key  # type: ignore[misc]
        self.data = b"\r\n".join(lines) + b"\r\n\r\n"  # type: ignore[misc]
        self.processHandshake()
        if head.minor != 1 or self.state != WebSocketProtocol.STATE_OPEN:
            raise errors.BadGateway("The container's answer to the handshake is not valid.")

    def failHandshake(self, reason: str) -> None:
        """`_check` sees it."""

    def onConnect(self, response: object) -> None:
        """Nothing."""

    def _passes(self, opcode: int, payload: bytes) -> bool:
        if opcode == PING:
            self.relay.pinged(payload)
        return True

    def _noticed(self) -> None:
        if self.other.queue:
            self.relay.progressed()

    def resumeProducing(self) -> None:
        """The client's connection has taken what was written."""
        super().resumeProducing()
        self.relay.progressed()

    def tell(self, code: int, reason: bytes) -> None:
        """As for any leg; a container that does not read, with a frame half written to it, is not waited for."""
        super().tell(code, reason)
        if self.queue and self.other.paused:
            self.abort()

"""Containers as TCP servers in the test's own reactor: one that records and answers 200, and one that follows a script.

They read with h11, so that what Sticky forwards is judged by somebody else's parser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from tests.edge.http_cases import Message


def text(lines: Any) -> list[tuple[str, str]]:
    """Fields as Latin-1 text."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in lines]


class RecordingProtocol(Protocol):
    """Answers 200 to every whole request and nothing before its end."""

    factory: RecordingContainer
    transport: Any

    def connectionMade(self) -> None:
        self._parser = self._new_parser()
        self._head: h11.Request | None = None
        self._body = b""
        self.received = b""
        self.factory.connections.append(self)

    def _new_parser(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self._parser.receive_data(data)
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as error:
                self.factory.faults.append(str(error))
                self._abort()
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._head = event
                self._body = b""
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._whole(event)

    def _whole(self, end: h11.EndOfMessage) -> None:
        head, self._head = self._head, None
        assert head is not None
        self.factory.requests.append(
            Message(
                text(head.headers),
                self._body.decode("latin-1"),
                text(end.headers),
                head.method.decode("latin-1"),
                head.target.decode("latin-1"),
            )
        )
        rest = self._parser.trailing_data[0]
        self._parser = self._new_parser()
        body = b"" if head.method == b"HEAD" else b"ok"
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)
        if rest:
            self.dataReceived(rest)

    def _abort(self) -> None:
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self._head is not None:
            self.factory.broken += 1
        self.factory.connections.remove(self)


class RecordingContainer(Factory):
    """Whole `requests` in order, how many were `broken` off, what was no HTTP at all (`faults`), connections that are open."""

    protocol = RecordingProtocol  # type: ignore[assignment]
    noisy = False

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.broken = 0
        self.faults: list[str] = []
        self.connections: list[RecordingProtocol] = []


class ScriptedProtocol(Protocol):
    """Hands everything to the test's function."""

    factory: ScriptedContainer
    transport: Any

    def connectionMade(self) -> None:
        self.received = b""
        self.lost = False
        self.factory.connections.append(self)
        self.factory.connected(self)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self.factory.total += len(data)
        if len(self.received) > 1_000_000:
            self.received = self.received[-1000:]
        self.factory.on_data(self)

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True
        self.factory.lost += 1


class ScriptedContainer(Factory):
    """Calls `on_data(connection)` whenever bytes came; `connections` are all that there ever were."""

    protocol = ScriptedProtocol  # type: ignore[assignment]
    noisy = False

    def __init__(self, on_data: Callable[[ScriptedProtocol], object]) -> None:
        self.on_data = on_data
        self.connected: Callable[[ScriptedProtocol], object] = lambda connection: None
        self.connections: list[ScriptedProtocol] = []
        self.lost = 0
        self.total = 0


class RawClient(Protocol):
    """Sends bytes as they are and keeps what comes."""

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.total = 0
        self.lost = False
        self.clean = False
        self.keep = True

    def received_has(self, data: bytes) -> bool:
        """Whether this has come."""
        return data in self.received

    def dataReceived(self, data: bytes) -> None:
        self.total += len(data)
        if self.keep:
            self.received += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True
        self.clean = reason is not None and reason.check(ConnectionDone) is not None

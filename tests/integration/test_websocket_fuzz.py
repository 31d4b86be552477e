"""Each case of `ws_fuzz` through the proxy and straight to the same peer: the same messages, the same codes, on both sides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SkipTest

from sticky.edge.handshake import RelayRules
from sticky.isticky import TCPAddress
from tests.integration.ws_fuzz import LAST, Case, cases, ending, last
from tests.integration.ws_matrix import whole
from tests.integration.ws_peers import (
    AsyncioServer,
    EchoServer,
    OneClient,
    Raw,
    RelayCase,
    autobahn_server,
    reactor,
    request,
)

try:
    import websockets
    import websockets.asyncio.server
except ImportError:
    websockets = None  # type: ignore[assignment]

AT_ONCE = 12
HANGS_AFTER = 1.5  #: seconds
VANISHED = 1006  #: no Close, but the end of the connection
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate"


@attrs.frozen
class Outcome:
    """What came of one case."""

    messages: tuple[bytes, ...]  #: that the server got
    code: int | None  #: that the client got; None: it hangs
    server_code: int | None  #: that the server says it ended with


class Books:
    """What a server saw, by the path of the handshake."""

    def __init__(self) -> None:
        self.messages: dict[str, list[bytes]] = {}
        self.codes: dict[str, int | None] = {}


def autobahn(books: Books) -> Any:
    """Autobahn's server. It says why it fails a connection, where its default is to drop it."""

    class Noting(EchoServer):
        def onConnect(self, asked: Any) -> None:
            self.path = asked.path
            books.messages[self.path] = []

        def onMessage(self, payload: bytes, isBinary: bool) -> None:
            books.messages[self.path].append(payload)
            if payload == LAST:
                self.sendMessage(payload)

        def dropConnection(self, abort: bool = False) -> None:
            # Closing with bytes unread is a reset, which may overtake its own Close.
            self.state = self.STATE_CLOSED
            self.transport.loseWriteConnection()

        def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
            books.codes[self.path] = self.localCloseCode if self.closedByMe else code

    def choose(offers: list[Any]) -> Any:
        return next((PerMessageDeflateOfferAccept(o) for o in offers if isinstance(o, PerMessageDeflateOffer)), None)

    factory = autobahn_server()
    factory.protocol = Noting
    factory.setProtocolOptions(failByDrop=False, closeHandshakeTimeout=0, perMessageCompressionAccept=choose)
    return factory


def websockets_server(books: Books) -> AsyncioServer:
    """That of `websockets`."""

    async def note(connection: Any) -> None:
        path = connection.request.path
        messages = books.messages[path] = []
        try:
            async for message in connection:
                messages.append(message.encode() if isinstance(message, str) else message)
                if messages[-1] == LAST:
                    await connection.send(message)
        except websockets.ConnectionClosedError:
            pass
        await connection.wait_closed()
        said = connection.protocol.close_sent
        heard = connection.protocol.close_rcvd
        first = said if connection.protocol.close_rcvd_then_sent is False or heard is None else heard
        books.codes[path] = VANISHED if first is None else first.code

    async def serve(listening: Callable[[int], None]) -> None:
        async with websockets.asyncio.server.serve(note, "127.0.0.1", 0, close_timeout=1, max_size=None) as server:
            listening(next(iter(server.sockets)).getsockname()[1])
            await asyncio.get_running_loop().create_future()

    return AsyncioServer(serve)


def difference(name: str, got: Outcome, wanted: Outcome) -> str:
    """Short enough to be read."""

    def brief(outcome: Outcome) -> str:
        kinds = [f"{message[:12]!r}/{len(message)}" for message in outcome.messages[:4]]
        return f"{kinds} client {outcome.code} server {outcome.server_code}"

    return f"{name}: {brief(got)}; wanted {brief(wanted)}"


class ToServer(RelayCase):
    """A client by hand."""

    rules = RelayRules(ping_interval=0)

    async def run_all(self, port: int, books: Books, todo: list[Case], prefix: str) -> dict[str, Outcome]:
        """All cases, some at a time."""
        found: dict[str, Outcome] = {}
        left = list(enumerate(todo))

        async def work() -> None:
            while left:
                number, case = left.pop(0)
                found[case.name] = await self.run_one(port, books, case, f"/{prefix}-{number}")

        await gatherResults([Deferred.fromCoroutine(work()) for _ in range(AT_ONCE)])
        return found

    async def run_one(self, port: int, books: Books, case: Case, path: str) -> Outcome:
        one = OneClient(Raw)
        connector = reactor.connectTCP("127.0.0.1", port, one)
        client: Raw = await one.first
        await self.until(lambda: client.transport is not None)
        lines = (DEFLATE,) if case.deflate else ()
        client.transport.write(request(*lines, target=path.encode()))
        await client.until(lambda: b"\r\n\r\n" in client.got)
        head, _, client.got = client.got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        assert (b"permessage-deflate" in head) == case.deflate, head
        wire = case.wire + last(masked=True)
        client.transport.write(wire[: len(wire) // 2])
        reactor.callLater(0, client.transport.write, wire[len(wire) // 2 :])

        def code() -> int | None:
            for opcode, payload in whole(client.got):
                if opcode == 8:
                    return int(struct.unpack("!H", payload[:2])[0]) if payload else 1005
            return VANISHED if client.fin or client.gone else None

        def answered() -> bool:
            return code() is not None or any(opcode == 1 for opcode, _ in whole(client.got))

        started = reactor.seconds()
        await self.until(lambda: answered() or reactor.seconds() - started > HANGS_AFTER)
        if code() is None:
            client.transport.write(ending(masked=True))
        await self.until(lambda: code() is not None or reactor.seconds() - started > HANGS_AFTER)
        seen = code()
        connector.disconnect()
        if seen is None:
            client.transport.abortConnection()
        await self.until(lambda: path in books.codes)
        return Outcome(tuple(books.messages[path]), seen, books.codes[path])

    async def compare(self, port: int, books: Books) -> None:
        todo = cases(masked=True)
        direct = await self.run_all(port, books, todo, "direct")
        through = await self.run_all(self.relayed(TCPAddress("127.0.0.1", port)), books, todo, "through")
        wrong = {
            name: (through[name], wanted)
            for name, wanted in ((name, self.expected(name, outcome)) for name, outcome in direct.items())
            if through[name] != wanted
        }
        self.assertFalse(wrong, "\n".join(difference(name, *both) for name, both in wrong.items()))
        self.assertGreater(len(direct), 250)
        # The comparison says something only if the servers do see faults of each kind.
        self.assertIn(1002, {outcome.code for outcome in direct.values()})

    def expected(self, name: str, direct: Outcome) -> Outcome:
        """The very same."""
        return direct

    async def autobahn(self) -> None:
        books = Books()
        address = self.listen(autobahn(books))
        assert isinstance(address, TCPAddress)
        await self.compare(address.port, books)

    async def websockets(self) -> None:
        if websockets is None:
            raise SkipTest("websockets is not installed")
        books = Books()
        server = websockets_server(books)
        self.addCleanup(server.stop)
        await self.compare(server.port, books)


class AsMessagesTests(ToServer):
    """The proxy finds the faults that Autobahn's server would: the same messages arrive, and the client is told the same."""

    rules = RelayRules(mode="messages", ping_interval=0)
    judged: Mapping[str, Outcome] = {}  #: straight to Autobahn

    async def test_autobahn(self) -> None:
        await self.autobahn()

    async def test_websockets(self) -> None:
        """This server lets some faults pass (lengths in a longer form than needed), and calls a Close within a message one.

        Neither reaches it: of a message that is not complete nothing has been passed on.
        """
        books = Books()
        address = self.listen(autobahn(books))
        assert isinstance(address, TCPAddress)
        self.judged = await self.run_all(address.port, books, cases(masked=True), "judged")
        await self.websockets()

    def expected(self, name: str, direct: Outcome) -> Outcome:
        if not self.judged:
            return direct
        judged = self.judged[name]
        if judged.code in (1002, 1007):
            return attrs.evolve(judged, server_code=judged.code)
        if direct.code == 1002:
            return attrs.evolve(direct, code=direct.server_code)
        return direct


class FramesTests(ToServer):
    """Frame by frame nothing at all is different."""

    async def test_autobahn(self) -> None:
        await self.autobahn()

    async def test_websockets(self) -> None:
        await self.websockets()

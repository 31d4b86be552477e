"""Each case of `ws_fuzz`, sent by a container, through the proxy and straight to the same client: both see the same."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SkipTest

from sticky.edge.handshake import RelayRules
from sticky.isticky import TCPAddress
from tests.integration.test_websocket_fuzz import AT_ONCE, HANGS_AFTER, VANISHED, Outcome, difference
from tests.integration.ws_fuzz import Case, cases, ending
from tests.integration.ws_matrix import whole
from tests.integration.ws_peers import Caller, One, RawContainer, RelayCase, autobahn_client, in_thread, reactor

try:
    import websockets
    import websockets.asyncio.client
except ImportError:
    websockets = None  # type: ignore[assignment]

CASES = cases(masked=False)


class Saying(RawContainer):
    """A container that sends the case that the path names, and closes when it has got a Close."""

    said: dict[str, Saying]

    def dataReceived(self, data: bytes) -> None:
        began = not self.head.endswith(b"\r\n\r\n")
        deflate = b"permessage-deflate" in data
        if began and deflate:
            self.extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
        super().dataReceived(data)
        if began and self.head.endswith(b"\r\n\r\n"):
            path = self.head.split(b" ")[1].decode()
            self.said[path] = self
            wire = CASES[int(path.rpartition("-")[2])].wire + ending(masked=False)
            self.transport.write(wire[: len(wire) // 2])
            reactor.callLater(0, self.transport.write, wire[len(wire) // 2 :])
        if any(opcode == 8 for opcode, _ in whole(self.got)):
            self.transport.loseConnection()

    @property
    def code(self) -> int | None:
        """That it has got."""
        for opcode, payload in whole(self.got):
            if opcode == 8:
                return int(struct.unpack("!H", payload[:2])[0]) if payload else 1005
        return VANISHED if self.fin or self.gone else None


class Strict(Caller):
    """Autobahn's client, but what follows a Close is not read (RFC 6455, 1.4), and no reset overtakes its own Close."""

    deaf = False

    def processData(self) -> bool:
        return not self.deaf and bool(super().processData())

    def onCloseFrame(self, code: int, reasonRaw: bytes) -> Any:
        result = super().onCloseFrame(code, reasonRaw)
        self.deaf = not self.failedByMe
        return result

    def dropConnection(self, abort: bool = False) -> None:
        self.state = self.STATE_CLOSED
        self.transport.loseWriteConnection()


async def autobahn(case: RelayCase, port: int, one: Case, path: str) -> tuple[list[bytes], int | None]:
    """What Autobahn's client makes of it. It says why it fails a connection, where its default is to drop it."""
    factory = autobahn_client(deflate=one.deflate)
    factory.setSessionParameters(url=f"ws://app.example{path}")
    factory.setProtocolOptions(failByDrop=False, closeHandshakeTimeout=0, serverConnectionDropTimeout=0)
    factory.protocol = Strict
    caller: Caller = await case.dial(port, factory)
    started = reactor.seconds()
    await case.until(lambda: getattr(caller, "ended", None) is not None or reactor.seconds() - started > HANGS_AFTER)
    messages = [payload for payload, _ in caller.messages]
    if caller.ended is None:
        caller.transport.abortConnection()
        return messages, None
    return messages, caller.localCloseCode if caller.closedByMe else caller.ended[1]


async def websockets_all(port: int, todo: list[tuple[str, Case]]) -> dict[str, tuple[list[bytes], int | None]]:
    """What the client of `websockets` makes of all of them."""
    found: dict[str, tuple[list[bytes], int | None]] = {}

    async def one(path: str, case: Case) -> None:
        messages: list[bytes] = []
        code: int | None = None
        connection = await websockets.asyncio.client.connect(
            f"ws://127.0.0.1:{port}{path}",
            compression="deflate" if case.deflate else None,
            max_size=None,
            close_timeout=1,
        )
        try:
            async with asyncio.timeout(HANGS_AFTER):
                while True:
                    message = await connection.recv(decode=False)
                    messages.append(message)
        except TimeoutError:
            connection.transport.abort()
        except websockets.ConnectionClosed:
            said, heard = connection.protocol.close_sent, connection.protocol.close_rcvd
            first = heard if connection.protocol.close_rcvd_then_sent else said or heard
            code = VANISHED if first is None else first.code
        found[path] = messages, code

    async def work() -> None:
        while todo:
            await one(*todo.pop(0))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found


class ToClients(RelayCase):
    """A container by hand."""

    rules = RelayRules(ping_interval=0)

    def expected(self, direct: Outcome) -> Outcome:
        """The very same."""
        return direct

    async def compare(self, ask: Any) -> None:
        class Container(Saying):
            said: dict[str, Saying] = {}

        address = self.listen(One(Container))
        assert isinstance(address, TCPAddress)
        found = {}
        for prefix, port in (("direct", address.port), ("through", self.relayed(address))):
            paths = [f"/{prefix}-{number}" for number in range(len(CASES))]
            seen = await ask(port, list(zip(paths, CASES, strict=True)))
            await gatherResults([Deferred.fromCoroutine(Container.said[path].end()) for path in paths])
            found[prefix] = {
                case.name: Outcome(tuple(seen[path][0]), seen[path][1], Container.said[path].code)
                for path, case in zip(paths, CASES, strict=True)
            }
        wrong = [
            difference(name, found["through"][name], self.expected(direct))
            for name, direct in found["direct"].items()
            if found["through"][name] != self.expected(direct)
        ]
        self.assertFalse(wrong, "\n".join(wrong))
        self.assertLessEqual({1002, 1007}, {outcome.server_code for outcome in found["direct"].values()})

    async def autobahn(self) -> None:
        async def ask(port: int, todo: list[tuple[str, Case]]) -> dict[str, Any]:
            found = {}

            async def work() -> None:
                while todo:
                    path, case = todo.pop(0)
                    found[path] = await autobahn(self, port, case, path)

            await gatherResults([Deferred.fromCoroutine(work()) for _ in range(AT_ONCE)])
            return found

        await self.compare(ask)

    async def websockets(self) -> None:
        if websockets is None:
            raise SkipTest("websockets is not installed")

        async def ask(port: int, todo: list[tuple[str, Case]]) -> Any:
            return await in_thread(lambda: websockets_all(port, todo))

        await self.compare(ask)


class FramesToClientsTests(ToClients):
    """Frame by frame nothing at all is different."""

    async def test_autobahn(self) -> None:
        await self.autobahn()

    async def test_websockets(self) -> None:
        await self.websockets()


class MessagesToClientsTests(ToClients):
    """The proxy finds the faults, tells the container, and the client that the container is at fault."""

    rules = RelayRules(mode="messages", ping_interval=0)

    def expected(self, direct: Outcome) -> Outcome:
        if direct.server_code == 1002:
            return attrs.evolve(direct, code=1011)
        return direct

    async def test_autobahn(self) -> None:
        await self.autobahn()

"""What a WebSocket relay has to do on real sockets in both modes, and on each kind of socket: mixins for the test files."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.isticky import TCPAddress, UNIXAddress
from tests.integration.ws_peers import (
    Caller,
    EchoServer,
    One,
    Raw,
    RawContainer,
    autobahn_client,
    autobahn_server,
    request,
)
from tests.strategies_frames import Frame, Reader, encode, parse

MIB = 1 << 20


def resident() -> int:
    """This process' memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def close(code: int, reason: bytes = b"", *, masked: bool = False) -> bytes:
    """A Close as bytes."""
    return encode(Frame(frames.CLOSE, struct.pack("!H", code) + reason, masked=masked))


def whole(wire: bytes | bytearray) -> list[tuple[int, bytes]]:
    """The complete messages and control frames of a wire, each with its opcode, in the order in which they end."""
    found: list[tuple[int, bytes]] = []
    opcode, payload = 0, b""
    for frame in Reader().feed(bytes(wire)):
        if frame.opcode & 8:
            found.append((frame.opcode, frame.payload))
            continue
        opcode = frame.opcode or opcode
        payload += frame.payload
        if frame.fin:
            found.append((opcode, payload))
            payload = b""
    return found


class AutobahnPeers:
    """Autobahn's own client and server, in both modes."""

    async def call(self: Any, server: Any, client: Any) -> Caller:
        caller: Caller = await self.dial(self.relayed(self.listen(server)), client)
        await self.until(lambda: caller.state == Caller.STATE_OPEN or hasattr(caller, "ended"))
        return caller

    async def test_messages_of_all_sizes_pass_and_the_close_with_its_code_and_reason(self: Any) -> None:
        server = autobahn_server()
        caller = await self.call(server, autobahn_client())
        sizes = [0, 1, 125, 126, 65535, 65536, MIB, 16 * MIB]
        for size in sizes:
            caller.sendMessage(b"x" * size, isBinary=True)
        caller.sendMessage("näher".encode(), isBinary=False)
        await self.until(lambda: len(caller.messages) == len(sizes) + 1)
        self.assertEqual([len(payload) for payload, _ in caller.messages[:-1]], sizes)
        self.assertEqual(caller.messages[-1], ("näher".encode(), False))
        caller.sendClose(3001, "bye")
        await self.until(lambda: caller.ended is not None and server.closed)
        self.assertEqual(server.closed, [(True, 3001, "bye")])
        self.assertEqual(caller.ended, (True, 1000, None))  # what this server answers

    async def test_deflate_with_context_takeover_is_negotiated_end_to_end(self: Any) -> None:
        caller = await self.call(autobahn_server(deflate=True), autobahn_client(deflate=True))
        (extension,) = caller.websocket_extensions_in_use
        self.assertEqual(extension.EXTENSION_NAME, "permessage-deflate")
        self.assertFalse(extension.server_no_context_takeover or extension.client_no_context_takeover)
        text = b"the same words again and again " * 300
        for _ in range(5):
            caller.sendMessage(text)
        await self.until(lambda: len(caller.messages) == 5)
        self.assertEqual({payload for payload, _ in caller.messages}, {text})
        caller.sendClose(1000)
        await self.until(lambda: caller.ended is not None)

    async def test_a_subprotocol_is_negotiated_end_to_end(self: Any) -> None:
        client = autobahn_client(protocols=["one", "two"])

        class Chooser(autobahn_server().protocol):  # type: ignore[misc]
            def onConnect(self, request: Any) -> str:
                return "two"

        server = autobahn_server(protocols=["two"])
        server.protocol = Chooser
        caller = await self.call(server, client)
        self.assertEqual(caller.websocket_protocol_in_use, "two")
        caller.sendClose(1000)
        await self.until(lambda: caller.ended is not None)

    async def test_fragments_pass_as_they_are(self: Any) -> None:
        caller = await self.call(autobahn_server(), autobahn_client())
        caller.beginMessage()
        for _ in range(3):
            caller.sendMessageFrame(b"abc")
            caller.sendPing(b"between")
        caller.endMessage()
        await self.until(lambda: len(caller.messages) == 1)
        self.assertEqual(caller.messages[0][0], b"abc" * 3)
        caller.sendClose(1000)
        await self.until(lambda: caller.ended is not None)

    async def test_an_ended_session_is_told_to_both_with_its_code_and_reason(self: Any) -> None:
        server = autobahn_server()
        caller = await self.call(server, autobahn_client())
        self.fronts.leases[0].holder.session_ended(EndReason.IDLE_TIMEOUT, None)
        await self.until(lambda: caller.ended is not None and server.closed)
        self.assertEqual(caller.ended, (True, 4410, "idle_timeout"))
        self.assertEqual(server.closed, [(True, 4410, "idle_timeout")])


class Pinging:
    """Pings of ours, in both modes."""

    async def test_a_client_that_answers_stays_and_its_server_sees_no_pong(self: Any) -> None:
        server = autobahn_server()
        pongs: list[bytes] = []

        class Watcher(EchoServer):
            def onPong(self, payload: bytes) -> None:
                pongs.append(payload)

        server.protocol = Watcher
        caller: Caller = await self.dial(self.relayed(self.listen(server)), autobahn_client())
        await self.until(lambda: caller.state == Caller.STATE_OPEN)
        await self.until(lambda: len(caller.pings) >= 4)
        self.assertEqual(pongs, [])
        self.assertEqual({len(payload) for payload in caller.pings}, {8})
        caller.sendClose(1000)
        await self.until(lambda: caller.ended is not None)

    async def test_a_client_that_does_not_answer_is_cut_and_the_container_sees_it_leave(self: Any) -> None:
        client, container = await self.pair()
        await client.end()
        (ping,) = parse(bytes(client.got))
        self.assertEqual(ping.opcode, frames.PING)
        await container.end()
        self.assertEqual(container.got, b"")


class RawMatrix:
    """What has to hold on every kind of socket, in both modes."""

    def assertPassed(self: Any, got: bytes | bytearray, sent: bytes) -> None:
        """Frame by frame the very bytes; as messages, the same messages and control frames in their order."""
        if self.rules.mode == "frames":
            self.assertEqual(bytes(got), sent)
        self.assertEqual(whole(got), whole(sent))

    async def test_heads_pass_verbatim(self: Any) -> None:
        class Container(RawContainer):
            extra = b"X-Name: \xc3\x85\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\n"

        client, container = await self.pair(Container, b"Cookie: x=\xc3\x85", b"X-ODD:  y")
        self.assertEqual(
            container.head, request(b"Cookie: x=\xc3\x85", b"X-ODD:  y")[:-2] + self.fronts.added + b"\r\n"
        )
        self.assertTrue(self.head.endswith(Container.extra[:-2]))
        client.transport.loseConnection()
        await container.end()

    async def test_bytes_that_come_early_are_kept_both_ways(self: Any) -> None:
        class Container(RawContainer):
            early = encode(Frame(frames.TEXT, b"from the container"))

        factory = One(Container)
        client: Raw = await self.dial(self.relayed(self.listen(factory)))
        flood = encode(Frame(frames.BINARY, b"\r\n\r\n" * 2 * MIB, masked=True))
        client.transport.write(request() + flood)
        await client.until(lambda: client.got.endswith(Container.early))
        (container,) = factory.made
        await container.until(lambda: len(container.got) >= len(flood))
        self.assertPassed(container.got, flood)
        client.transport.write(close(1000, masked=True))
        await container.until(lambda: len(container.got) > len(flood))
        container.transport.write(close(1000))
        await client.end()
        await container.end()

    async def test_closes_pass_with_code_and_reason_and_fins_follow(self: Any) -> None:
        client, container = await self.pair()
        said = close(4999, b"x" * 123)
        container.transport.write(said)
        container.transport.loseWriteConnection()
        await client.until(lambda: client.got == said)
        answer = close(4999, b"x" * 123, masked=True)
        client.transport.write(answer)
        await container.until(lambda: len(container.got) >= len(answer))
        self.assertPassed(container.got, answer)
        await client.end()
        await container.end()
        self.assertEqual(client.got, said)

    async def test_a_container_that_vanishes_between_frames_is_1011(self: Any) -> None:
        client, container = await self.pair()
        said = encode(Frame(frames.TEXT, b"last"))
        container.transport.write(said)
        await client.until(lambda: client.got == said)
        container.transport.abortConnection()
        await client.until(lambda: len(client.got) > len(said))
        self.assertEqual(client.got[len(said) :], close(1011, b"container_lost"))
        client.transport.write(close(1011, masked=True))
        await client.end()

    async def test_a_client_that_vanishes_closes_the_container(self: Any) -> None:
        client, container = await self.pair()
        client.transport.abortConnection()
        await container.end()
        self.assertEqual(container.got, b"")

    async def test_refusals_by_the_container_reach_the_client_as_they_are(self: Any) -> None:
        for status, body in ((b"401 Unauthorized", b"who?"), (b"302 Found", b""), (b"403 No", b"z" * 300_000)):

            class Container(RawContainer):
                answer = (
                    b"HTTP/1.1 " + status + b"\r\nX-Why: Because\r\nConnection: close\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body)
                ) + body

            factory = One(Container)
            client: Raw = await self.dial(self.relayed(self.listen(factory)))
            client.transport.write(request())
            await client.until(lambda: len(client.got) >= len(Container.answer))  # noqa: B023
            self.assertEqual(client.got, Container.answer)
            factory.made[0].transport.loseConnection()
            await client.end()

    async def test_a_container_that_is_not_there_is_503(self: Any) -> None:
        address = self.listen(One(RawContainer))
        address = TCPAddress("127.0.0.1", 1) if isinstance(address, TCPAddress) else UNIXAddress(address.path + "x")
        client: Raw = await self.dial(self.relayed(address))
        client.transport.write(request())
        await client.end()
        self.assertTrue(client.got.startswith(b"HTTP/1.1 503 "))

    async def test_frames_of_one_byte_a_segment_pass(self: Any) -> None:
        client, container = await self.pair()
        wire = b"".join(
            encode(frame)
            for frame in (
                Frame(frames.TEXT, b"ab", fin=False, masked=True),
                Frame(frames.PING, b"p", masked=True),
                Frame(frames.CONTINUATION, b"cd", masked=True),
                Frame(frames.BINARY, bytes(300), masked=True),
            )
        )
        for at in range(len(wire)):
            client.transport.write(wire[at : at + 1])
            await self.until(lambda: True)
        await container.until(lambda: whole(container.got) == whole(wire))
        self.assertPassed(container.got, wire)
        client.transport.abortConnection()
        await container.end()


def legs_of(case: Any) -> list[Any]:
    """Both legs of the only relay."""
    holder = case.fronts.leases[-1].holder
    return [holder.client, holder.container]


class Supply:
    """A producer that writes a large frame as its transport takes it."""

    CHUNK: ClassVar[int] = 65_536

    def __init__(self, transport: Any, data: bytes) -> None:
        self.transport = transport
        self.data = data
        self.sent = 0
        self._before = -1
        self._same = 0
        transport.registerProducer(self, False)

    def stalled(self) -> bool:
        """Nothing was taken for some looks in a row."""
        self._same = self._same + 1 if self.sent == self._before else 0
        self._before = self.sent
        if self._same > 30:
            self._same = 0
            return True
        return False

    def resumeProducing(self) -> None:
        """A piece more."""
        piece = self.data[self.sent : self.sent + self.CHUNK]
        self.sent += len(piece)
        if piece:
            self.transport.write(piece)
        else:
            self.transport.unregisterProducer()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self.sent = len(self.data)

"""The relay of whole messages on real sockets: all that frames do but what cannot be, and what only messages can."""

from __future__ import annotations

import gc
import random
import struct
import zlib
from typing import Any

import attrs

from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from tests.integration.test_websocket_others import OthersOverTLSTests, OthersTests
from tests.integration.ws_matrix import MIB, AutobahnPeers, Pinging, RawMatrix, Supply, close, resident, whole
from tests.integration.ws_peers import One, Raw, RawContainer, RelayCase, request
from tests.strategies_frames import Frame, Reader, encode

MESSAGES = RelayRules(mode="messages", ping_interval=0)


class AutobahnPeersAsMessagesTests(AutobahnPeers, RelayCase):
    rules = MESSAGES


class PingingAsMessagesTests(Pinging, RelayCase):
    rules = RelayRules(mode="messages", ping_interval=0.2, ping_timeout=0.4)


class MessageMatrix(RawMatrix):
    """What messages do otherwise than frames."""

    async def test_a_container_that_vanishes_inside_a_message_is_1011_since_none_of_it_has_passed(self: Any) -> None:
        client, container = await self.pair()
        container.transport.write(encode(Frame(frames.TEXT, b"first")) + b"\x82\x7e\x10\x00abc")
        await client.until(lambda: bool(client.got))
        container.transport.abortConnection()
        await client.until(lambda: len(whole(client.got)) == 2)
        self.assertEqual(client.got, encode(Frame(frames.TEXT, b"first")) + close(1011, b"container_lost"))
        client.transport.write(close(1011, masked=True))
        await client.end()

    async def test_our_close_does_not_wait_for_the_message_that_is_coming_in(self: Any) -> None:
        client, container = await self.pair()
        frame = encode(Frame(frames.BINARY, bytes(4 * MIB)))
        container.transport.write(frame[:MIB])
        await self.until(lambda: True)
        self.fronts.leases[0].holder.session_ended(EndReason.CONTAINER_MAX_AGE, None)
        said = close(4408, b"container_max_age")
        await client.until(lambda: len(client.got) >= len(said))
        self.assertEqual(client.got, said)
        container.transport.write(frame[MIB:] + encode(Frame(frames.TEXT, b"dropped")) + close(4408))
        client.transport.write(close(4408, masked=True))
        await client.end()
        await container.end()
        self.assertEqual(client.got, said)

    async def test_a_message_leaves_as_one_frame_and_pings_between_its_fragments_before_it(self: Any) -> None:
        client, container = await self.pair()
        client.transport.write(
            encode(Frame(frames.TEXT, b"ab", fin=False, masked=True))
            + encode(Frame(frames.PING, b"p", masked=True))
            + encode(Frame(frames.CONTINUATION, b"cd", masked=True))
        )
        await container.until(lambda: len(whole(container.got)) == 2)
        ping, text = Reader().feed(bytes(container.got))
        self.assertEqual((ping.opcode, ping.payload, ping.masked), (frames.PING, b"p", True))
        self.assertEqual((text.opcode, text.payload, text.fin, text.masked), (frames.TEXT, b"abcd", True, True))
        client.transport.abortConnection()
        await container.end()

    async def test_a_stopped_reader_stops_the_other_side_and_a_message_or_two_are_held(self: Any) -> None:
        client, container = await self.pair()
        for reader, writer, masked in ((client, container, False), (container, client, True)):
            reader.transport.pauseProducing()
            frame = encode(Frame(frames.BINARY, bytes(65_536), masked=masked))
            supply = Supply(writer.transport, frame * 512)
            await self.until(lambda supply=supply: supply.stalled())
            gc.collect()
            before = resident()
            self.assertLess(supply.sent, 24 * MIB)
            await self.until(lambda supply=supply: supply.stalled())
            self.assertLess(resident() - before, MIB)
            reader.transport.resumeProducing()
            size = 512 * (65_536 + (10 if masked is False else 14))
            await reader.until(lambda reader=reader, size=size: len(reader.got) >= size)
            self.assertEqual([len(frame.payload) for frame in Reader().feed(bytes(reader.got))], [65_536] * 512)
            reader.got.clear()
        client.transport.abortConnection()
        await container.end()


class TCPAsMessagesTests(MessageMatrix, RelayCase):
    rules = MESSAGES


class TwistedTransportsAsMessagesTests(MessageMatrix, RelayCase):
    rules = MESSAGES
    own_transports = False


class UNIXAsMessagesTests(MessageMatrix, RelayCase):
    rules = MESSAGES
    unix = True


class TLSAsMessagesTests(MessageMatrix, RelayCase):
    rules = MESSAGES
    tls = True


class OthersAsMessagesTests(OthersTests):
    rules = RelayRules(mode="messages", ping_interval=0.5, ping_timeout=5)


class OthersAsMessagesOverTLSTests(OthersOverTLSTests):
    rules = RelayRules(mode="messages", ping_interval=0.5, ping_timeout=5)


del OthersTests, OthersOverTLSTests  # theirs run in their own file


class FaultTests(RelayCase):
    """What a peer may not send closes both sides, with a code and a reason that say whose fault it was."""

    rules = attrs.evolve(MESSAGES, max_message_size=100_000)

    async def faulty(self, wire: bytes, by_client: bool, code: int, reason: bytes, client_code: int = 0) -> None:
        client, container = await self.pair()
        (client if by_client else container).transport.write(wire + encode(Frame(1, b"late", masked=by_client)))
        await client.until(lambda: bool(whole(client.got)))
        await container.until(lambda: bool(whole(container.got)))
        self.assertEqual(whole(client.got), [(frames.CLOSE, struct.pack("!H", client_code or code) + reason)])
        self.assertEqual(whole(container.got), [(frames.CLOSE, struct.pack("!H", code) + reason)])
        client.transport.write(close(code, masked=True))
        container.transport.write(close(code))
        await client.end()
        await container.end()

    async def test_too_large_a_message(self) -> None:
        for by_client, reason in ((True, b"client_message_too_big"), (False, b"container_message_too_big")):
            whole_one = encode(Frame(frames.BINARY, bytes(100_001), masked=by_client))
            pieces = encode(Frame(frames.BINARY, bytes(60_000), fin=False, masked=by_client)) + encode(
                Frame(frames.CONTINUATION, bytes(60_000), masked=by_client)
            )
            for wire in (whole_one, pieces):
                await self.faulty(wire, by_client, 1009, reason)

    async def test_the_largest_message_passes(self) -> None:
        client, container = await self.pair()
        wire = encode(Frame(frames.BINARY, bytes(100_000), masked=True))
        client.transport.write(wire)
        await container.until(lambda: len(container.got) >= len(wire))
        client.transport.abortConnection()
        await container.end()

    async def test_text_that_is_not_utf8_also_where_a_character_is_cut(self) -> None:
        for by_client, reason in ((True, b"client_invalid_payload"), (False, b"container_invalid_payload")):
            cut = encode(Frame(frames.TEXT, "ä".encode()[:1], fin=False, masked=by_client))
            for wire in (
                encode(Frame(frames.TEXT, b"\xff", masked=by_client)),
                cut + encode(Frame(frames.CONTINUATION, b"x", masked=by_client)),
                encode(Frame(frames.TEXT, "ä".encode()[:1], masked=by_client)),
            ):
                await self.faulty(wire, by_client, 1007, reason)

    async def test_a_character_cut_between_fragments_is_fine(self) -> None:
        client, container = await self.pair()
        client.transport.write(
            encode(Frame(frames.TEXT, "ä".encode()[:1], fin=False, masked=True))
            + encode(Frame(frames.CONTINUATION, "ä".encode()[1:], masked=True))
        )
        await container.until(lambda: bool(whole(container.got)))
        self.assertEqual(whole(container.got), [(frames.TEXT, "ä".encode())])
        client.transport.abortConnection()
        await container.end()

    async def test_a_fault_of_the_clients_protocol_is_1002_to_both(self) -> None:
        for frame in (
            Frame(frames.TEXT, b"x"),
            Frame(frames.TEXT, b"x", rsv=4, masked=True),
            Frame(3, b"x", masked=True),
        ):
            await self.faulty(encode(frame), True, 1002, b"client_protocol_error")

    async def test_a_fault_of_the_containers_protocol_is_1011_to_the_client(self) -> None:
        for frame in (Frame(frames.TEXT, b"x", masked=True), Frame(frames.PING, b"x", fin=False), Frame(11, b"")):
            await self.faulty(encode(frame), False, 1002, b"container_protocol_error", 1011)

    async def test_a_close_that_is_none_ends_that_peer_at_once(self) -> None:
        client, container = await self.pair()
        client.transport.write(close(1005, masked=True))
        await client.end()
        self.assertEqual(whole(client.got), [(frames.CLOSE, struct.pack("!H", 1002) + b"client_protocol_error")])
        await container.until(lambda: bool(whole(container.got)))
        container.transport.write(close(1002))
        await container.end()


DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"


class Deflating(RawContainer):
    extra = b"sec-websocket-extensions: permessage-deflate\r\n"


class DeflateTests(RelayCase):
    """Compression is agreed with each peer apart, if the client offers it and the container takes it."""

    rules = attrs.evolve(MESSAGES, max_message_size=1_000_000)

    async def test_each_side_has_its_own(self) -> None:
        client, container = await self.pair(Deflating, DEFLATE, b"Sec-WebSocket-Extensions: x-webkit-deflate-frame")
        self.assertEqual(container.head.lower().count(b"sec-websocket-extensions"), 1)
        self.assertNotIn(b"x-webkit", container.head)
        self.assertIn(b"\r\nSec-WebSocket-Extensions: permessage-deflate", self.head)
        text = b"again and " * 1000
        client.transport.write(encode(Frame(frames.TEXT, deflated(text), rsv=4, masked=True)))
        await container.until(lambda: bool(Reader().feed(bytes(container.got))))
        (frame,) = Reader().feed(bytes(container.got))
        self.assertEqual((frame.rsv, inflated(frame.payload)), (4, text))
        client.transport.abortConnection()
        await container.end()

    async def test_a_bomb_is_too_big_before_it_is_unpacked(self) -> None:
        client, container = await self.pair(Deflating, DEFLATE)
        client.transport.write(encode(Frame(frames.TEXT, deflated(bytes(64 * MIB)), rsv=4, masked=True)))
        await client.until(lambda: bool(whole(client.got)))
        self.assertEqual(whole(client.got)[0][1], struct.pack("!H", 1009) + b"client_message_too_big")
        client.transport.write(close(1009, masked=True))
        container.transport.write(close(1009))
        await client.end()
        await container.end()

    async def test_what_is_not_deflate_is_1007(self) -> None:
        client, container = await self.pair(Deflating, DEFLATE)
        client.transport.write(encode(Frame(frames.TEXT, b"\xff\xff\xff", rsv=4, masked=True)))
        await client.until(lambda: bool(whole(client.got)))
        self.assertEqual(whole(client.got)[0][1], struct.pack("!H", 1007) + b"client_invalid_payload")
        client.transport.abortConnection()
        container.transport.abortConnection()

    async def test_a_container_that_declines_means_none_for_the_client(self) -> None:
        client, container = await self.pair(RawContainer, DEFLATE)
        self.assertNotIn(b"xtensions", self.head)
        client.transport.abortConnection()
        await container.end()

    async def test_offers_that_cannot_be_served_are_not_passed_on(self) -> None:
        client, container = await self.pair(RawContainer, b"Sec-WebSocket-Extensions: permessage-deflate; bogus=1")
        self.assertNotIn(b"xtensions", container.head)
        client.transport.abortConnection()
        await container.end()

    async def test_an_extension_that_nobody_offered_is_502(self) -> None:
        client: Raw = await self.dial(self.relayed(self.listen(One(Deflating))))
        client.transport.write(request())
        await client.end()
        self.assertTrue(client.got.startswith(b"HTTP/1.1 502 "))

    async def test_a_message_of_the_largest_size_that_cannot_be_compressed_passes(self) -> None:
        client, container = await self.pair(Deflating, DEFLATE)
        noise = random.Random(1).randbytes(1_000_000)
        client.transport.write(encode(Frame(frames.BINARY, noise, masked=True)))
        await container.until(lambda: bool(Reader().feed(bytes(container.got))))
        (frame,) = Reader().feed(bytes(container.got))
        self.assertEqual((frame.rsv, frame.payload), (0, noise))
        client.transport.abortConnection()
        await container.end()


def deflated(data: bytes) -> bytes:
    """As RFC 7692 has it."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflated(data: bytes) -> bytes:
    """The same back."""
    return zlib.decompressobj(wbits=-15).decompress(data + b"\x00\x00\xff\xff")

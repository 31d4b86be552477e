"""Message mode between joined legs: the same messages at the other end, however they were cut, and bounded memory."""

from __future__ import annotations

import random
import struct
import zlib

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.edge import frames
from sticky.edge.handshake import Handshake, RelayRules
from sticky.edge.messages import STEPS_A_TURN
from tests.fakes.ws_transport import SWITCHED, FakeTransport, Relayed, handshake
from tests.strategies_frames import Frame, chop, chops, encode, parse

MESSAGES = RelayRules(mode="messages", max_message_size=1 << 20)
TEXTS = st.text(max_size=300).map(lambda text: (frames.TEXT, text.encode()))
BYTES = st.binary(max_size=300).map(lambda data: (frames.BINARY, data))
CONTROLS = st.tuples(st.sampled_from([frames.PING, frames.PONG]), st.binary(max_size=125))
SENT = st.lists(st.one_of(TEXTS, BYTES, CONTROLS), max_size=10)


def wire_of(sent: list[tuple[int, bytes]], cuts: list[int], *, masked: bool) -> bytes:
    """The frames of these messages, each cut into pieces of these sizes in turn."""
    wire, turn = b"", 0
    for opcode, payload in sent:
        if opcode & 8:
            wire += encode(Frame(opcode, payload, masked=masked))
            continue
        while True:
            size = cuts[turn % len(cuts)]
            turn += 1
            piece, payload = payload[:size], payload[size:]
            wire += encode(Frame(opcode, piece, not payload, masked))
            opcode = frames.CONTINUATION
            if not payload:
                break
    return wire


def got(transport: FakeTransport) -> list[tuple[int, bytes]]:
    """What has arrived since the last look; each must be one frame."""
    found = transport.frames()
    assert all(frame.fin for frame in found)
    return [(frame.opcode, frame.payload) for frame in found]


def deflated(data: bytes) -> bytes:
    """As RFC 7692 has it."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


class PassingTests(TestCase):
    @settings(deadline=None)
    @given(SENT, SENT, chops(), chops())
    def test_messages_arrive_whole_and_in_order_however_they_were_cut(
        self, upward: list[tuple[int, bytes]], downward: list[tuple[int, bytes]], pieces: list[int], reads: list[int]
    ) -> None:
        relayed = Relayed(rules=MESSAGES).open()
        for read in chop(wire_of(upward, pieces, masked=True), reads):
            relayed.client.deliver(read)
        for read in chop(wire_of(downward, pieces, masked=False), reads):
            relayed.container.deliver(read)
        self.assertTrue(all(frame.masked for frame in parse(relayed.container.out)))
        self.assertFalse(any(frame.masked for frame in parse(relayed.client.out)))
        self.assertEqual(got(relayed.container), upward)
        self.assertEqual(got(relayed.client), downward)

    def test_our_ping_and_its_pong_stay_between_us_and_the_client(self) -> None:
        relayed = Relayed(rules=RelayRules(mode="messages")).open()
        relayed.settle(30)
        ((opcode, payload),) = got(relayed.client)
        self.assertEqual(opcode, frames.PING)
        self.assertIn(payload, relayed.relays.marks)
        relayed.from_client(frames.PONG, payload)
        relayed.from_client(frames.PONG, b"mine")
        self.assertEqual(got(relayed.container), [(frames.PONG, b"mine")])


class BoundTests(TestCase):
    def test_a_peer_that_does_not_read_stops_the_decoding_of_what_was_read_already(self) -> None:
        relayed = Relayed(rules=MESSAGES)
        asked = handshake()
        head = asked.head.block + b"\r\nSec-WebSocket-Extensions: permessage-deflate"
        relayed.open(_with_block(asked, head), answer=_deflating())
        relayed.container.stalled = True
        bomb = encode(Frame(frames.BINARY, deflated(bytes(1 << 20)), rsv=4, masked=True))
        noise = encode(Frame(frames.BINARY, _noise(60_000), masked=True))
        # In one read: noise that fills the container's buffer, and then a hundred messages of 1 MiB.
        relayed.client.deliver(noise * 3 + bomb * 100)
        self.assertTrue(relayed.client.paused)
        self.assertLess(len(relayed.container.pending), 300_000)
        self.assertGreater(len(relayed.client.protocol.data), len(bomb) * 99)
        relayed.container.resume()
        relayed.settle()
        self.assertEqual(len(relayed.container.frames()), 103)
        self.assertFalse(relayed.client.paused)

    def test_many_messages_in_one_read_are_passed_on_in_many_turns(self) -> None:
        sent = [(frames.TEXT, b"%d" % number) for number in range(5000)]
        wire = wire_of(sent, [10], masked=False)
        relayed = Relayed(rules=MESSAGES).open()
        relayed.container.deliver(wire)
        relayed.container.deliver(b"\x88\x02\x03\xe8")
        first = got(relayed.client)
        self.assertEqual(first, sent[: len(first)])
        self.assertLessEqual(len(first), STEPS_A_TURN)
        self.assertTrue(relayed.container.paused)
        relayed.settle()
        self.assertEqual([*first, *got(relayed.client)], [*sent, (frames.CLOSE, b"\x03\xe8")])
        self.assertFalse(relayed.container.paused)

    def test_a_peer_that_stops_reading_between_two_turns_gets_the_rest_when_it_reads_again(self) -> None:
        sent = [(frames.BINARY, bytes(100))] * 3000
        relayed = Relayed(rules=MESSAGES).open()
        relayed.container.deliver(wire_of(sent, [100], masked=False))
        first = got(relayed.client)
        relayed.client.stalled = True
        relayed.settle()
        self.assertTrue(relayed.container.paused)
        self.assertLess(len(relayed.client.pending), 150_000)
        relayed.client.resume()
        relayed.settle()
        self.assertEqual([*first, *got(relayed.client)], sent)
        self.assertFalse(relayed.container.paused)

    def test_a_client_that_is_gone_between_two_turns_is_the_end(self) -> None:
        relayed = Relayed(rules=MESSAGES).open()
        relayed.client.deliver(wire_of([(frames.PING, b"")] * 5000, [1], masked=True))
        relayed.client.lose()
        relayed.settle()
        self.assertTrue(relayed.container.lost)
        self.assertEqual((relayed.relays.open, relayed.lease.released), (0, 1))

    def test_frames_that_hold_nothing_cost_nothing(self) -> None:
        relayed = Relayed(rules=MESSAGES).open()
        empty = encode(Frame(frames.CONTINUATION, b"", fin=False, masked=True))
        relayed.from_client(frames.TEXT, b"begin", fin=False)
        for _ in range(20):
            relayed.client.deliver(empty * 500)
        relayed.settle()
        leg = relayed.client.protocol
        self.assertEqual(leg._gathered, b"begin")
        relayed.from_client(frames.CONTINUATION, b" end")
        self.assertEqual(got(relayed.container), [(frames.TEXT, b"begin end")])

    def test_many_small_fragments_are_held_as_their_bytes_only(self) -> None:
        relayed = Relayed(rules=MESSAGES).open()
        relayed.from_client(frames.BINARY, b"x", fin=False)
        one = encode(Frame(frames.CONTINUATION, b"y", fin=False, masked=True))
        for _ in range(20):
            relayed.client.deliver(one * 500)
        relayed.settle()
        self.assertEqual(len(relayed.client.protocol._gathered), 10_001)
        self.assertIsInstance(relayed.client.protocol._gathered, bytearray)

    def test_a_close_while_the_other_side_does_not_read_is_passed_when_it_reads_again(self) -> None:
        relayed = Relayed(rules=MESSAGES).open()
        relayed.client.stalled = True
        text = encode(Frame(frames.BINARY, bytes(50_000)))
        farewell = encode(Frame(frames.CLOSE, struct.pack("!H", 1000) + b"done"))
        relayed.container.deliver(text * 4 + farewell)
        self.assertTrue(relayed.container.paused)
        relayed.client.resume()
        relayed.settle()
        kinds = [opcode for opcode, _ in got(relayed.client)]
        self.assertEqual(kinds, [frames.BINARY] * 4 + [frames.CLOSE])
        relayed.from_client(frames.CLOSE, struct.pack("!H", 1000))
        relayed.settle()
        self.assertEqual((relayed.relays.open, relayed.lease.released), (0, 1))


def _with_block(asked: Handshake, block: bytes) -> Handshake:
    return attrs.evolve(asked, head=attrs.evolve(asked.head, block=block))


def _deflating() -> bytes:
    return SWITCHED[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"


def _noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)

"""Frames between joined legs: everything passes as it is, our pings and closes come between frames, and nothing piles up."""

from __future__ import annotations

import itertools
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.edge import frames, leg
from sticky.edge.handshake import RelayRules
from tests.fakes.ws_transport import Relayed
from tests.strategies_frames import Frame, Reader, chop, chops, encode, frame_lists, parse


class PassingTests(TestCase):
    def test_frames_pass_untouched_both_ways(self) -> None:
        relayed = Relayed().open()
        sent = b"".join(
            (
                relayed.from_client(frames.TEXT, b"hel", fin=False),
                relayed.from_client(frames.PING, b"own"),
                relayed.from_client(frames.CONTINUATION, b"lo"),
                relayed.from_client(frames.BINARY, b""),
                relayed.from_client(frames.BINARY, bytes(70_000)),
            )
        )
        self.assertEqual(relayed.container.out, sent)
        back = b"".join(
            (
                relayed.from_container(frames.PONG, b"own"),
                relayed.from_container(frames.BINARY, bytes(70_000)),
                relayed.from_container(frames.TEXT, b"x", fin=False),
            )
        )
        self.assertEqual(relayed.client.out, back)

    def test_a_read_that_ends_inside_a_header_or_a_control_frame_is_completed_by_the_next(self) -> None:
        relayed = Relayed().open()
        wire = encode(Frame(frames.BINARY, bytes(300))) + encode(Frame(frames.PING, b"hello"))
        relayed.container.deliver(wire[:3])
        self.assertEqual(relayed.client.out, b"")
        relayed.container.deliver(wire[3:306])
        self.assertEqual(relayed.client.out, wire[:304])
        relayed.container.deliver(wire[306:])
        self.assertEqual(relayed.client.out, wire)

    def test_what_no_peer_may_send_passes_too(self) -> None:
        relayed = Relayed().open()
        wire = b"".join(
            encode(frame)
            for frame in (
                Frame(3, b"reserved", masked=True),
                Frame(frames.TEXT, b"\xff\xfe", rsv=7),
                Frame(frames.PING, bytes(130), masked=True),
                Frame(11, b"", fin=False, masked=True),
            )
        )
        relayed.client.deliver(wire)
        self.assertEqual(relayed.container.out, wire)

    @settings(deadline=None)
    @given(
        frame_lists(masked=True),
        frame_lists(masked=False),
        chops(),
        st.lists(st.integers(min_value=0, max_value=9), max_size=30),
        st.sampled_from([1, 3, leg.CUTS_A_TURN]),
    )
    def test_random_frames_cut_anywhere_with_pings_at_random_moments(
        self, upward: list[Frame], downward: list[Frame], sizes: list[int], moments: list[int], cuts: int
    ) -> None:
        """The output parses, is the input plus the pings, and no pong of ours passes."""
        with mock.patch.object(leg, "CUTS_A_TURN", cuts):
            self._pass(upward, downward, sizes, moments)

    def _pass(self, upward: list[Frame], downward: list[Frame], sizes: list[int], moments: list[int]) -> None:
        relayed = Relayed(rules=RelayRules(ping_interval=10, ping_timeout=0)).open()
        up = chop(b"".join(encode(frame) for frame in upward), sizes)
        down = chop(b"".join(encode(frame) for frame in downward), sizes)
        sending, at_client = Reader(), Reader()
        got: list[Frame] = []
        answered: list[bytes] = []
        for turn in itertools.count():
            moment = moments[turn % len(moments)] if moments else 0
            if moment == 9 and turn < 200:
                relayed.settle(10)
            if down and (moment % 2 == 0 or not up):
                relayed.container.deliver(down.pop(0))
            elif up:
                sending.feed(up[0])
                relayed.client.deliver(up.pop(0))
            relayed.settle()
            got += at_client.feed(relayed.client.out)
            relayed.client.out = b""
            owed = [frame.payload for frame in got if _is_ping_of_ours(relayed, frame)][len(answered) :]
            if not sending.rest:
                for payload in owed:
                    relayed.from_client(frames.PONG, payload)
                    answered.append(payload)
            if not up and not down and not (relayed.client.inbox or relayed.container.inbox):
                break
        self.assertEqual(at_client.rest, b"")
        self.assertEqual([frame for frame in got if not _is_ping_of_ours(relayed, frame)], downward)
        self.assertEqual(parse(relayed.container.out), upward)


def _is_ping_of_ours(relayed: Relayed, frame: Frame) -> bool:
    return frame.opcode == frames.PING and frame.payload in relayed.relays.marks


class FloodTests(TestCase):
    """A read may hold ten thousand control frames; nobody else waits until all of them are passed on."""

    def setUp(self) -> None:
        self.relayed = Relayed().open()
        self.sent = b"".join(encode(Frame(frames.PING, b"%d" % number, masked=True)) for number in range(3000))
        self.relayed.client.deliver(self.sent)
        self.first = len(self.relayed.container.out)

    def test_many_control_frames_in_one_read_are_passed_on_in_many_turns(self) -> None:
        data = self.relayed.from_client(frames.BINARY, b"after them")
        self.assertEqual(len(parse(self.relayed.container.out)), leg.CUTS_A_TURN)
        self.assertTrue(self.relayed.client.paused)
        self.relayed.settle()
        self.assertEqual(self.relayed.container.out, self.sent + data)
        self.assertFalse(self.relayed.client.paused)

    def test_what_comes_meanwhile_waits_behind_them(self) -> None:
        """TLS may have decrypted more than was read when reading stops."""
        data = encode(Frame(frames.BINARY, b"after them", masked=True))
        self.relayed.client.protocol.dataReceived(data)
        self.assertEqual(len(self.relayed.container.out), self.first)
        self.relayed.settle()
        self.assertEqual(self.relayed.container.out, self.sent + data)

    def test_a_peer_that_stops_reading_between_two_turns_gets_the_rest_when_it_reads_again(self) -> None:
        self.relayed.client.protocol.pauseProducing()
        self.relayed.settle()
        self.assertEqual(len(self.relayed.container.out), self.first)
        self.relayed.client.protocol.resumeProducing()
        self.relayed.settle()
        self.assertEqual(self.relayed.container.out, self.sent)
        self.assertFalse(self.relayed.client.paused)

    def test_a_client_that_is_gone_between_two_turns_is_the_end(self) -> None:
        self.relayed.client.lose()
        self.relayed.settle()
        self.assertTrue(self.relayed.container.lost)
        self.assertEqual((self.relayed.relays.open, self.relayed.lease.released), (0, 1))

    def test_a_session_that_ends_between_two_turns_is_told_to_both(self) -> None:
        self.relayed.relays.close_all(1001, "server_shutdown")
        self.relayed.settle()
        self.assertEqual(self.relayed.client.frames()[0].opcode, frames.CLOSE)
        self.assertEqual(self.relayed.container.frames()[-1].opcode, frames.CLOSE)


class BackPressureTests(TestCase):
    def test_a_client_that_does_not_read_stops_the_container(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        for _ in range(10):
            relayed.from_container(frames.BINARY, bytes(30_000))
        self.assertTrue(relayed.container.paused)
        self.assertLess(len(relayed.client.pending), 100_000)
        self.assertGreater(len(relayed.container.inbox), 5)
        relayed.client.resume()
        relayed.settle()
        self.assertFalse(relayed.container.paused)
        self.assertEqual(len(relayed.client.frames()), 10)

    def test_a_container_that_does_not_read_stops_the_client(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        for _ in range(10):
            relayed.from_client(frames.BINARY, bytes(30_000))
        self.assertTrue(relayed.client.paused)
        self.assertLess(len(relayed.container.pending), 100_000)
        relayed.container.resume()
        relayed.settle()
        self.assertEqual(len(relayed.container.frames()), 10)

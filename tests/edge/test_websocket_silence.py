"""`silent_timeout`: a WebSocket that says nothing does not keep its session, and counts again when it speaks."""

from __future__ import annotations

import struct

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from tests.fakes.ws_transport import Relayed
from tests.strategies_frames import Frame, encode


class SilenceTests(TestCase):
    mode = "frames"

    def relayed(self, silent_timeout: float | None = 80, ping_interval: float = 0) -> Relayed:
        return Relayed(
            rules=RelayRules(mode=self.mode, ping_interval=ping_interval, silent_timeout=silent_timeout)
        ).open()

    def test_it_counts_no_longer_after_that_time_never_before_and_at_most_a_quarter_later(self) -> None:
        for moment in (0, 3, 9.5, 15, 33.25):
            relayed = self.relayed()
            relayed.settle(moment)
            relayed.from_client(frames.TEXT, b"last words")
            relayed.settle(79.75)
            self.assertTrue(relayed.lease.counts, moment)
            relayed.settle(20.25)
            self.assertFalse(relayed.lease.counts, moment)
            self.assertEqual(relayed.lease.released, 0)

    def test_data_of_either_side_keeps_it_and_makes_it_count_again(self) -> None:
        relayed = self.relayed()
        for send in (relayed.from_client, relayed.from_container):
            for _ in range(5):
                relayed.settle(70)
                send(frames.BINARY, b"x")
                self.assertTrue(relayed.lease.counts)
            relayed.settle(100)
            self.assertFalse(relayed.lease.counts)
            send(frames.BINARY, b"x")
            self.assertTrue(relayed.lease.counts)
        self.assertEqual(len(relayed.client.frames()), 6)
        self.assertEqual(len(relayed.container.frames()), 6)

    def test_pings_and_pongs_are_no_data(self) -> None:
        relayed = self.relayed(ping_interval=20)
        for _ in range(10):
            relayed.settle(10)
            for frame in relayed.client.frames():
                if frame.opcode == frames.PING:
                    relayed.from_client(frames.PONG, frame.payload)
            relayed.from_client(frames.PING, b"own")
        self.assertFalse(relayed.lease.counts)
        self.assertFalse(relayed.client.lost)

    def test_without_the_setting_it_always_counts(self) -> None:
        relayed = self.relayed(None)
        relayed.settle(2000)
        self.assertTrue(relayed.lease.counts)

    def test_the_end_of_the_session_closes_a_silent_one_at_once(self) -> None:
        relayed = self.relayed()
        relayed.settle(100)
        relayed.lease.holder.session_ended(EndReason.IDLE_TIMEOUT, None)
        for side in (relayed.client, relayed.container):
            (frame,) = side.frames()
            self.assertEqual((frame.opcode, frame.payload), (frames.CLOSE, struct.pack("!H", 4410) + b"idle_timeout"))

    def test_data_that_comes_too_late_meets_the_code_of_the_end_and_does_not_pass(self) -> None:
        relayed = self.relayed()
        relayed.settle(100)
        relayed.lease.over = errors.SessionEnded("container_max_age")
        relayed.from_client(frames.TEXT, b"too late")
        for side in (relayed.client, relayed.container):
            (frame,) = side.frames()
            payload = struct.pack("!H", 4408) + b"container_max_age"
            self.assertEqual((frame.opcode, frame.payload), (frames.CLOSE, payload))

    def test_one_that_is_closed_is_not_suspended(self) -> None:
        relayed = self.relayed(2)
        relayed.from_client(frames.CLOSE, struct.pack("!H", 1000))
        relayed.settle(10)
        self.assertTrue(relayed.lease.counts)
        relayed.from_container(frames.CLOSE, struct.pack("!H", 1000))
        relayed.settle(1)
        self.assertEqual((relayed.lease.released, relayed.reactor.getDelayedCalls()), (1, []))

    def test_the_rest_of_a_large_frame_is_data_too(self) -> None:
        relayed = self.relayed()
        wire = encode(Frame(frames.BINARY, bytes(3000)))
        for at in range(0, 3000, 1000):
            relayed.container.deliver(wire[at : at + 1000])
            relayed.settle(70)
            if self.mode == "frames":
                self.assertTrue(relayed.lease.counts)


class SilenceOfMessagesTests(SilenceTests):
    mode = "messages"

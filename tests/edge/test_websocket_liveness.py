"""Pings to the client: when, between which frames, whose pongs pass, and whose silence is death."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from sticky.edge.liveness import Liveness
from tests.fakes.clocks import Turning
from tests.fakes.ws_transport import Relayed
from tests.strategies_frames import Frame, encode


class StandstillTests(TestCase):
    """A process that got no processor, or a machine that was suspended, for longer than a peer has to answer."""

    def test_what_has_come_meanwhile_is_read_before_anybody_is_taken_for_dead(self) -> None:
        clock = Turning()
        dead: list[str] = []
        deadlines = Liveness(clock, 0, 20.0).deadlines(20.0, dead.append)
        for waiter in ("alive", "dead"):
            deadlines.add(waiter)
        clock.read = lambda: deadlines.discard("alive")
        clock.advance(60)
        self.assertEqual(dead, ["dead"])
        clock.read = lambda: None
        deadlines.add("again")
        for _ in range(19):
            clock.advance(1)
        self.assertEqual(dead, ["dead"])
        for _ in range(2):
            clock.advance(1)
        self.assertEqual(dead, ["dead", "again"])
        self.assertEqual(clock.getDelayedCalls(), [])


class PingTests(TestCase):
    def ping(self, relayed: Relayed) -> bytes:
        """The only frame that the client has got: a ping of ours; its payload."""
        (frame,) = relayed.client.frames()
        self.assertEqual((frame.opcode, frame.masked, len(frame.payload)), (frames.PING, False, 8))
        self.assertIn(frame.payload, relayed.relays.marks)
        return frame.payload

    def test_a_ping_is_sent_every_interval_and_its_pong_swallowed(self) -> None:
        relayed = Relayed().open()
        seen = set()
        for _ in range(3):
            relayed.settle(28.5)
            self.assertEqual(relayed.client.out, b"")
            relayed.settle(1.5)
            payload = self.ping(relayed)
            seen.add(payload)
            relayed.from_client(frames.PONG, payload)
        self.assertEqual(len(seen), 3)
        self.assertEqual(relayed.container.out, b"")
        relayed.settle(20)
        self.assertFalse(relayed.client.lost)

    def test_a_pong_with_other_bytes_passes_and_so_does_one_that_nobody_asked_for(self) -> None:
        relayed = Relayed().open()
        relayed.settle(30)
        payload = self.ping(relayed)
        sent = relayed.from_client(frames.PONG, payload[:7]) + relayed.from_client(frames.PONG, payload + b"x")
        relayed.from_client(frames.PONG, payload)
        sent += relayed.from_client(frames.PONG, b"")
        self.assertEqual(relayed.container.out, sent)

    def test_a_silent_client_is_cut_after_the_timeout_and_its_lease_released(self) -> None:
        relayed = Relayed().open()
        relayed.settle(30)
        self.ping(relayed)
        relayed.settle(19.75)
        self.assertFalse(relayed.client.lost)
        relayed.settle(1.5)
        self.assertTrue(relayed.client.aborted)
        self.assertTrue(relayed.container.lost)
        self.assertEqual((relayed.lease.released, relayed.relays.open), (1, 0))

    def test_any_byte_of_the_client_counts_as_alive(self) -> None:
        relayed = Relayed().open()
        relayed.settle(30)
        for _ in range(4):
            self.ping(relayed)
            relayed.settle(15)
            relayed.client.deliver(b"\x82")
            relayed.client.deliver(b"\x81\x00\x00\x00\x00\x00")
            relayed.settle(14.75)
            self.assertEqual(relayed.client.out, b"")
            relayed.settle(0.25)
        self.assertFalse(relayed.client.lost)

    def test_no_pings_where_they_are_off(self) -> None:
        relayed = Relayed(rules=RelayRules(ping_interval=0)).open()
        relayed.settle(200)
        self.assertEqual(relayed.client.out, b"")
        self.assertFalse(relayed.client.lost)

    def test_a_frame_that_is_being_written_is_finished_before_the_ping(self) -> None:
        relayed = Relayed(rules=RelayRules(ping_interval=5, ping_timeout=100)).open()
        wire = encode(Frame(frames.BINARY, bytes(1000))) + encode(Frame(frames.TEXT, b"next"))
        relayed.container.deliver(wire[:500])
        relayed.settle(5)
        self.assertEqual(relayed.client.out, wire[:500])
        relayed.container.deliver(wire[500:])
        kinds = [frame.opcode for frame in relayed.client.frames()]
        self.assertEqual(kinds, [frames.BINARY, frames.PING, frames.TEXT])

    def test_a_header_that_is_held_back_does_not_hold_back_the_ping(self) -> None:
        relayed = Relayed(rules=RelayRules(ping_interval=5)).open()
        relayed.container.deliver(b"\x82")
        relayed.settle(5)
        self.ping(relayed)
        relayed.container.deliver(b"\x01x")
        self.assertEqual(relayed.client.out, b"\x82\x01x")

    def test_the_time_to_answer_starts_when_the_ping_is_written(self) -> None:
        relayed = Relayed(rules=RelayRules(ping_interval=30, ping_timeout=20)).open()
        wire = encode(Frame(frames.BINARY, bytes(100)))
        relayed.container.deliver(wire[:50])
        relayed.settle(30)
        for _ in range(3):  # the frame goes on: the client takes it
            relayed.settle(18)
            relayed.container.deliver(wire[50:60])
            wire = wire[:50] + wire[60:]
        relayed.container.deliver(wire[50:])
        relayed.settle(19)
        self.assertFalse(relayed.client.lost)
        relayed.settle(3)
        self.assertTrue(relayed.client.lost)

    def test_a_client_that_neither_takes_nor_sends_a_byte_is_dead_though_the_ping_was_never_written(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        relayed.container.deliver(encode(Frame(frames.BINARY, bytes(200_000)))[:150_000])
        relayed.settle(30)
        self.assertFalse(relayed.client.lost)
        relayed.settle(21)
        self.assertTrue(relayed.client.aborted)
        self.assertEqual(relayed.lease.released, 1)

    def test_a_slow_reader_that_takes_bytes_is_alive(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        for _ in range(20):
            relayed.from_container(frames.BINARY, bytes(60_000))
        relayed.settle(30)
        for _ in range(4):
            relayed.settle(15)
            relayed.client.resume()
            relayed.client.stalled = True
            relayed.settle()
        self.assertFalse(relayed.client.lost)

    def test_a_slow_reader_that_takes_no_more_is_dead_after_all(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        for _ in range(20):
            relayed.from_container(frames.BINARY, bytes(60_000))
        relayed.settle(30)
        relayed.client.resume()
        relayed.client.stalled = True
        relayed.settle(45)
        self.assertTrue(relayed.client.aborted)

    def test_what_it_took_before_the_ping_is_no_sign_of_life(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        for _ in range(3):
            relayed.from_container(frames.BINARY, bytes(60_000))
        relayed.client.resume()
        relayed.settle(30)
        self.assertFalse(relayed.client.aborted)
        relayed.settle(22)
        self.assertTrue(relayed.client.aborted)

    def test_a_client_is_not_judged_while_the_container_does_not_take_what_it_sends(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        for _ in range(5):
            relayed.from_client(frames.BINARY, bytes(30_000))
        relayed.settle(30)
        payload = self.ping(relayed)
        relayed.from_client(frames.PONG, payload)  # not read
        relayed.settle(100)
        self.assertFalse(relayed.client.lost)
        relayed.container.resume()
        relayed.settle(1)
        self.assertEqual([frame.opcode for frame in relayed.container.frames()], [frames.BINARY] * 5)


class OthersPingTests(TestCase):
    def test_none_of_ours_is_sent_while_the_containers_is_open(self) -> None:
        relayed = Relayed().open()
        relayed.settle(29)
        sent = relayed.from_container(frames.PING, b"theirs")
        relayed.settle(1)
        self.assertEqual(relayed.client.out, sent)
        pong = relayed.from_client(frames.PONG, b"theirs")
        self.assertEqual(relayed.container.out, pong)
        relayed.client.out = b""
        relayed.settle(29.75)
        self.assertEqual(relayed.client.out, b"")
        relayed.settle(0.25)
        self.assertEqual(len(relayed.client.frames()), 1)

    def test_an_answer_to_an_earlier_ping_of_the_container_leaves_the_later_open(self) -> None:
        relayed = Relayed().open()
        relayed.from_container(frames.PING, b"1")
        relayed.from_container(frames.PING, b"2")
        relayed.from_client(frames.PONG, b"1")
        relayed.client.out = b""
        relayed.settle(30)
        self.assertEqual(relayed.client.out, b"")

    def test_a_container_that_pings_does_not_keep_a_dead_client(self) -> None:
        relayed = Relayed().open()
        for _ in range(9):
            relayed.settle(9)
            if not relayed.container.lost:
                relayed.from_container(frames.PING, b"theirs")
        self.assertTrue(relayed.client.aborted)
        self.assertEqual(relayed.lease.released, 1)

    def test_a_ping_that_the_client_skipped_is_followed_by_one_of_ours_before_anybody_is_cut(self) -> None:
        relayed = Relayed().open()
        relayed.from_container(frames.PING, b"skipped")
        relayed.client.out = b""
        relayed.settle(30)
        self.assertEqual(relayed.client.out, b"")
        relayed.settle(21)
        (frame,) = relayed.client.frames()
        relayed.from_client(frames.PONG, frame.payload)
        relayed.settle(20)
        self.assertFalse(relayed.client.lost)

    def test_one_that_was_skipped_delays_no_later_ping_of_ours(self) -> None:
        relayed = Relayed().open()
        relayed.from_container(frames.PING, b"skipped")
        relayed.client.out = b""
        relayed.settle(51)
        (frame,) = relayed.client.frames()
        relayed.from_client(frames.PONG, frame.payload)
        relayed.settle(10)
        self.assertEqual(len(relayed.client.frames()), 1)

    def test_a_client_that_says_anything_while_the_containers_is_open_needs_no_ping_of_ours(self) -> None:
        relayed = Relayed().open()
        relayed.from_container(frames.PING, b"skipped")
        relayed.client.out = b""
        relayed.settle(31)
        relayed.from_client(frames.TEXT, b"alive")
        relayed.settle(25)
        self.assertEqual(relayed.client.out, b"")


class SpreadTests(TestCase):
    def test_clients_that_came_at_different_times_are_pinged_at_different_times(self) -> None:
        relayed = Relayed().open()
        relayed.settle(0.5)
        self.assertEqual(relayed.relays.open, 1)
        moments = []
        for moment in range(40):
            relayed.settle(1)
            if relayed.client.out:
                moments.append(moment)
                for frame in relayed.client.frames():
                    relayed.from_client(frames.PONG, frame.payload)
        self.assertEqual(moments, [29])

    def test_no_timer_is_left_when_the_last_relay_is_gone(self) -> None:
        relayed = Relayed().open()
        relayed.client.lose()
        relayed.settle(5)
        self.assertEqual(relayed.reactor.getDelayedCalls(), [])

"""How a relay ends: by a peer's Close, by ours, by somebody who vanishes; and that it always does."""

from __future__ import annotations

import struct

from twisted.internet.error import ConnectionDone
from twisted.trial.unittest import TestCase

from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from sticky.edge.leg import TRANSITIONS, Phase
from sticky.edge.websocket_relay import STAGES, Stage
from tests.fakes.ws_front import FakeLease
from tests.fakes.ws_transport import FakeFront, FakeTransport, Relayed, handshake
from tests.strategies_frames import Frame, encode


def close(code: int, reason: bytes = b"") -> bytes:
    """A Close's payload."""
    return struct.pack("!H", code) + reason


class EndingCase(TestCase):
    def assertOver(self, relayed: Relayed) -> None:
        relayed.settle()
        self.assertTrue(relayed.client.lost)
        self.assertTrue(relayed.container.lost)
        self.assertEqual((relayed.lease.released, relayed.relays.open), (1, 0))

    def assertOpen(self, relayed: Relayed) -> None:
        self.assertFalse(relayed.client.lost and relayed.container.lost)
        self.assertEqual((relayed.lease.released, relayed.relays.open), (0, 1))

    def assertClose(self, transport: FakeTransport, code: int, reason: bytes) -> None:
        frame = transport.frames()[-1]
        self.assertEqual((frame.opcode, frame.payload), (frames.CLOSE, close(code, reason)))


class PeersCloseTests(EndingCase):
    def test_a_close_and_its_answer_pass_unchanged_and_both_connections_are_closed(self) -> None:
        for payload in (
            b"",
            close(1000),
            close(1001, b"bye"),
            close(4999, b"x" * 123),
            close(3001),
            b"\x00",
            close(1006),
        ):
            relayed = Relayed().open()
            sent = relayed.from_client(frames.CLOSE, payload)
            self.assertEqual(relayed.container.out, sent)
            self.assertOpen(relayed)
            answer = relayed.from_container(frames.CLOSE, payload)
            self.assertEqual(relayed.client.out, answer)
            self.assertOver(relayed)
            self.assertFalse(relayed.client.aborted or relayed.container.aborted)

    def test_the_same_from_the_container(self) -> None:
        relayed = Relayed().open()
        sent = relayed.from_container(frames.CLOSE, close(1000, b"done"))
        relayed.container.protocol.readConnectionLost()  # as websockets does, at once
        relayed.settle(1)
        self.assertEqual(relayed.client.out, sent)
        self.assertOpen(relayed)
        relayed.from_client(frames.CLOSE, close(1000, b"done"))
        self.assertOver(relayed)

    def test_data_of_the_side_that_has_not_closed_yet_still_passes_and_of_the_other_not(self) -> None:
        relayed = Relayed().open()
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.container.out = b""
        relayed.from_client(frames.TEXT, b"too late")
        self.assertEqual(relayed.container.out, b"")
        sent = relayed.from_container(frames.TEXT, b"one more") + relayed.from_container(frames.CLOSE, close(1000))
        self.assertEqual(relayed.client.out, sent)

    def test_two_closes_that_cross_both_pass(self) -> None:
        relayed = Relayed().open()
        one = relayed.from_client(frames.CLOSE, close(1000))
        two = relayed.from_container(frames.CLOSE, close(1001))
        self.assertEqual((relayed.container.out, relayed.client.out), (one, two))
        self.assertOver(relayed)

    def test_a_close_in_the_middle_of_a_read_is_the_last_that_passes(self) -> None:
        relayed = Relayed().open()
        wire = encode(Frame(frames.TEXT, b"a")) + encode(Frame(frames.CLOSE, close(1000)))
        relayed.container.deliver(wire + encode(Frame(frames.TEXT, b"b")) + b"\x82")
        self.assertEqual(relayed.client.out, wire)

    def test_an_answer_that_never_comes_is_not_waited_for_without_end(self) -> None:
        relayed = Relayed().open()
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.settle(29)
        self.assertOpen(relayed)
        relayed.settle(2.5)
        self.assertOver(relayed)

    def test_no_ping_follows_a_close(self) -> None:
        relayed = Relayed().open()
        relayed.settle(29)
        relayed.from_container(frames.CLOSE, close(1000))
        relayed.client.out = b""
        relayed.settle(3)
        self.assertEqual(relayed.client.out, b"")


class TellingTests(EndingCase):
    """What the front hears for the access log: the first cause, and the bytes of both peers."""

    def test_a_peers_close_is_told_by_its_code(self) -> None:
        for payload, reason in ((close(1000, b"done"), "closed_1000"), (b"", "closed"), (close(4001), "closed_4001")):
            for rules in (RelayRules(), RelayRules(mode="messages")):
                relayed = Relayed(rules=rules).open()
                up = relayed.from_client(frames.BINARY, b"x" * 10)
                down = relayed.from_container(frames.BINARY, b"y" * 1000)
                down += relayed.from_container(frames.CLOSE, payload)
                up += relayed.from_client(frames.CLOSE, payload)
                self.assertOver(relayed)
                self.assertEqual(relayed.front.ended, (reason, len(up), len(down)))
                self.assertEqual(relayed.front.calls, ["take_over", "over"])

    def test_an_end_of_ours_is_told_by_its_reason_whatever_is_answered(self) -> None:
        relayed = Relayed().open()
        relayed.lease.holder.session_ended(EndReason.IDLE_TIMEOUT, None)
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.from_container(frames.CLOSE, close(1000))
        self.assertOver(relayed)
        assert relayed.front.ended is not None
        self.assertEqual(relayed.front.ended[0], "idle_timeout")

    def test_who_vanished_is_told(self) -> None:
        for who, reason in (("client", "client_gone"), ("container", "container_lost")):
            relayed = Relayed().open()
            getattr(relayed, who).lose()
            relayed.settle(60)
            assert relayed.front.ended is not None
            self.assertEqual(relayed.front.ended[0], reason)

    def test_who_answers_no_ping_is_told(self) -> None:
        relayed = Relayed().open()
        relayed.settle(120)
        self.assertOver(relayed)
        assert relayed.front.ended is not None
        self.assertEqual(relayed.front.ended[0], "no_pong")


class OurCloseTests(EndingCase):
    def test_every_reason_has_its_code_and_name_on_both_sides(self) -> None:
        for reason, code in (
            (EndReason.IDLE_TIMEOUT, 4410),
            (EndReason.TERMINATED, 4410),
            (EndReason.CONTAINER_LOST, 1011),
            (EndReason.CONTAINER_MAX_AGE, 4408),
            (EndReason.DEPLOYMENT_ENDED, 1012),
            (EndReason.SERVER_STOPPED, 1001),
        ):
            relayed = Relayed().open()
            relayed.lease.holder.session_ended(reason, None)
            self.assertClose(relayed.client, code, reason.value.encode())
            self.assertClose(relayed.container, code, reason.value.encode())
            relayed.from_client(frames.CLOSE, close(code))
            relayed.settle()
            self.assertTrue(relayed.client.lost)
            self.assertFalse(relayed.client.aborted)
            self.assertOpen(relayed)
            relayed.from_container(frames.CLOSE, close(code))
            self.assertOver(relayed)
            self.assertEqual((relayed.client.out, relayed.container.out), (b"", b""))

    def test_data_that_still_comes_is_dropped_and_control_frames_too(self) -> None:
        relayed = Relayed().open()
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.client.out = relayed.container.out = b""
        relayed.from_client(frames.TEXT, b"x")
        relayed.from_container(frames.BINARY, bytes(100_000))
        relayed.from_client(frames.PING, b"x")
        self.assertEqual((relayed.client.out, relayed.container.out), (b"", b""))
        self.assertOpen(relayed)

    def test_it_waits_for_the_end_of_the_frame_that_is_being_written(self) -> None:
        relayed = Relayed().open()
        wire = encode(Frame(frames.BINARY, bytes(1000)))
        relayed.container.deliver(wire[:10])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        self.assertEqual(relayed.client.out, wire[:10])
        self.assertClose(relayed.container, 4410, b"terminated")
        relayed.container.deliver(wire[10:] + encode(Frame(frames.TEXT, b"dropped")))
        self.assertEqual([frame.opcode for frame in relayed.client.frames()], [frames.BINARY, frames.CLOSE])
        relayed.from_client(frames.CLOSE, close(4410))
        relayed.from_container(frames.CLOSE, close(4410))
        self.assertOver(relayed)

    def test_a_frame_that_never_ends_is_not_waited_for_without_end(self) -> None:
        relayed = Relayed().open()
        relayed.container.deliver(encode(Frame(frames.BINARY, bytes(1000)))[:10])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.settle(9)
        self.assertOpen(relayed)
        relayed.settle(2.5)
        self.assertOver(relayed)

    def test_a_container_that_does_not_read_does_not_delay_the_clients_close(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        for _ in range(5):
            relayed.from_client(frames.BINARY, bytes(30_000))
        self.assertTrue(relayed.client.paused)
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        self.assertClose(relayed.client, 4410, b"terminated")
        relayed.from_client(frames.CLOSE, close(4410))
        relayed.settle()
        self.assertTrue(relayed.client.lost)
        self.assertFalse(relayed.client.aborted)
        relayed.settle(12)
        self.assertOver(relayed)

    def test_a_container_that_does_not_read_with_a_frame_half_written_is_cut_and_nothing_piles_up(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        wire = encode(Frame(frames.BINARY, bytes(900_000), masked=True))
        relayed.client.deliver(wire[:80_000])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.client.deliver(wire[80_000:])
        relayed.settle()
        self.assertTrue(relayed.container.aborted)
        self.assertLess(len(relayed.container.pending), 100_000)
        self.assertClose(relayed.client, 4410, b"terminated")
        relayed.from_client(frames.CLOSE, close(4410))
        self.assertOver(relayed)

    def test_a_container_that_stops_reading_inside_a_frame_after_our_close_is_cut(self) -> None:
        relayed = Relayed().open()
        wire = encode(Frame(frames.BINARY, bytes(900_000), masked=True))
        relayed.client.deliver(wire[:80_000])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.container.stalled = True
        relayed.client.deliver(wire[80_000:180_000])
        relayed.client.deliver(wire[180_000:])
        relayed.settle()
        self.assertTrue(relayed.container.aborted)
        self.assertLess(len(relayed.container.pending), 200_000)
        relayed.from_client(frames.CLOSE, close(4410))
        self.assertOver(relayed)

    def test_a_client_that_does_not_read_is_cut_at_the_deadline_and_nothing_piles_up(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        wire = encode(Frame(frames.BINARY, bytes(900_000)))
        for at in range(0, 900_000, 50_000):
            relayed.container.deliver(wire[at : at + 50_000])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.settle(9)
        self.assertLess(len(relayed.client.pending), 200_000)
        relayed.settle(2.5)
        self.assertOver(relayed)

    def test_a_slow_client_gets_the_rest_of_its_frame_and_then_the_close(self) -> None:
        relayed = Relayed().open()
        relayed.client.stalled = True
        wire = encode(Frame(frames.BINARY, bytes(200_000)))
        for at in range(0, len(wire), 50_000):
            relayed.container.deliver(wire[at : at + 50_000])
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.client.resume()
        relayed.settle()
        self.assertEqual([frame.opcode for frame in relayed.client.frames()], [frames.BINARY, frames.CLOSE])

    def test_peers_that_never_answer_are_cut_at_the_deadline(self) -> None:
        relayed = Relayed().open()
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        relayed.settle(9.5)
        self.assertOpen(relayed)
        relayed.settle(2)
        self.assertOver(relayed)
        self.assertTrue(relayed.client.aborted and relayed.container.aborted)

    def test_it_answers_a_close_that_the_container_has_not_answered(self) -> None:
        relayed = Relayed().open()
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.lease.holder.session_ended(EndReason.TERMINATED, None)
        self.assertClose(relayed.client, 4410, b"terminated")
        relayed.settle()
        self.assertTrue(relayed.client.lost)
        relayed.from_container(frames.CLOSE, close(1000))
        self.assertOver(relayed)

    def test_a_second_end_changes_nothing(self) -> None:
        relayed = Relayed().open()
        holder = relayed.lease.holder
        holder.session_ended(EndReason.TERMINATED, None)
        relayed.client.out = b""
        holder.close(1001, b"server_stopped")
        self.assertEqual(relayed.client.out, b"")
        relayed.settle(12)
        self.assertOver(relayed)
        holder.session_ended(EndReason.TERMINATED, None)
        holder.close(1001, b"server_stopped")
        self.assertEqual(relayed.lease.released, 1)


class VanishingTests(EndingCase):
    def test_a_container_that_vanishes_between_frames_is_1011(self) -> None:
        relayed = Relayed().open()
        relayed.from_container(frames.TEXT, b"last")
        relayed.container.lose()
        self.assertClose(relayed.client, 1011, b"container_lost")
        self.assertOpen(relayed)
        relayed.from_client(frames.TEXT, b"to nobody")
        relayed.from_client(frames.CLOSE, close(1011))
        self.assertOver(relayed)
        self.assertFalse(relayed.client.aborted)

    def test_a_container_that_vanishes_inside_a_held_header_is_1011_too(self) -> None:
        relayed = Relayed().open()
        relayed.container.deliver(b"\x89\x05he")
        relayed.container.lose()
        self.assertClose(relayed.client, 1011, b"container_lost")

    def test_a_container_that_vanishes_inside_a_frame_cuts_the_client(self) -> None:
        relayed = Relayed().open()
        relayed.container.deliver(b"\x82\x05he")
        relayed.container.lose()
        relayed.settle()
        self.assertEqual(relayed.client.out, b"\x82\x05he")
        self.assertTrue(relayed.client.aborted)
        self.assertOver(relayed)

    def test_a_fin_of_the_container_without_a_close_is_1011(self) -> None:
        relayed = Relayed().open()
        relayed.container.protocol.readConnectionLost()
        self.assertClose(relayed.client, 1011, b"container_lost")
        relayed.settle()
        self.assertTrue(relayed.container.lost)
        relayed.from_client(frames.CLOSE, close(1011))
        self.assertOver(relayed)

    def test_a_client_that_vanishes_closes_the_container_once_what_it_sent_is_delivered(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        sent = relayed.from_client(frames.TEXT, b"last words")
        relayed.client.lose()
        relayed.settle()
        self.assertFalse(relayed.container.lost)
        self.assertEqual(relayed.lease.released, 0)
        relayed.container.resume()
        self.assertOver(relayed)
        self.assertEqual(relayed.container.out, sent)

    def test_a_client_that_vanishes_before_a_container_that_does_not_read_is_bounded(self) -> None:
        relayed = Relayed().open()
        relayed.container.stalled = True
        relayed.from_client(frames.TEXT, b"x")
        relayed.client.lose()
        relayed.settle(12)
        self.assertOver(relayed)

    def test_a_fin_of_the_client_without_a_close_is_the_same(self) -> None:
        relayed = Relayed().open()
        relayed.client.protocol.readConnectionLost()
        self.assertOver(relayed)
        self.assertEqual(relayed.container.out, b"")

    def test_a_container_that_vanishes_instead_of_answering_a_close_is_1011(self) -> None:
        relayed = Relayed().open()
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.container.lose(ConnectionDone())
        self.assertClose(relayed.client, 1011, b"container_lost")
        self.assertOver(relayed)

    def test_a_client_that_vanishes_after_its_close_leaves_the_container_to_answer(self) -> None:
        relayed = Relayed().open()
        relayed.from_client(frames.CLOSE, close(1000))
        relayed.client.lose()
        relayed.settle(1)
        self.assertFalse(relayed.container.closing)
        relayed.from_container(frames.CLOSE, close(1000))
        self.assertOver(relayed)

    def test_both_vanish_in_the_same_moment(self) -> None:
        relayed = Relayed().open()
        relayed.container.lose()
        relayed.client.lose()
        self.assertOver(relayed)


class StoppingTests(EndingCase):
    def test_all_relays_are_closed_with_1001_and_waited_for(self) -> None:
        relayed = Relayed().open()
        done: list[object] = []
        relayed.relays.close_all().addCallback(done.append)
        self.assertClose(relayed.client, 1001, b"server_stopped")
        self.assertEqual(done, [])
        relayed.from_client(frames.CLOSE, close(1001))
        relayed.from_container(frames.CLOSE, close(1001))
        self.assertOver(relayed)
        self.assertEqual(done, [None])

    def test_one_that_fails_keeps_no_other_from_being_closed_or_cut(self) -> None:
        opened = Relayed().open()
        clients = [opened.client]
        for _ in range(3):
            opened.client = FakeTransport(opened.reactor)
            opened.front = FakeFront(opened.client)
            opened.open()
            clients.append(opened.client)

        def broken(*_: object) -> None:
            raise LookupError("a fault of this transport")

        for client in clients[::2]:
            client.write = client.abortConnection = broken  # type: ignore[method-assign,assignment]
        opened.relays.close_all()
        for client in clients[1::2]:
            self.assertClose(client, 1001, b"server_stopped")
        opened.relays.cut_all()
        opened.settle()
        self.assertTrue(all(client.lost for client in clients[1::2]))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 4)

    def test_those_who_do_not_answer_are_waited_for_until_the_deadline_only(self) -> None:
        relayed = Relayed().open()
        done: list[object] = []
        relayed.relays.close_all().addCallback(done.append)
        relayed.settle(12)
        self.assertEqual(done, [None])
        self.assertOver(relayed)

    def test_handshakes_under_way_and_new_ones_are_refused(self) -> None:
        relayed = Relayed()
        relayed.connect()
        done: list[object] = []
        relayed.relays.close_all().addCallback(done.append)
        self.assertEqual(done, [None])
        assert relayed.front.refusal is not None
        self.assertEqual(relayed.front.refusal.code, "shutting_down")
        late = FakeFront(relayed.client)
        relayed.relays.relay(late, handshake(), FakeLease(relayed.lease.address))
        self.assertEqual(late.calls, ["refuse"])

    def test_with_nothing_open_it_is_done_at_once_and_again(self) -> None:
        relayed = Relayed()
        for _ in range(2):
            done: list[object] = []
            relayed.relays.close_all().addCallback(done.append)
            self.assertEqual(done, [None])


class TableTests(TestCase):
    def test_every_phase_and_stage_has_its_row_and_an_end(self) -> None:
        self.assertEqual(set(TRANSITIONS), set(Phase))
        self.assertEqual(set(STAGES), set(Stage))
        self.assertEqual([phase for phase in Phase if not TRANSITIONS[phase]], [Phase.LOST])
        self.assertEqual([stage for stage in Stage if not STAGES[stage]], [Stage.GONE])

"""From a handshake to two joined legs: the container is asked first, and whatever goes wrong is still HTTP."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.values import ContainerId, EndReason
from sticky.edge.grammar import HeadLimits
from sticky.edge.handshake import RelayRules
from sticky.edge.parsing import MAX_INFORMATIONAL
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from sticky.isticky import ILeaseHolder, TCPAddress, UNIXAddress
from tests.fakes.ws_front import FakeLease
from tests.fakes.ws_transport import ACCEPT, KEY, SWITCHED, FakeFront, FakeReactor, FakeTransport, Relayed, handshake


class JoiningTests(TestCase):
    def test_the_containers_head_is_sent_and_its_101_reaches_the_client_byte_for_byte(self) -> None:
        relayed = Relayed()
        asked = handshake()
        container = relayed.connect(asked)
        self.assertEqual(container.out, asked.container_head)
        self.assertEqual(relayed.client.out, b"")
        self.assertEqual((relayed.relays.dialling, relayed.relays.open), (1, 0))
        container.deliver(SWITCHED)
        self.assertEqual(relayed.client.out, SWITCHED)
        self.assertEqual((relayed.relays.dialling, relayed.relays.open), (0, 1))
        self.assertTrue(ILeaseHolder.providedBy(relayed.lease.holder))
        self.assertEqual(relayed.lease.released, 0)

    def test_a_unix_socket_is_dialled_by_its_path(self) -> None:
        connector = Relayed(address=UNIXAddress("/run/c.sock")).ask()
        self.assertEqual(connector.address, UNIXAddress("/run/c.sock"))

    def test_an_answer_that_comes_byte_by_byte_is_understood(self) -> None:
        relayed = Relayed()
        container = relayed.connect()
        for at in range(len(SWITCHED)):
            container.deliver(SWITCHED[at : at + 1])
        self.assertEqual(relayed.client.out, SWITCHED)

    def test_early_hints_before_the_101_are_skipped(self) -> None:
        relayed = Relayed()
        relayed.connect().deliver(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + SWITCHED)
        self.assertEqual(relayed.client.out, SWITCHED)

    def test_bytes_that_come_with_either_handshake_are_kept(self) -> None:
        relayed = Relayed()
        relayed.front.early = b"\x81\x84\x00\x00\x00\x00\r\n\r\n"
        container = relayed.connect()
        container.deliver(SWITCHED + b"\x81\x05hello\x89")
        self.assertEqual(relayed.client.out, SWITCHED + b"\x81\x05hello")
        self.assertEqual(container.out, handshake().container_head + relayed.front.early)
        container.deliver(b"\x00")
        self.assertEqual(relayed.client.out, SWITCHED + b"\x81\x05hello\x89\x00")

    def test_a_selected_subprotocol_that_was_offered_passes(self) -> None:
        relayed = Relayed()
        answer = SWITCHED[:-2] + b"Sec-WebSocket-Protocol: chat\r\n\r\n"
        relayed.connect(handshake((b"other", b"chat"), b"modal-session")).deliver(answer)
        self.assertEqual(relayed.client.out, answer)

    def test_ours_is_answered_where_the_container_selects_none(self) -> None:
        relayed = Relayed()
        relayed.connect(handshake((), b"modal-session")).deliver(SWITCHED)
        self.assertEqual(relayed.client.out, SWITCHED[:-2] + b"Sec-WebSocket-Protocol: modal-session\r\n\r\n")

    def test_what_autobahn_has_stored_is_dropped_once_the_legs_are_joined(self) -> None:
        relayed = Relayed().open()
        self.assertEqual(vars(relayed.client.protocol), {})
        self.assertEqual(vars(relayed.container.protocol), {})


class RefusingTests(TestCase):
    def assertRefused(self, relayed: Relayed, error: type[errors.Refusal]) -> None:
        self.assertEqual(relayed.front.calls, ["refuse"])
        self.assertIsInstance(relayed.front.refusal, error)
        relayed.settle()
        self.assertEqual((relayed.relays.dialling, relayed.relays.open), (0, 0))
        self.assertEqual(relayed.lease.released, 0)  # it is the front's again

    def test_a_container_that_cannot_be_reached_is_503(self) -> None:
        relayed = Relayed()
        relayed.ask().fail()
        self.assertRefused(relayed, errors.ContainerUnavailable)

    def test_an_answer_that_breaks_off_is_502(self) -> None:
        relayed = Relayed()
        container = relayed.connect()
        container.deliver(SWITCHED[:-1])
        container.lose()
        self.assertRefused(relayed, errors.BadGateway)

    def test_a_fin_instead_of_an_answer_is_502(self) -> None:
        relayed = Relayed()
        container = relayed.connect()
        container.protocol.readConnectionLost()
        relayed.settle()
        self.assertRefused(relayed, errors.BadGateway)

    def test_early_hints_without_end_are_502(self) -> None:
        hint = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        relayed = Relayed()
        container = relayed.connect()
        container.deliver(hint * MAX_INFORMATIONAL)
        self.assertEqual(relayed.front.calls, [])
        container.deliver(hint)
        self.assertRefused(relayed, errors.BadGateway)
        self.assertTrue(container.lost)

    def test_answers_that_are_no_valid_101_are_502(self) -> None:
        for answer in (
            SWITCHED.replace(ACCEPT, KEY),
            SWITCHED.replace(b"Sec-WebSocket-Accept", b"X-Accept"),
            SWITCHED.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
            SWITCHED.replace(b"connection: upgrade", b"X: y"),
            SWITCHED.replace(b"HTTP/1.1", b"HTTP/1.0"),
            SWITCHED.replace(ACCEPT, ACCEPT + b"\r\nSec-WebSocket-Accept: " + ACCEPT),
            SWITCHED.replace(b"Upgrade: websocket", b"Upgrade: \xff"),
            SWITCHED[:-2] + b"Sec-WebSocket-Protocol: not-offered\r\n\r\n",
            SWITCHED[:-2] + b"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
            SWITCHED[:-2] + b"Sec-WebSocket-Protocol:\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 101 x\r\nX: " + b"y" * 70_000,
        ):
            relayed = Relayed()
            container = relayed.connect(handshake((b"chat",)))
            container.deliver(answer)
            self.assertRefused(relayed, errors.BadGateway)
            self.assertEqual(relayed.client.out, b"")
            self.assertTrue(container.lost)

    def test_a_handshake_that_autobahn_refuses_never_reaches_the_container(self) -> None:
        relayed = Relayed()
        asked = handshake()
        head = attrs.evolve(asked.head, block=asked.head.block.replace(KEY, b"c2hvcnQ="))
        relayed.relays.relay(relayed.front, attrs.evolve(asked, head=head), relayed.lease)
        self.assertRefused(relayed, errors.BadRequest)
        self.assertEqual(relayed.reactor.dials, [])

    def test_a_container_that_does_not_answer_in_time_is_504(self) -> None:
        relayed = Relayed(RelayTimes(handshake_timeout=5))
        container = relayed.connect()
        relayed.settle(4.9)
        self.assertEqual(relayed.front.calls, [])
        relayed.settle(1.2)
        self.assertRefused(relayed, errors.GatewayTimeout)
        self.assertTrue(container.aborted)

    def test_a_container_that_does_not_accept_in_time_is_504_and_its_dial_given_up(self) -> None:
        relayed = Relayed(RelayTimes(handshake_timeout=5))
        connector = relayed.ask()
        relayed.settle(6.1)
        self.assertRefused(relayed, errors.GatewayTimeout)
        self.assertTrue(connector.given_up)

    def test_the_dial_and_the_head_of_the_answer_have_the_limits_of_any_request(self) -> None:
        for address in (TCPAddress("127.0.0.1", 1), UNIXAddress("/c")):
            relayed = Relayed(RelayTimes(connect_timeout=2.5), address)
            self.assertEqual(relayed.ask().timeout, 2.5)
        reactor = FakeReactor()
        relays = WebSocketRelays(reactor, heads=HeadLimits(head=400, fields=8))
        for long, refused in (
            (b"X: " + b"y" * 20 + b"\r\n", False),
            (b"X: " + b"y" * 400 + b"\r\n", True),
            (b"X: y\r\n" * 4, True),
        ):
            front = FakeFront(FakeTransport(reactor))
            relays.relay(front, handshake(), FakeLease(UNIXAddress("/c")))
            container = reactor.dials[-1].succeed()
            assert container is not None
            container.deliver(SWITCHED[:-2] + long + b"\r\n")
            self.assertEqual(front.calls, ["refuse" if refused else "take_over"])

    def test_a_session_that_ends_while_its_container_is_dialled_is_410(self) -> None:
        relayed = Relayed()
        container = relayed.connect()
        relayed.lease.holder.session_ended(EndReason.IDLE_TIMEOUT, None)
        self.assertRefused(relayed, errors.SessionEnded)
        assert relayed.front.refusal is not None
        self.assertEqual(relayed.front.refusal.code, "idle_timeout")
        self.assertTrue(container.lost)

    def test_too_many_handshakes_at_once_are_503_and_the_others_go_on(self) -> None:
        reactor = FakeReactor()
        relays = WebSocketRelays(reactor, max_handshakes=2)
        fronts = [FakeFront(FakeTransport(reactor)) for _ in range(4)]
        leases = [FakeLease(UNIXAddress("/c"), ContainerId(f"ct-{number}")) for number in range(4)]
        for front, lease in zip(fronts[:3], leases[:3], strict=True):
            relays.relay(front, handshake(), lease)
        self.assertEqual([front.calls for front in fronts[:3]], [[], [], ["refuse"]])
        transport = reactor.dials[0].succeed()
        assert transport is not None
        transport.deliver(SWITCHED)
        self.assertEqual(fronts[0].calls, ["take_over"])
        relays.relay(fronts[3], handshake(), leases[3])
        self.assertEqual(fronts[3].calls, [])

    def test_a_container_that_does_not_answer_takes_no_more_than_its_share(self) -> None:
        reactor = FakeReactor()
        relays = WebSocketRelays(reactor, max_handshakes=12)
        fronts = [FakeFront(FakeTransport(reactor)) for _ in range(6)]
        silent, other = ContainerId("ct-silent"), ContainerId("ct-other")
        for front in fronts[:5]:
            relays.relay(front, handshake(), FakeLease(UNIXAddress("/c"), silent))
        self.assertEqual([front.calls for front in fronts[:5]], [[]] * 4 + [["refuse"]])
        relays.relay(fronts[5], handshake(), FakeLease(UNIXAddress("/d"), other))
        self.assertEqual(fronts[5].calls, [])
        for dial in reactor.dials:
            dial.fail()
        again = FakeFront(FakeTransport(reactor))
        relays.relay(again, handshake(), FakeLease(UNIXAddress("/c"), silent))
        self.assertEqual(again.calls, [])

    def test_ten_thousand_that_are_never_answered_are_all_gone_after_the_deadline(self) -> None:
        reactor = FakeReactor()
        relays = WebSocketRelays(reactor, RelayTimes(handshake_timeout=60), max_handshakes=10_000)
        fronts = [FakeFront(FakeTransport(reactor)) for _ in range(10_001)]
        for number, front in enumerate(fronts):
            relays.relay(front, handshake(), FakeLease(UNIXAddress("/c"), ContainerId(f"ct-{number % 5}")))
        self.assertEqual((relays.dialling, fronts[-1].calls), (10_000, ["refuse"]))
        reactor.advance(59)
        self.assertEqual(relays.dialling, 10_000)
        for _ in range(3):
            reactor.advance(1)
        self.assertEqual(relays.dialling, 0)
        self.assertEqual({type(front.refusal) for front in fronts[:-1]}, {errors.GatewayTimeout})
        self.assertTrue(all(dial.given_up for dial in reactor.dials))

    def test_an_unknown_mode_is_a_programming_error(self) -> None:
        self.assertRaises(ValueError, RelayRules, mode="tunnel")


class PassingOnTests(TestCase):
    def test_another_answer_goes_to_the_front_with_all_that_came(self) -> None:
        for answer in (b"401 Unauthorized", b"404 Not Found", b"302 Found", b"200 OK", b"503 Busy"):
            relayed = Relayed()
            container = relayed.connect()
            data = b"HTTP/1.1 " + answer + b"\r\nContent-Length: 10\r\n\r\nhello"
            container.deliver(data)
            self.assertEqual(relayed.front.calls, ["pass_on"])
            self.assertEqual(relayed.front.passed, (container, data))
            relayed.settle(100)
            self.assertFalse(container.closing)
            self.assertEqual((relayed.relays.dialling, relayed.relays.open), (0, 0))
            self.assertEqual(relayed.lease.released, 0)


class LeavingTests(TestCase):
    def test_a_client_that_leaves_during_the_dial_ends_it(self) -> None:
        relayed = Relayed()
        connector = relayed.ask()
        assert relayed.front.gone is not None
        relayed.front.gone()
        self.assertEqual(relayed.lease.released, 1)
        self.assertTrue(connector.given_up)
        self.assertIsNone(connector.succeed())
        self.assertEqual(relayed.front.calls, [])

    def test_a_client_that_leaves_before_the_answer_drops_the_container(self) -> None:
        relayed = Relayed()
        container = relayed.connect()
        assert relayed.front.gone is not None
        relayed.front.gone()
        relayed.settle()
        self.assertTrue(container.lost)
        self.assertEqual(relayed.lease.released, 1)
        self.assertEqual((relayed.front.calls, relayed.relays.dialling), ([], 0))

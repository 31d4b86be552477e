"""Writes at the end of a turn: in order, none lost, none late outside a turn; and what the straight path makes of it."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core.values import EndReason
from sticky.edge.turns import MOST, Turn
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.transport import FakeTransport


class TurnTests(TestCase):
    def test_outside_a_turn_it_writes_at_once(self) -> None:
        transport, turn = FakeTransport(), Turn()
        turn.write(transport, b"a")
        turn.begin()
        turn.end()
        turn.end()
        turn.write(transport, b"b")
        self.assertEqual(transport.buffer, b"ab")

    def test_within_one_it_writes_at_the_end_in_order(self) -> None:
        one, other, turn = FakeTransport(), FakeTransport(), Turn()
        turn.begin()
        for transport, data in ((one, b"a"), (other, b"b"), (one, b"c")):
            turn.write(transport, data)
        self.assertEqual((one.buffer, other.buffer), (b"", b""))
        turn.end()
        self.assertEqual((one.buffer, other.buffer), (b"ac", b"b"))

    def test_a_long_turn_writes_in_between(self) -> None:
        transport, turn = FakeTransport(), Turn()
        turn.begin()
        for _ in range(MOST + 1):
            turn.write(transport, b"x")
        self.assertEqual(len(transport.buffer), MOST)
        turn.end()
        self.assertEqual(len(transport.buffer), MOST + 1)


class RequestTests(TestCase):
    """A plain request on a kept connection, of which nothing is written before the turn ends."""

    def setUp(self) -> None:
        self.edge = FakeEdge()
        self.client = self.edge.client()
        self.client.receive(get())
        self.container = self.edge.container()
        self.container.receive(ANSWER)
        self.container.drain()
        self.client.drain()
        self.container.taken = self.client.taken = b""
        self.edge.context.turn.begin()
        self.client.receive(get(b"/second"))
        self.assertEqual(self.container.buffer, b"")

    def test_it_goes_out_at_the_end_and_its_answer_comes(self) -> None:
        self.edge.context.turn.end()
        self.assertTrue(self.container.drain().startswith(b"GET /second "))
        self.container.receive(ANSWER)
        self.client.drain()
        self.assertEqual(self.client.taken, ANSWER)

    def test_a_client_that_leaves_in_the_same_turn_takes_it_back(self) -> None:
        self.client.receive_reset()
        self.edge.context.turn.end()
        self.assertEqual((self.container.aborted, self.container.drain(), self.edge.routing.held), (True, b"", set()))

    def test_a_session_that_ends_in_the_same_turn_takes_it_back(self) -> None:
        self.edge.routing.end_all(EndReason.IDLE_TIMEOUT)
        self.edge.context.turn.end()
        self.client.drain()
        self.assertEqual((self.container.aborted, self.container.drain()), (True, b""))
        self.assertIn(b" 410 ", self.client.taken)

    def test_a_container_that_closes_in_the_same_turn_gets_it_once_on_a_new_connection(self) -> None:
        self.container.receive_fin()
        self.edge.context.turn.end()
        fresh = self.edge.container()
        self.assertEqual(fresh.drain().count(b"GET /second "), 1)
        fresh.receive(ANSWER)
        self.client.drain()
        self.assertEqual((self.client.taken, self.container.taken), (ANSWER, b""))

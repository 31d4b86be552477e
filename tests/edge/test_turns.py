"""Writes at the end of a turn: in order, none lost, none late outside a turn; and what the straight path makes of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.protocol import Protocol
from twisted.trial.unittest import TestCase

from sticky.core.values import EndReason
from sticky.edge.serving import ClientState
from sticky.edge.turns import Turn
from tests.fakes.edge import ANSWER, FakeEdge, PeerAddress, get
from tests.fakes.transport import EagerTransport, FakeTransport


@attrs.frozen
class Note:
    """Notes that it was written."""

    note: Callable[[], object]

    def written(self) -> None:
        self.note()


class BrokenTransport(FakeTransport):
    """Fails."""

    def write(self, data: bytes) -> None:
        raise ZeroDivisionError


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

    def test_who_wrote_is_told_when_all_is_written(self) -> None:
        one, other, turn = FakeTransport(), FakeTransport(), Turn()
        told: list[tuple[bytes, bytes]] = []
        note = Note(lambda: told.append((bytes(one.buffer), bytes(other.buffer))))
        turn.begin()
        turn.write(one, b"a", note)
        turn.write(other, b"b")
        self.assertEqual(told, [])
        turn.end()
        turn.write(one, b"c", note)
        self.assertEqual(told, [(b"a", b"b"), (b"ac", b"b")])

    def test_what_fails_takes_nothing_from_the_others(self) -> None:
        failing, broken, last, turn = FakeTransport(), BrokenTransport(), FakeTransport(), Turn()
        failing.connect(Protocol())
        broken.connect(Protocol())
        told: list[str] = []
        turn.begin()
        turn.write(failing, b"a", Note(lambda: 1 // 0))
        turn.write(broken, b"a", Note(lambda: told.append("what was not written")))
        turn.write(last, b"b", Note(lambda: last.write(b"c")))
        turn.end()
        self.assertEqual((failing.aborted, broken.aborted, last.buffer, told), (True, True, b"bc", []))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)


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


class AnswerTests(TestCase):
    """The answer of such a request, which has come in the turn after that and waits for its end."""

    def setUp(self) -> None:
        self.edge = FakeEdge()
        self.turn = self.edge.context.turn
        self.client = EagerTransport(self.edge.reactor)
        self.client.connect(self.edge.factory.buildProtocol(PeerAddress()))  # type: ignore[arg-type]
        self.client.receive(get())
        self.container = self.edge.container()
        self.container.receive(ANSWER)
        self.client.receive(get(b"/second"))
        self.container.drain()
        self.client.taken = self.container.taken = b""
        self.turn.begin()
        self.container.receive(ANSWER)
        self.assertEqual((self.client.taken, len(self.edge.routing.held)), (b"", 1))

    def check(self, *statuses: int) -> None:
        """The turn is over, and all is well: the client has the answer once."""
        self.turn.end()
        self.assertEqual(self.client.taken, ANSWER)
        self.assertEqual([record.status for record in self.edge.records], [200, 200, *statuses])

    def test_it_goes_out_at_the_end(self) -> None:
        self.check()
        self.assertEqual(self.edge.routing.held, set())

    def test_its_connection_to_the_container_is_another_clients_already(self) -> None:
        self.edge.client().receive(get(b"/third"))
        self.check()
        self.assertTrue(self.container.drain().startswith(b"GET /third "))

    def test_a_session_that_ends_meanwhile_takes_nothing_back(self) -> None:
        self.edge.routing.end_all(EndReason.IDLE_TIMEOUT)
        self.check()
        self.assertEqual((self.edge.front(self.client).state, self.edge.routing.held), (ClientState.IDLE, set()))

    def test_a_pipelined_request_comes_after_it(self) -> None:
        self.client.receive(get(b"/third"))
        self.assertEqual(self.container.drain(), b"")
        self.check()
        self.assertTrue(self.container.drain().startswith(b"GET /third "))

    def test_a_session_that_ends_meanwhile_takes_no_pipelined_request_of_another_along(self) -> None:
        self.client.receive(get(b"/third"))
        self.edge.routing.end_all(EndReason.IDLE_TIMEOUT)  # of the lease that there is: the next one's is another
        self.assertEqual((self.client.taken, len(self.edge.routing.held)), (ANSWER, 1))
        self.check()
        self.assertTrue(self.container.drain().startswith(b"GET /third "))
        self.container.receive(ANSWER)
        self.assertEqual((self.client.taken, self.edge.routing.held), (ANSWER * 2, set()))

    def test_nothing_begins_on_a_connection_that_is_cut(self) -> None:
        self.client.receive(get(b"/third"))
        self.edge.front(self.client).cut()
        self.check()
        self.assertEqual((self.container.drain(), self.edge.routing.held), (b"", set()))

    def test_a_client_that_is_cut_gets_it(self) -> None:
        self.edge.front(self.client).cut()
        self.assertTrue(self.client.aborted)
        self.check()
        self.assertEqual(self.edge.routing.held, set())

    def test_a_client_with_no_more_to_say_gets_it(self) -> None:
        self.client.receive_fin()
        self.check()
        self.assertEqual(self.edge.routing.held, set())

    def test_a_client_that_is_gone_does_not(self) -> None:
        self.client.receive_reset()
        self.turn.end()
        self.assertEqual(self.client.taken, b"")
        self.assertEqual([record.status for record in self.edge.records], [200, 499])
        self.assertEqual(self.edge.routing.held, set())

"""What goes straight through ends as the exchange in general ends it, and what is not straight is handed over to that one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge import context
from sticky.edge.relay import Exchange
from sticky.edge.serving import ClientState
from sticky.edge.site import Site
from sticky.edge.straight import Straight
from sticky.isticky import ILeaseHolder
from tests.edge.rehearsal import pieces
from tests.fakes.edge import ANSWER, FakeEdge, PeerAddress, get
from tests.fakes.routing import CONTAINER, SERVER
from tests.fakes.transport import EagerTransport

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = (
    ANSWER,
    OK + b"Content-Length: 0\r\n\r\n",
    OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
    OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ANSWER,
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ANSWER + b"HTTP/1.1 200 OK\r\n",
    b"nonsense\r\n\r\n",
)


class Straightly(TestCase):
    """A client whose first request has left a connection to the container in the pool."""

    site = Site(name=SERVER, response_timeout=30.0)

    def setUp(self) -> None:
        self.edge = FakeEdge(self.site)
        self.client = self.arrive()

    def arrive(self) -> EagerTransport:
        client = EagerTransport(self.edge.reactor)
        client.connect(self.edge.factory.buildProtocol(PeerAddress()))  # type: ignore[arg-type]
        client.receive(get())
        self.container = self.edge.container()
        self.container.receive(ANSWER)
        self.container.drain()
        client.taken = self.container.taken = b""
        return client

    def ask(self, request: bytes | None = None) -> None:
        """A request that has to go straight."""
        self.client.receive(request or get())
        self.container.drain()
        (lease,) = self.edge.routing.held
        self.assertIsInstance(lease.holder, Straight)
        verifyObject(ILeaseHolder, lease.holder)

    def stage(self) -> ClientState:
        return self.edge.front(self.client).state


class ThroughTests(Straightly):
    def test_a_second_request_goes_the_same_way_and_is_logged_as_the_first_was(self) -> None:
        first = get()
        self.ask(first)
        self.edge.reactor.advance(0.25)
        self.container.receive(ANSWER)
        self.assertEqual((self.client.taken, self.edge.routing.held), (ANSWER, set()))
        self.assertIs(self.stage(), ClientState.IDLE)
        general, straight = self.edge.records
        for name in general._fields:
            if name not in ("first_byte", "total", "block"):
                self.assertEqual(getattr(straight, name), getattr(general, name), name)
        self.assertEqual((straight.first_byte, straight.total), (0.25, 0.25))
        self.assertIsNotNone(straight.keeper)

    def test_the_container_gets_the_same_bytes_as_from_the_exchange(self) -> None:
        self.ask(get(b"/a?b=1", b"X-A: 1\r\nContent-Length: 0\r\n", b"DELETE"))
        straight = self.container.taken
        self.container.receive(ANSWER)
        self.container.abortConnection()
        self.edge.reactor.advance(0)
        self.client.receive(get(b"/a?b=1", b"X-A: 1\r\nContent-Length: 0\r\n", b"DELETE"))
        again = self.edge.container()
        again.drain()
        self.assertEqual(straight, again.taken)
        self.assertIn(b"x-modal-server-session-id", straight.lower())

    def test_one_connection_serves_many(self) -> None:
        for _ in range(5):
            self.ask()
            self.container.receive(ANSWER)
        self.assertEqual((self.client.taken, len(self.edge.reactor.dials)), (ANSWER * 5, 1))

    def test_a_client_that_wants_no_more_is_told_so_and_closed(self) -> None:
        self.ask(get(extra=b"Connection: close\r\n"))
        self.container.receive(ANSWER)
        self.assertIn(b"\r\nConnection: close\r\n\r\nok", self.client.taken)
        self.client.drain()
        self.assertTrue(self.client.lost)
        self.assertEqual(self.edge.routing.held, set())

    def test_a_pipelined_request_is_served_after_it(self) -> None:
        self.ask()
        self.client.receive(get(b"/next"))
        self.container.receive(ANSWER)
        self.container.drain()
        self.assertIn(b"GET /next ", self.container.taken)
        self.container.receive(ANSWER)
        self.assertEqual(self.client.taken, ANSWER * 2)

    def test_a_lease_counts_until_the_kernel_has_the_answer(self) -> None:
        self.ask()
        self.client.room = 0
        self.container.receive(ANSWER)
        self.assertEqual(len(self.edge.routing.held), 1)
        self.client.drain()
        self.assertEqual(self.edge.routing.held, set())
        self.assertIs(self.stage(), ClientState.IDLE)

    def test_requests_with_bodies_and_others_take_the_exchange(self) -> None:
        for request in (get(method=b"HEAD"), get(method=b"POST"), get(extra=b"Content-Length: 2\r\n") + b"ab"):
            self.setUp()
            self.client.receive(request)
            (lease,) = self.edge.routing.held
            self.assertIsInstance(lease.holder, Exchange)


class HandedOverTests(Straightly):
    @given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 120), max_size=3), st.booleans())
    def test_any_answer_in_any_pieces_is_what_the_exchange_makes_of_it(
        self, answer: bytes, cuts: list[int], keep: bool
    ) -> None:
        extra = b"" if keep else b"Connection: close\r\n"

        def outcome(straight: bool) -> tuple[object, ...]:
            self.setUp()
            if straight:
                self.ask(get(extra=extra))
            else:
                self.edge.context.upstreams.drop_idle()
                self.edge.reactor.advance(0)
                self.client.receive(get(extra=extra))
                self.container = self.edge.container()
            for piece in pieces(answer, cuts):
                if not self.container.lost and not self.container.aborted:
                    self.container.receive(piece)
            self.client.drain()
            record = self.edge.records[-1]
            pool = self.edge.context.upstreams.pool(CONTAINER, self.edge.routing.address)
            return (
                self.client.taken, self.stage(), self.client.lost, len(self.edge.routing.held), record.status,
                record.bytes_out, record.reason, pool.take(100.0) is None,
            )  # fmt: skip

        self.assertEqual(outcome(True), outcome(False))

    def test_a_client_that_leaves_takes_its_request_along(self) -> None:
        self.ask()
        self.client.receive_reset()
        self.assertTrue(self.container.aborted)
        self.assertEqual((self.edge.routing.held, self.edge.records[-1].status), (set(), 499))

    def test_a_client_that_leaves_before_it_has_the_answer_is_499_and_the_connection_stays(self) -> None:
        self.ask()
        self.client.room = 0
        self.container.receive(ANSWER)
        self.client.receive_reset()
        self.assertFalse(self.container.aborted)
        record = self.edge.records[-1]
        self.assertEqual((self.edge.routing.held, record.status, record.bytes_out), (set(), 499, len(ANSWER)))

    def test_a_session_that_ends_before_the_answer_is_410(self) -> None:
        self.ask()
        self.edge.routing.end_all(EndReason.CONTAINER_LOST, "killed")
        self.assertTrue(self.container.aborted)
        self.assertIn(b" 410 ", self.client.taken)
        self.assertEqual(self.edge.records[-1].reason, "container_lost")

    def test_a_session_that_ends_after_the_answer_changes_nothing_of_it(self) -> None:
        self.ask()
        self.client.room = 0
        self.container.receive(ANSWER)
        self.edge.routing.end_all(EndReason.TERMINATED)
        self.client.drain()
        self.assertEqual(self.client.taken, ANSWER)
        record = self.edge.records[-1]
        self.assertEqual((record.status, record.reason), (200, "terminated"))

    def test_a_connection_that_the_container_had_closed_is_replaced_by_a_new_one(self) -> None:
        self.ask()
        sent = self.container.taken
        self.container.receive_reset()
        again = self.edge.container()
        again.drain()
        again.receive(ANSWER)
        self.assertEqual((again.taken, self.client.taken), (sent, ANSWER))
        self.assertEqual((self.edge.routing.held, self.edge.records[-1].status), (set(), 200))

    def test_an_answer_that_takes_too_long_is_504(self) -> None:
        self.ask()
        for _ in range(62):
            self.edge.reactor.advance(0.5)
        self.assertIn(b" 504 ", self.client.taken)
        self.assertTrue(self.container.aborted)

    def test_a_lease_that_comes_late_belongs_to_the_exchange(self) -> None:
        self.edge.routing.late = True
        self.client.receive(get())
        self.edge.routing.grant_all()
        (lease,) = self.edge.routing.held
        self.assertIsInstance(lease.holder, Exchange)
        self.container.receive(ANSWER)
        self.assertEqual((self.client.taken, self.edge.routing.held), (ANSWER, set()))

    def test_a_lease_that_is_refused_at_once_or_late_is_answered(self) -> None:
        self.edge.routing.refusal = errors.SessionEnded("idle_timeout")
        self.client.receive(get())
        self.assertIn(b" 410 ", self.client.taken)
        self.edge.routing.refusal = None
        self.edge.routing.late = True
        self.client.receive(get())
        self.edge.routing.refuse_all(errors.Unavailable())
        self.assertIn(b" 503 ", self.client.taken)

    def test_a_client_that_leaves_before_its_lease_gives_the_wish_up(self) -> None:
        self.edge.routing.late = True
        self.client.receive(get())
        self.client.receive_reset()
        self.assertEqual((self.edge.routing.cancelled, self.edge.records[-1].status), (1, 499))

    def test_bytes_of_a_body_that_was_not_announced_cannot_come(self) -> None:
        straight = Straight(self.edge.front(self.client))
        self.assertRaises(errors.IllegalEvent, straight.request_received, b"x", True)
        self.assertRaises(errors.IllegalEvent, straight.request_broken)
        self.assertRaises(errors.IllegalEvent, straight.upstream_refused)


class RememberedTests(Straightly):
    def test_what_is_remembered_of_addresses_is_bounded(self) -> None:
        self.patch(context, "MAX_REMEMBERED", 3)
        for number in range(10):
            client = EagerTransport(self.edge.reactor)
            client.connect(self.edge.factory.buildProtocol(PeerAddress(f"192.0.2.{number}")))  # type: ignore[arg-type]
            client.receive(get())
            self.container.receive(ANSWER)
            client.receive_reset()
        self.assertTrue(1 <= len(self.edge.context.fields) <= 3)

    def test_the_next_connection_from_an_address_need_not_have_its_fields_read_again(self) -> None:
        fields = self.edge.front(self.client)._fields
        self.client.receive_reset()
        fronts = []
        for host in ("192.0.2.7", "192.0.2.8"):
            client = EagerTransport(self.edge.reactor)
            client.connect(self.edge.factory.buildProtocol(PeerAddress(host)))  # type: ignore[arg-type]
            client.receive(get())
            fronts.append(self.edge.front(client))
            self.container.receive(ANSWER)
        self.assertIs(fronts[0]._fields, fields)
        self.assertIsNot(fronts[1]._fields, fields)
        self.container.drain()
        self.assertIn(b"X-Forwarded-For: 192.0.2.8\r\n", self.container.taken)

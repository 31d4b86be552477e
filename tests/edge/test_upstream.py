"""The pool of connections to a container: what is reused, what is dialled, what is closed, and that nothing is left."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import TestCase

from sticky.core.values import ContainerId
from sticky.edge.sweep import Sweep
from sticky.edge.upstream import MAX_DIALS, Pool, Upstream, Upstreams
from sticky.isticky import TCPAddress, UNIXAddress
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.transport import EagerTransport, FakeReactor, FakeTransport

CONTAINER = ContainerId("ct-1")


@attrs.define(eq=False)
class User:
    """Records what a pool tells it."""

    ready: list[Upstream] = attrs.field(factory=list)
    refused: int = 0
    lost: list[bool] = attrs.field(factory=list)
    answers: bytes = b""
    written: int = 0

    def upstream_ready(self, upstream: Upstream) -> None:
        self.ready.append(upstream)

    def upstream_refused(self) -> None:
        self.refused += 1

    def answer_received(self, data: bytes) -> None:
        self.answers += data

    def upstream_lost(self, clean: bool) -> None:
        self.lost.append(clean)

    def upstream_written(self) -> None:
        self.written += 1


class PoolTests(TestCase):
    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.upstreams = Upstreams(self.reactor, Sweep(self.reactor), connect_timeout=5.0, idle=4.0)
        self.pool: Pool = self.upstreams.pool(CONTAINER, TCPAddress("127.0.0.1", 9))

    def connected(self) -> tuple[User, FakeTransport]:
        user = User()
        self.pool.dial(user)
        return user, self.reactor.undecided[0].succeed()

    def test_the_last_one_back_is_the_first_one_out(self) -> None:
        (first, _), (second, _) = self.connected(), self.connected()
        first.ready[0].give_back()
        second.ready[0].give_back()
        self.assertIs(self.pool.take(4.0), second.ready[0])
        self.assertIs(self.pool.take(4.0), first.ready[0])
        self.assertIsNone(self.pool.take(4.0))

    def test_one_that_idles_for_longer_than_asked_is_not_taken_and_is_closed_after_four_seconds(self) -> None:
        user, transport = self.connected()
        user.ready[0].give_back()
        self.reactor.advance(1.0)
        self.assertIsNone(self.pool.take(1.0))
        for _ in range(7):
            self.reactor.advance(0.5)
        self.assertEqual((transport.disconnecting, transport.aborted), (True, False))  # by a FIN, not by a reset
        self.assertIsNone(self.pool.take(60.0))
        transport.drain()
        self.reactor.advance(0.5)
        self.assertEqual(len(self.upstreams), 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_one_that_closes_itself_while_idle_is_dropped(self) -> None:
        user, transport = self.connected()
        user.ready[0].give_back()
        transport.receive_fin()
        self.assertIsNone(self.pool.take(4.0))
        self.assertEqual(len(self.upstreams), 0)
        self.assertEqual(user.lost, [])

    def test_one_that_speaks_while_idle_is_dropped(self) -> None:
        user, transport = self.connected()
        user.ready[0].give_back()
        transport.receive(ANSWER)
        self.assertTrue(transport.aborted)
        self.assertIsNone(self.pool.take(4.0))

    def test_a_paused_one_is_resumed_before_the_next_request_has_it(self) -> None:
        user, transport = self.connected()
        user.ready[0].pauseProducing()
        self.assertFalse(transport.reading)
        user.ready[0].give_back()
        self.assertTrue(transport.reading)

    def test_no_more_than_a_few_connects_are_under_way_and_a_free_connection_serves_who_waits(self) -> None:
        user, _ = self.connected()
        users = [User() for _ in range(MAX_DIALS + 2)]
        dials = [self.pool.dial(waiting) for waiting in users]
        self.assertEqual(len(self.reactor.undecided), MAX_DIALS)
        user.ready[0].give_back()
        self.assertEqual(len(users[MAX_DIALS].ready), 1)
        dials[0].cancel()
        self.assertEqual(len(self.reactor.undecided), MAX_DIALS)
        self.assertEqual(users[0].refused, 0)
        for dial in list(self.reactor.undecided):
            dial.fail()
        self.assertEqual(sum(waiting.refused for waiting in users), MAX_DIALS)
        self.assertEqual(len(self.reactor.undecided), 0)

    def test_a_fresh_one_is_never_one_that_was_used(self) -> None:
        user, _ = self.connected()
        for _ in range(MAX_DIALS):
            self.pool.dial(User())
        fresh = User()
        self.pool.dial(fresh, fresh=True)
        user.ready[0].give_back()
        self.assertEqual(fresh.ready, [])
        self.assertIs(self.pool.take(4.0), user.ready[0])

    def test_a_refused_connect_is_told_once_and_leaves_no_pool(self) -> None:
        user = User()
        dial = self.pool.dial(user)
        self.reactor.undecided[0].fail()
        dial.cancel()
        self.assertEqual(user.refused, 1)
        self.assertEqual(len(self.upstreams), 0)

    def test_a_container_that_moved_gets_a_new_pool(self) -> None:
        user, transport = self.connected()
        user.ready[0].give_back()
        self.assertIsNot(self.upstreams.pool(CONTAINER, UNIXAddress("/run/x")), self.pool)
        self.assertEqual((transport.disconnecting, transport.aborted), (True, False))
        fresh = self.upstreams.pool(CONTAINER, UNIXAddress("/run/x"))
        fresh.dial(User())
        self.assertEqual(self.reactor.undecided[0].address, "/run/x")
        transport.drain()
        self.assertTrue(transport.lost)
        self.assertIs(self.upstreams.pool(CONTAINER, UNIXAddress("/run/x")), fresh)


class RetryTests(TestCase):
    """What happens when a kept connection turns out to be closed under a request (issue: stale connections)."""

    def second(self, request: bytes, written: bool, answered: bytes = b"") -> tuple[FakeEdge, FakeTransport]:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        container = edge.container()
        container.receive(ANSWER)
        client.drain()
        client.taken = b""
        client.receive(request)
        if written:
            container.drain()
        if answered:
            container.receive(answered)
        container.receive_reset()
        client.drain()
        return edge, client

    def test_an_idempotent_request_without_a_body_goes_out_once_more(self) -> None:
        edge, client = self.second(get(b"/again"), written=True)
        edge.container().receive_reset()
        client.drain()
        self.assertIn(b" 502 ", client.taken)
        self.assertEqual(edge.reactor.undecided, [])
        self.assertEqual(edge.routing.held, set())

    def test_a_post_of_which_nothing_was_written_goes_out_once_more_with_its_body(self) -> None:
        edge, client = self.second(get(b"/p", b"Content-Length: 2\r\n", b"POST") + b"hi", written=False)
        container = edge.container()
        container.drain()
        self.assertTrue(container.taken.startswith(b"POST /p") and container.taken.endswith(b"\r\n\r\nhi"))
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)

    def test_a_post_that_was_written_does_not(self) -> None:
        edge, client = self.second(get(b"/p", b"Content-Length: 0\r\n", b"POST"), written=True)
        self.assertIn(b" 502 ", client.taken)
        self.assertEqual(edge.reactor.undecided, [])

    def test_a_put_whose_body_was_written_does_not(self) -> None:
        edge, client = self.second(get(b"/p", b"Content-Length: 2\r\n", b"PUT") + b"hi", written=True)
        self.assertIn(b" 502 ", client.taken)
        self.assertEqual(edge.reactor.undecided, [])

    def test_nothing_goes_out_again_once_an_answer_has_begun(self) -> None:
        edge, client = self.second(get(b"/again"), written=True, answered=b"HTTP/1.1 2")
        self.assertIn(b" 502 ", client.taken)
        self.assertEqual(edge.reactor.undecided, [])

    def test_a_post_does_not_use_a_connection_that_has_idled_for_a_second(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        edge.container().receive(ANSWER)
        client.drain()
        edge.reactor.advance(1.0)
        client.receive(get(b"/p", b"Content-Length: 0\r\n", b"POST"))
        self.assertEqual(len(edge.reactor.undecided), 1)
        edge.container().receive(ANSWER)
        client.drain()
        edge.reactor.advance(1.0)
        client.receive(get())
        self.assertEqual(edge.reactor.undecided, [])

    def kept(self) -> tuple[FakeTransport, FakeTransport]:
        """A client, and the container's connection that is kept after its first request."""
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        container = edge.container()
        container.receive(ANSWER)
        container.drain()
        client.drain()
        return client, container

    def test_an_upload_on_a_kept_connection_waits_until_its_beginning_is_written(self) -> None:
        client, container = self.kept()
        container.taken = b""
        client.receive(get(b"/p", b"Content-Length: 6\r\n", b"POST") + b"abc")
        client.receive(b"def")
        self.assertTrue(container.buffer.endswith(b"abc"))
        container.drain()
        container.drain()
        self.assertTrue(container.taken.endswith(b"\r\n\r\nabcdef"))
        self.assertIsNone(container.producer)

    def test_a_client_that_sends_much_meanwhile_is_held_back_and_read_again_then(self) -> None:
        client, container = self.kept()
        client.receive(get(b"/p", b"Content-Length: 100000\r\n", b"POST"))
        client.receive(b"x" * 100_000)
        self.assertFalse(client.reading)
        container.drain()
        self.assertTrue(client.reading)


class SecondSendingTests(TestCase):
    """A container closes a kept connection between our look and our write: what may go out again, by what had gone out.

    On transports that write at once and say what is left, as ours do.
    """

    def lost_after(
        self, method: bytes, body: bytes, room: int | None, answered: bytes = b""
    ) -> tuple[FakeEdge, FakeTransport]:
        """A second request on a kept connection, which takes `room` bytes of it (None: all) and is lost then."""
        edge = FakeEdge()
        edge.reactor.transport = EagerTransport
        client = edge.client()
        client.receive(get())
        container = edge.container()
        assert isinstance(container, EagerTransport)
        container.receive(ANSWER)
        client.drain()
        client.taken = b""
        container.room = room
        client.receive(get(b"/again", b"Content-Length: %d\r\n" % len(body), method) + body)
        if answered:
            container.receive(answered)
        container.receive_reset()
        client.drain()
        return edge, client

    def assert_once_more(self, edge: FakeEdge, client: FakeTransport, method: bytes, body: bytes) -> None:
        """It goes out whole on a fresh connection, and never a third time."""
        container = edge.container()
        container.drain()
        self.assertEqual(
            (container.taken.count(method + b" /again "), container.taken.endswith(b"\r\n\r\n" + body)), (1, True)
        )
        container.receive_reset()
        client.drain()
        self.assertIn(b" 502 ", client.taken)
        self.assertEqual((edge.reactor.undecided, edge.routing.held), ([], set()))

    def assert_never_again(self, edge: FakeEdge, client: FakeTransport) -> None:
        self.assertEqual((edge.reactor.undecided, edge.routing.held), ([], set()))
        self.assertIn(b" 502 ", client.taken)

    def test_an_idempotent_request_without_a_body_goes_out_once_more_whatever_was_written(self) -> None:
        for method in (b"GET", b"PUT", b"DELETE", b"OPTIONS", b"HEAD"):
            for room in (0, 5, None):
                self.assert_once_more(*self.lost_after(method, b"", room), method, b"")

    def test_an_idempotent_request_never_does_once_an_answer_has_begun(self) -> None:
        self.assert_never_again(*self.lost_after(b"GET", b"", None, b"H"))

    def test_a_put_whose_body_may_have_gone_out_never_does(self) -> None:
        for room in (1, 60, None):
            self.assert_never_again(*self.lost_after(b"PUT", b"hello", room))

    def test_whatever_was_not_written_at_all_goes_out_once_more(self) -> None:
        for method, body in (
            (b"POST", b""),
            (b"POST", b"hello"),
            (b"PATCH", b"hello"),
            (b"PUT", b"hello"),
            (b"POST", bytes(9_000)),
        ):
            self.assert_once_more(*self.lost_after(method, body, 0), method, body)

    def test_a_post_never_does_once_one_byte_was_written(self) -> None:
        for body in (b"", b"hello", bytes(9_000)):
            for room in (1, 60, None):
                self.assert_never_again(*self.lost_after(b"POST", body, room))

    def test_a_post_never_does_when_its_beginning_went_out_later(self) -> None:
        edge = FakeEdge()
        edge.reactor.transport = EagerTransport
        client = edge.client()
        client.receive(get())
        container = edge.container()
        assert isinstance(container, EagerTransport)
        container.receive(ANSWER)
        client.drain()
        container.room = 0
        client.receive(get(b"/again", b"Content-Length: 5\r\n", b"POST") + b"hello")
        container.drain(3)
        container.receive_reset()
        client.drain()
        self.assert_never_again(edge, client)

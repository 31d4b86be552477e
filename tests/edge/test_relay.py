"""An answer's way to its client: forms, 1xx, faults and ends, without sockets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.exchange import STEPS, Stage
from sticky.edge.parsing import MAX_INFORMATIONAL
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.routing import CONTAINER
from tests.fakes.transport import HIGH, FakeTransport

OK = b"HTTP/1.1 200 OK\r\n"


class RelayTests(TestCase):
    def setUp(self) -> None:
        self.edge = FakeEdge()
        self.client = self.edge.client()

    def ask(self, request: bytes | None = None) -> FakeTransport:
        self.client.receive(request or get())
        container = self.edge.container()
        container.drain()
        return container

    def pooled(self) -> bool:
        """Whether a connection to the container waits for the next request."""
        pool = self.edge.context.upstreams.pool(CONTAINER, self.edge.routing.address)
        return pool.take(100.0) is not None

    def test_a_connection_with_bytes_after_the_answer_is_not_used_again(self) -> None:
        container = self.ask()
        container.receive(ANSWER + b"HTTP/1.1 200 OK\r\n")
        self.client.drain()
        self.assertEqual(self.client.taken, ANSWER)
        self.assertFalse(self.pooled())

    def test_a_204_that_announces_a_body_is_the_last_answer_of_its_connection(self) -> None:
        for announced in (b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"):
            container = self.ask()
            container.receive(b"HTTP/1.1 204 No Content\r\n" + announced + b"\r\n")
            self.client.drain()
            self.assertEqual(self.client.taken, b"HTTP/1.1 204 No Content\r\n\r\n")
            self.assertFalse(self.pooled())
            self.assertFalse(self.client.lost or self.client.disconnecting)
            self.client = self.edge.client()

    def test_a_204_with_a_length_of_nothing_leaves_the_connection_in_the_pool(self) -> None:
        self.ask().receive(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
        self.client.drain()
        self.assertTrue(self.pooled())

    def test_a_whole_answer_leaves_the_connection_in_the_pool(self) -> None:
        self.ask().receive(ANSWER)
        self.client.drain()
        self.assertTrue(self.pooled())

    def test_an_answer_that_says_close_ends_only_the_containers_connection(self) -> None:
        container = self.ask()
        container.receive(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok")
        self.client.drain()
        self.assertEqual(self.client.taken, ANSWER)
        container.drain()
        self.assertTrue(container.lost)
        self.assertFalse(self.client.lost or self.client.disconnecting)

    def test_a_body_of_chunks_with_bytes_behind_its_end_is_cut_there(self) -> None:
        body = b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"
        container = self.ask()
        container.receive(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\no")
        container.receive(body[4:] + b"HTTP/1.1")
        self.client.drain()
        self.assertTrue(self.client.taken.endswith(b"\r\n\r\n" + body))
        self.assertFalse(self.pooled())

    @given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.sampled_from([b"1.1", b"1.0"]))
    def test_what_ends_by_closing_arrives_whole(self, pieces: list[bytes], version: bytes) -> None:
        self.setUp()
        container = self.ask(get(version=version))
        container.receive(OK + b"\r\n")
        for piece in pieces:
            container.receive(piece)
            self.client.drain()
        container.receive_fin()
        self.client.drain()
        _, _, body = self.client.taken.partition(b"\r\n\r\n")
        expected = b"".join(pieces)
        if version == b"1.1":
            expected = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        self.assertEqual(body, expected)
        self.assertEqual(self.edge.routing.held, set())
        self.assertEqual(self.client.disconnecting or self.client.lost, version == b"1.0")

    def test_a_body_cut_off_is_flushed_and_then_shown_by_the_close(self) -> None:
        container = self.ask()
        container.receive(OK + b"Content-Length: 10\r\n\r\nhello")
        container.receive_fin()
        self.assertEqual(self.edge.routing.held, set())
        self.client.drain()
        self.client.drain()
        self.assertTrue(self.client.taken.endswith(b"hello"))
        self.assertTrue(self.client.lost and not self.client.aborted)
        self.assertEqual([record.reason for record in self.edge.records], ["container_lost"])

    def test_only_a_reset_shows_an_http_1_0_client_that_a_body_until_close_was_cut_off(self) -> None:
        container = self.ask(get(version=b"1.0"))
        container.receive(OK + b"\r\nhello")
        container.receive_reset()
        self.client.drain()
        self.assertTrue(self.client.taken.endswith(b"hello"))
        self.assertTrue(self.client.aborted)

    def test_a_client_that_never_takes_a_broken_answers_rest_is_cut(self) -> None:
        container = self.ask()
        container.receive(OK + b"Content-Length: 10\r\n\r\nhello")
        container.receive_fin()
        for _ in range(21):
            self.edge.reactor.advance(0.5)
        self.assertTrue(self.client.aborted)

    def test_a_slow_client_pauses_the_container_and_little_is_buffered(self) -> None:
        container = self.ask()
        container.receive(OK + b"Content-Length: 100000000\r\n\r\n")
        while container.reading:
            container.receive(b"x" * HIGH)
        self.assertLess(self.client.most, 3 * HIGH)
        container.receive(b"y")
        self.assertFalse(self.client.buffer.endswith(b"y"))
        self.client.drain()
        self.assertTrue(container.reading)
        self.assertTrue(self.client.buffer.endswith(b"y"))

    def test_a_slow_container_pauses_the_client_and_little_is_buffered(self) -> None:
        container = self.ask(get(method=b"POST", extra=b"Content-Length: 100000000\r\n"))
        while self.client.reading:
            self.client.receive(b"x" * HIGH)
        self.assertLess(container.most, 3 * HIGH)
        container.drain()
        self.assertTrue(self.client.reading)

    def test_a_body_that_comes_before_there_is_a_connection_pauses_the_client(self) -> None:
        self.client.receive(get(method=b"POST", extra=b"Content-Length: 200000\r\n"))
        while self.client.reading:
            self.client.receive(b"x" * 40_000)
        container = self.edge.container()
        self.assertTrue(self.client.reading)
        self.client.receive(b"x" * 120_000)
        for _ in range(4):
            container.drain()
        self.assertEqual(len(container.taken.partition(b"\r\n\r\n")[2]), 200_000)

    def test_a_client_whose_whole_body_came_before_there_is_a_connection_is_read_again_and_its_fin_seen(self) -> None:
        self.client.receive(get(method=b"POST", extra=b"Content-Length: 100000\r\n"))
        self.client.receive(b"x" * 100_000)
        self.assertFalse(self.client.reading)
        container = self.edge.container()
        container.drain()
        self.assertTrue(self.client.reading)
        self.client.receive_fin()
        self.edge.reactor.pump([1.0] * 11)
        self.assertTrue(self.client.lost and container.aborted)
        self.assertEqual(self.edge.routing.held, set())

    def test_an_answer_before_the_upload_ends_is_read_in_peace(self) -> None:
        container = self.ask(get(method=b"POST", extra=b"Content-Length: 100000\r\n") + b"x")
        container.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        self.assertTrue(container.aborted)
        self.client.drain()
        self.assertEqual(self.edge.routing.held, set())
        self.client.receive(b"x" * 50_000)
        self.client.drain()
        self.assertTrue(self.client.fin_sent and not self.client.lost)
        self.client.receive_fin()
        self.assertTrue(self.client.lost)

    def test_a_client_whose_last_piece_was_too_much_is_read_again(self) -> None:
        self.ask(get(method=b"POST", extra=b"Content-Length: 100000\r\n"))
        self.client.receive(b"x" * 100_000)
        self.assertTrue(self.client.reading)  # else nobody would see it leave

    def test_an_http_1_0_client_hears_of_no_1xx_and_of_a_chunked_bodys_end_by_the_close(self) -> None:
        container = self.ask(get(version=b"1.0", extra=b"Connection: keep-alive\r\n"))
        container.receive(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK)
        container.receive(b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        for _ in range(2):
            self.client.drain()
        self.assertEqual(self.client.taken, OK + b"Connection: close\r\n\r\nok")
        self.assertTrue(self.client.lost)

    def test_a_client_that_was_held_back_is_heard_out_after_an_early_answer(self) -> None:
        container = self.ask(get(method=b"POST", extra=b"Content-Length: 1000000\r\n"))
        while self.client.reading:
            self.client.receive(b"x" * 40_000)
        container.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        for _ in range(2):
            self.client.drain()
        self.assertTrue(self.client.reading and self.client.fin_sent)

    def test_nobody_lingers_for_a_client_that_has_shut_its_side_meanwhile(self) -> None:
        container = self.ask(get(method=b"POST", extra=b"Content-Length: 100000\r\n") + b"x")
        container.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        self.client.receive_fin()
        self.client.drain()
        self.client.drain()
        self.assertTrue(self.client.lost and not self.client.aborted)
        self.assertEqual(self.edge.routing.held, set())

    def test_informational_answers_without_end_are_502(self) -> None:
        container = self.ask()
        container.receive(b"HTTP/1.1 103 Early Hints\r\n\r\n" * MAX_INFORMATIONAL)
        self.client.drain()
        self.assertEqual(self.client.taken.count(b" 103 "), MAX_INFORMATIONAL)
        container.receive(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        self.client.drain()
        self.assertIn(b" 502 ", self.client.taken)

    def test_an_ended_session_after_the_head_breaks_off_and_before_it_is_410(self) -> None:
        container = self.ask()
        container.receive(OK + b"Content-Length: 10\r\n\r\nhello")
        self.edge.routing.end_all(EndReason.CONTAINER_LOST, "killed")
        self.assertTrue(container.aborted)
        self.client.drain()
        self.client.drain()
        self.assertTrue(self.client.lost)
        self.client = self.edge.client()
        container = self.ask()
        self.edge.routing.end_all(EndReason.CONTAINER_LOST, "killed")
        self.assertTrue(container.aborted)
        self.client.drain()
        self.assertIn(b" 410 ", self.client.taken)
        self.assertIn(b'"container_lost"', self.client.taken)

    def test_a_broken_upload_is_400_before_an_answer_and_breaks_it_off_after(self) -> None:
        container = self.ask(get(method=b"POST", extra=b"Transfer-Encoding: chunked\r\n"))
        self.client.receive(b"zz\r\n")
        self.assertTrue(container.aborted)
        self.client.drain()
        self.assertIn(b" 400 ", self.client.taken)
        self.client = self.edge.client()
        container = self.ask(get(method=b"POST", extra=b"Transfer-Encoding: chunked\r\n"))
        container.receive(OK + b"Content-Length: 10\r\n\r\nhello")
        self.client.receive(b"zz\r\n")
        self.assertTrue(container.aborted)
        self.client.drain()
        self.client.drain()
        self.assertTrue(self.client.lost)
        self.assertEqual(self.edge.routing.held, set())

    def test_a_stage_only_goes_where_the_table_says(self) -> None:
        self.ask()
        (lease,) = self.edge.routing.held
        exchange = lease.holder
        for stage in Stage:
            if stage not in STEPS[Stage.ASKED]:
                self.assertRaises(errors.IllegalEvent, exchange._become, stage)  # type: ignore[attr-defined]
        self.assertIs(exchange.stage, Stage.ASKED)  # type: ignore[attr-defined]

"""The door for function calls: with a session's token a data request, else in a session made for it. No sockets."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.asking import DEATH_KNOWN_WITHIN
from sticky.edge.site import Site
from sticky.isticky import Answer
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.routing import SERVER, TOKEN
from tests.fakes.transport import FakeTransport

PATH = b"/_modal/calls"
STARTED = Answer(200, (), json.dumps({"token": TOKEN.decode()}).encode())


def call(extra: bytes = b"", body: bytes = b"frames") -> bytes:
    """A call with a proxy token."""
    return (
        b"POST /_modal/calls HTTP/1.1\r\nHost: game.example\r\nAuthorization: Bearer wk-dev.ws-0123456789abcdef\r\n"
        b"Content-Length: %d\r\n%b\r\n%b" % (len(body), extra, body)
    )


class CallTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.edge = FakeEdge(Site(name=SERVER, calls=True, half_close_timeout=None))
        self.client = self.edge.client()

    def paths(self) -> list[bytes]:
        return [request.path for request in self.edge.control.requests]

    def serve(self, client: FakeTransport) -> bytes:
        """The container answers; what it was sent."""
        container = self.edge.container()
        container.drain()
        container.receive(ANSWER)
        client.drain()
        return container.taken

    def test_with_a_sessions_token_it_is_a_data_request(self) -> None:
        self.client.receive(get(PATH, b"Content-Length: 6\r\n", b"POST") + b"frames")
        sent = self.serve(self.client)
        self.assertTrue(sent.startswith(b"POST /_modal/calls HTTP/1.1\r\n") and sent.endswith(b"frames"))
        self.assertEqual((self.client.taken, self.paths()), (ANSWER, []))

    def test_without_one_it_has_a_session_of_its_own_that_ends_with_it(self) -> None:
        waiting: Deferred[Answer] = self.edge.control.wait()
        self.client.receive(call(b"Accept: text/event-stream\r\n"))
        (asked,) = self.edge.control.requests
        self.assertEqual((asked.method, asked.path), (b"POST", b"/_modal/sessions/start"))
        self.assertIsNone(asked.header(b"accept"), "events are for people who wait")
        waiting.callback(STARTED)
        self.edge.control.answer_with = Answer(200)
        sent = self.serve(self.client)
        self.assertTrue(sent.endswith(b"frames"))
        self.assertNotIn(b"ws-0123456789abcdef", sent)
        ended = self.edge.control.requests[-1]
        self.assertEqual(self.paths(), [b"/_modal/sessions/start", b"/_modal/sessions/terminate"])
        self.assertEqual(ended.header(b"x-modal-server-session-token"), TOKEN)
        self.assertEqual(ended.header(b"x-modal-server-session-grace"), b"0")

    def test_by_name_the_session_stays(self) -> None:
        waiting = self.edge.control.wait()
        self.client.receive(call(b"x-modal-server-session-name: notebook\r\n"))
        waiting.callback(STARTED)
        self.serve(self.client)
        self.assertEqual(self.paths(), [b"/_modal/sessions/start"])

    def test_a_client_that_leaves_the_queue_leaves_it_there_too(self) -> None:
        self.edge.control.wait()
        self.client.receive(call())
        self.client.receive_fin()
        self.assertEqual(self.edge.control.cancelled, 1)
        self.assertEqual(self.edge.reactor.dials, [])

    def test_a_client_that_leaves_the_call_ends_its_session(self) -> None:
        waiting = self.edge.control.wait()
        self.client.receive(call())
        waiting.callback(STARTED)
        self.edge.control.answer_with = Answer(200)
        self.edge.container()
        self.client.receive_fin()
        self.assertEqual(self.paths()[-1], b"/_modal/sessions/terminate")
        self.assertEqual(self.edge.routing.held, set())

    def test_what_a_start_is_refused_with_is_the_answer(self) -> None:
        waiting = self.edge.control.wait()
        self.client.receive(call())
        waiting.errback(errors.SessionExpired("idle_timeout"))
        self.client.drain()
        self.assertIn(b" 410 ", self.client.taken)
        self.assertIn(b"session_expired", self.client.taken)
        self.edge.control.answer_with = errors.NoCredential()
        self.client.receive(call())
        self.client.drain()
        self.assertIn(b" 401 ", self.client.taken)

    def begun(self) -> FakeTransport:
        """A call without a session whose answer has begun; its container."""
        waiting = self.edge.control.wait()
        self.client.receive(call())
        waiting.callback(STARTED)
        self.edge.control.answer_with = Answer(200)
        container = self.edge.container()
        container.drain()
        container.receive(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n")
        self.client.drain()
        return container

    def test_an_answer_that_begins_says_whose_end_to_ask_for_should_it_break_off(self) -> None:
        self.begun()
        self.assertIn(b"\r\nx-modal-server-session-token: " + TOKEN + b"\r\n", self.client.taken)

    def test_a_session_whose_answer_breaks_off_may_end_for_its_own_reason_before_it_is_ended(self) -> None:
        self.begun().receive_fin()
        self.client.drain()
        self.assertEqual(self.edge.routing.held, set())
        self.assertEqual(self.paths(), [b"/_modal/sessions/start"])
        self.edge.reactor.advance(DEATH_KNOWN_WITHIN)
        self.assertEqual(self.paths(), [b"/_modal/sessions/start", b"/_modal/sessions/terminate"])

    def test_a_sandbox_that_dies_before_its_answer_is_told_as_the_sessions_end(self) -> None:
        self.client.receive(get(PATH, b"Content-Length: 6\r\n", b"POST") + b"frames")
        container = self.edge.container()
        container.drain()
        container.receive_fin()
        self.client.drain()
        self.assertEqual(self.client.taken, b"", "why is about to be known")
        (lease,) = self.edge.routing.held
        self.edge.routing.held.discard(lease)
        lease.holder.session_ended(EndReason.CONTAINER_LOST, "out_of_memory")
        self.client.drain()
        head, _, body = self.client.taken.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 410 "))
        self.assertEqual(json.loads(body)["detail"], "out_of_memory")

    def test_one_that_only_closes_its_connection_is_a_bad_gateway_a_little_later(self) -> None:
        self.client.receive(get(PATH, b"Content-Length: 6\r\n", b"POST") + b"frames")
        container = self.edge.container()
        container.drain()
        container.receive_fin()
        for _ in range(11):
            self.edge.reactor.advance(DEATH_KNOWN_WITHIN / 10)
        self.client.drain()
        self.assertTrue(self.client.taken.startswith(b"HTTP/1.1 502 "), self.client.taken)
        self.assertEqual(self.edge.routing.held, set())

    def test_other_methods_are_refused(self) -> None:
        self.client.receive(get(PATH))
        self.client.drain()
        self.assertIn(b" 405 ", self.client.taken)

    def test_a_server_without_sandboxes_has_no_such_call(self) -> None:
        edge = FakeEdge()
        edge.client().receive(call())
        self.assertEqual([request.path for request in edge.control.requests], [PATH])

"""Servers without sessions at the edge: who may pass, where a request is led, and what of it reaches the container."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.site import Site
from sticky.edge.straight import Straight
from sticky.isticky import NO_SESSION, ILease, Visit
from tests.edge.test_gate import ask, fields
from tests.fakes.edge import ANSWER, FakeEdge
from tests.fakes.routing import CONTAINER, SERVER, TOKEN
from tests.fakes.transport import FakeTransport

OPEN = Site(name=SERVER, sessioned=False, unauthenticated=True)
CLOSED = Site(name=SERVER, sessioned=False)
HOST = b"Host: game.localhost\r\n"
BEARER = b"Authorization: Bearer wk-dev.ws-secretsecretsecretsecret\r\n"


def request(extra: bytes = b"", target: bytes = b"/x?a=1", method: bytes = b"GET", body: bytes = b"") -> bytes:
    return b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (method, target, HOST, extra, body)


class PassTests(TestCase):
    def test_an_unauthenticated_one_asks_for_nothing(self) -> None:
        edge = FakeEdge(OPEN)
        ask(edge, request())
        self.assertEqual((edge.routing.visits, edge.control.visitors), ([Visit(SERVER)], []))

    def test_another_asks_for_a_proxy_token_and_says_what_was_wrong_with_it(self) -> None:
        edge = FakeEdge(CLOSED)
        edge.control.let_in_with = errors.NoCredential()
        lines = fields(ask(edge, request()).taken)
        self.assertEqual(lines[0], b"HTTP/1.1 401 Unauthorized")
        self.assertEqual(edge.routing.visits, [])
        self.assertEqual([(record.status, record.reason) for record in edge.records], [(401, "no_credential")])
        edge.control.let_in_with = None
        ask(edge, request(BEARER))
        self.assertEqual(edge.routing.visits, [Visit(SERVER)])
        asked = edge.control.visitors[-1]
        self.assertEqual((asked.server, asked.client, asked.sessioned), (SERVER, "192.0.2.7", False))
        self.assertIn((b"Authorization", BEARER[15:-2]), asked.headers)

    def test_a_refusal_of_the_core_is_its_answer(self) -> None:
        for refusal, status in (
            (errors.NoContainerReady(retry_after=1.0), b"503 Service Unavailable"),
            (errors.ServerBusy(retry_after=1.0), b"429 Too Many Requests"),
        ):
            edge = FakeEdge(OPEN)
            edge.routing.refusal = refusal
            lines = fields(ask(edge, request()).taken)
            self.assertEqual(lines[0], b"HTTP/1.1 " + status)
            self.assertIn(b"retry-after: 1", lines)
            self.assertNotIn(b"connection: close", lines)

    def test_an_affinity_key_has_three_names_of_which_the_first_counts(self) -> None:
        for extra, key in (
            (b"Modal-Routing-Affinity-Key: one\r\n", b"one"),
            (b"modal-session-id: two\r\n", b"two"),
            (b"MODAL-AFFINITY-ROUTING-KEY: three\r\n", b"three"),
            (b"Modal-Session-ID: two\r\nModal-Routing-Affinity-Key: one\r\n", b"one"),
            (b"Modal-Routing-Affinity-Key:\r\nModal-Session-ID: two\r\n", b"two"),
            (b"Modal-Routing-Affinity: one\r\n", b""),
        ):
            edge = FakeEdge(OPEN)
            ask(edge, request(extra))
            self.assertEqual(edge.routing.visits, [Visit(SERVER, key)])

    def test_a_session_token_means_nothing_and_its_query_is_no_redirect(self) -> None:
        edge = FakeEdge(OPEN)
        ask(edge, request(target=b"/x?modal_session_token=" + TOKEN))
        self.assertEqual((len(edge.routing.visits), edge.verifier.checked), (1, 0))


class PassingOnTests(TestCase):
    def setUp(self) -> None:
        self.edge = FakeEdge(OPEN)

    def sent(self, data: bytes) -> FakeTransport:
        client = self.edge.client()
        client.receive(data)
        return client

    def test_there_is_no_session_id_and_no_credential_but_the_keys_pass(self) -> None:
        self.sent(
            request(
                b"Modal-Authorization: Bearer " + TOKEN + b"\r\n"
                b"Cookie: a=1; __Host-modal-session-token=" + TOKEN + b"\r\n"
                b"Modal-Routing-Affinity-Key: one\r\nX-Modal-Server-Session-Id: sd-mine\r\n" + BEARER,
                target=b"/x?modal_session_token=" + TOKEN + b"&a=1",
            )
        )
        container = self.edge.container()
        container.drain()
        lines = fields(container.taken)
        self.assertEqual(lines[0], b"GET /x?a=1 HTTP/1.1")
        self.assertIn(b"Modal-Routing-Affinity-Key: one", lines)
        self.assertIn(b"Cookie: a=1", lines)
        self.assertNotIn(TOKEN, container.taken)
        self.assertNotIn(b"ws-secret", container.taken)
        self.assertNotIn(b"session-id", container.taken.lower())

    def test_an_ordinary_request_goes_straight_with_the_same_head_each_time(self) -> None:
        client = self.sent(request())
        container = self.edge.container()
        heads = []
        for _ in range(3):
            container.drain()
            heads.append(bytes(container.taken))
            container.taken = b""
            container.receive(ANSWER)
            client.drain()
            client.receive(request())
        self.assertIsInstance(self.edge.front(client).straight, Straight)
        self.assertEqual(set(heads), {heads[0]})
        self.assertNotIn(b"session-id", heads[0].lower())
        self.assertTrue(client.taken.endswith(ANSWER))
        self.assertEqual([(r.status, r.session, r.container) for r in self.edge.records], [(200, "-", CONTAINER)] * 3)

    def test_a_body_passes(self) -> None:
        client = self.sent(request(b"Content-Length: 4\r\n", method=b"POST", body=b"body"))
        container = self.edge.container()
        container.drain()
        self.assertTrue(container.taken.endswith(b"\r\n\r\nbody"))
        container.receive(ANSWER)
        client.drain()
        self.assertEqual((client.taken, len(self.edge.routing.held)), (ANSWER, 0))

    def test_a_container_that_stops_before_its_answer_is_502_as_no_session_has_ended(self) -> None:
        client = self.sent(request())
        self.edge.container()
        self.edge.routing.end_all(EndReason.CONTAINER_LOST, "killed")
        client.drain()
        self.assertTrue(client.taken.startswith(b"HTTP/1.1 502 "))
        self.assertEqual([record.reason for record in self.edge.records], ["bad_gateway"])

    def test_a_websocket_is_relayed_with_a_lease_of_its_own(self) -> None:
        relayed: list[ILease] = []

        def relay(front: IWebSocketFront, handshake: Handshake, lease: ILease) -> None:
            relayed.append(lease)

        edge = FakeEdge(OPEN, relay=relay)
        extra = (
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nModal-Session-ID: room\r\n"
        )
        ask(edge, request(extra))
        self.assertEqual([lease.session for lease in relayed], [NO_SESSION])
        self.assertEqual(edge.routing.visits, [Visit(SERVER, b"room")])

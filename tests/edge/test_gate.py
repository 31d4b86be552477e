"""Who may pass, and what the others are told: wire.md's table, without sockets."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from sticky import errors
from sticky.core.proxy_tokens import FailureLimit
from sticky.core.values import EndReason, ServerName
from sticky.edge import gate
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.site import Site
from sticky.isticky import Answer, IEventStream, ILease, ILeaseHolder
from tests.fakes.edge import ANSWER, FakeEdge, get, handshake
from tests.fakes.routing import SERVER, SESSION, TOKEN, claims
from tests.fakes.transport import HIGH, FakeTransport
from tests.strategies_frames import Frame, encode

HOST = b"Host: game.example\r\n"
FORGED = b"GET / HTTP/1.1\r\n" + HOST + b"Modal-Authorization: Bearer forged\r\n\r\n"
COOKIE = b"Cookie: __Host-modal-session-token=" + TOKEN + b"\r\n"


def ask(edge: FakeEdge, data: bytes) -> FakeTransport:
    """A client sends this and takes what it gets."""
    client = edge.client()
    client.receive(data)
    client.drain()
    return client


def fields(answer: bytes) -> list[bytes]:
    """The lines of an answer's head."""
    return answer.partition(b"\r\n\r\n")[0].split(b"\r\n")


class CredentialTests(TestCase):
    def refused(self, data: bytes, status: int, code: str, edge: FakeEdge | None = None) -> list[bytes]:
        edge = edge or FakeEdge()
        client = ask(edge, data)
        lines = fields(client.taken)
        self.assertEqual(lines[0].split(b" ")[1], b"%d" % status)
        self.assertIn(b"cache-control: no-store", lines)
        self.assertEqual(json.loads(client.taken.partition(b"\r\n\r\n")[2])["error"], code)
        self.assertEqual(edge.routing.granted, 0)
        self.assertEqual([(record.status, record.reason) for record in edge.records], [(status, code)])
        self.assertNotIn(TOKEN, client.taken)
        return lines

    def test_no_credential_is_401_and_the_connection_stays(self) -> None:
        lines = self.refused(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", 401, "no_credential")
        self.assertIn(b"www-authenticate: Bearer", lines)
        self.assertNotIn(b"connection: close", lines)

    def test_whoever_shows_another_token_is_told_which_is_needed(self) -> None:
        for field, said in (
            (b"", "This request needs a session token"),
            (b"Authorization: Basic abc\r\n", "This request needs a session token"),
            (b"Authorization: Bearer something\r\n", "This request needs a session token"),
            (b"Authorization: bearer  wk-dev.ws-secret\r\n", "This is a proxy token, which starts sessions"),
            (b"Authorization: Bearer v4.public.abc\r\n", "send the session token as Modal-Authorization: Bearer TOKEN"),
        ):
            client = ask(FakeEdge(), b"GET / HTTP/1.1\r\n" + HOST + field + b"\r\n")
            answer = json.loads(client.taken.partition(b"\r\n\r\n")[2])
            self.assertEqual(answer["error"], "no_credential")
            self.assertIn(said, answer["message"])
            self.assertNotIn(b"secret", client.taken)

    def test_what_is_remembered_of_hosts_and_of_who_failed_is_bounded(self) -> None:
        self.patch(gate, "MAX_HOSTS", 3)
        edge = FakeEdge()
        edge.context.failures = FailureLimit()
        for number in range(10):
            client = edge.client(f"192.0.2.{number}")
            client.receive(FORGED.replace(b"game", b"game%d" % number))
        self.assertLessEqual(len(edge.context.gate._hosts), 3)
        self.assertLessEqual(len(edge.context.gate._suspects), 3)

    def test_a_refused_request_with_a_body_closes(self) -> None:
        lines = self.refused(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n", 401, "no_credential")
        self.assertIn(b"connection: close", lines)

    def test_a_forged_token_is_401(self) -> None:
        forged = b"GET / HTTP/1.1\r\n" + HOST + b"Modal-Authorization: Bearer forged\r\n\r\n"
        self.refused(forged, 401, "bad_credential")

    def test_the_token_of_another_server_is_403(self) -> None:
        edge = FakeEdge()
        edge.verifier.known[TOKEN] = claims(server=ServerName("other"))
        self.refused(get(), 403, "wrong_server", edge)

    def test_an_unknown_host_is_404(self) -> None:
        edge = FakeEdge(Site(name=SERVER, hosts=frozenset({"other.example"})))
        self.refused(get(), 404, "unknown_host", edge)

    def test_a_page_is_shown_where_html_is_preferred(self) -> None:
        accept = b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"
        client = ask(FakeEdge(), b"GET / HTTP/1.1\r\n" + HOST + accept + b"\r\n")
        self.assertIn(b"content-type: text/html; charset=utf-8", fields(client.taken))

    def test_a_foreign_page_may_not_post_with_the_cookie_but_may_be_allowed(self) -> None:
        foreign = b"POST / HTTP/1.1\r\n" + HOST + COOKIE + b"Origin: https://evil.example\r\nContent-Length: 0\r\n\r\n"
        self.refused(foreign, 403, "bad_origin")
        edge = FakeEdge(Site(name=SERVER, allowed_origins=frozenset({"https://evil.example"})))
        ask(edge, foreign)
        self.assertEqual(edge.routing.granted, 1)

    def test_a_preflight_of_an_allowed_origin_is_answered_by_sticky(self) -> None:
        edge = FakeEdge(Site(name=SERVER, allowed_origins=frozenset({"https://shop.example"})))
        preflight = b"Origin: https://shop.example\r\nAccess-Control-Request-Method: PUT\r\n"
        client = ask(edge, b"OPTIONS /x HTTP/1.1\r\n" + HOST + preflight + b"\r\n")
        self.assertIn(b"access-control-allow-origin: https://shop.example", fields(client.taken))
        self.assertEqual(fields(client.taken)[0], b"HTTP/1.1 204 No Content")
        self.assertEqual(edge.routing.granted, 0)

    def test_a_preflight_of_a_control_call_is_answered_in_the_same_way(self) -> None:
        edge = FakeEdge(Site(name=SERVER, allowed_origins=frozenset({"https://shop.example"})))
        asking = b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: modal-key,modal-secret\r\n"
        line = b"OPTIONS /_modal/sessions/start HTTP/1.1\r\n"
        told = fields(ask(edge, line + HOST + b"Origin: https://shop.example\r\n" + asking + b"\r\n").taken)
        for field in (
            b"access-control-allow-origin: https://shop.example",
            b"access-control-allow-credentials: true",
            b"access-control-allow-methods: POST",
            b"access-control-allow-headers: modal-key,modal-secret",
            b"vary: Origin",
        ):
            self.assertIn(field, told)
        self.assertEqual(edge.control.requests, [])
        ask(edge, line + HOST + b"Origin: https://evil.example\r\n" + asking + b"\r\n")
        self.assertEqual(len(edge.control.requests), 1)

    def test_answers_to_pages_of_an_allowed_origin_can_be_read_whatever_they_are(self) -> None:
        site = Site(name=SERVER, allowed_origins=frozenset({"https://shop.example"}))
        page = HOST + b"Origin: https://shop.example\r\n\r\n"
        readable = b"access-control-allow-origin: https://shop.example"
        for given in (Answer(200, (), b"{}"), errors.ShuttingDown(), Stream(), Deferred[Answer]()):
            edge = FakeEdge(site)
            edge.control.answer_with = given
            client = ask(edge, b"GET /_modal/sessions HTTP/1.1\r\n" + page)
            if isinstance(given, Deferred):
                given.errback(errors.NotFound())
                client.drain()
            self.assertIn(readable, fields(client.taken))
            self.assertIn(b"access-control-expose-headers: retry-after", fields(client.taken))
        other = ask(FakeEdge(site), b"GET /_modal/sessions HTTP/1.1\r\n" + page.replace(b"shop", b"evil"))
        self.assertNotIn(b"access-control", other.taken)

    def test_a_good_token_passes_from_an_address_of_many_forged_ones_and_those_get_429(self) -> None:
        edge = FakeEdge()
        edge.context.failures = FailureLimit(burst=5, interval=60.0)
        for number in range(40):
            client = ask(edge, FORGED)
            self.assertIn(b" 401 " if number < 5 else b" 429 ", client.taken)
        self.assertNotIn(TOKEN, edge.verifier.remembered)
        ask(edge, get())
        self.assertEqual(edge.routing.granted, 1)

    def test_what_forged_tokens_cost_is_bounded_and_remembered_tokens_pass_all_the_same(self) -> None:
        edge = FakeEdge()
        edge.context.failures = FailureLimit(burst=1, interval=60.0, spare=3)
        edge.verifier.remembered.add(TOKEN)
        for _ in range(10):
            ask(edge, FORGED)
        self.assertEqual(edge.verifier.checked, 1 + 3)
        ask(edge, get())
        self.assertEqual(edge.routing.granted, 1)


class RedirectTests(TestCase):
    def test_a_navigation_with_a_query_token_is_307_with_the_cookie(self) -> None:
        edge = FakeEdge()
        client = ask(edge, b"GET /a?x=1&modal_session_token=" + TOKEN + b"&y HTTP/1.1\r\n" + HOST + b"\r\n")
        lines = fields(client.taken)
        self.assertEqual(lines[0], b"HTTP/1.1 307 Temporary Redirect")
        self.assertIn(b"location: http://game.example/a?x=1&y", lines)
        self.assertEqual(lines.count(b"cache-control: no-store"), 1)
        self.assertTrue(any(line.startswith(b"set-cookie: __Host-modal-session-token=") for line in lines))
        self.assertEqual(edge.routing.granted, 0)

    def test_without_a_host_there_is_no_redirect_and_the_token_counts_as_it_is(self) -> None:
        line = b"GET /a?modal_session_token=" + TOKEN + b"&b=1 HTTP/1.0\r\n\r\n"
        edge = FakeEdge()
        ask(edge, line)
        self.assertEqual(fields(edge.container().drain())[0], b"GET /a?b=1 HTTP/1.0")
        client = ask(FakeEdge(Site(name=SERVER, url="https://game.example")), line)
        self.assertIn(b"location: https://game.example/a?b=1", fields(client.taken))

    def test_a_bad_query_token_sets_no_cookie(self) -> None:
        client = ask(FakeEdge(), b"GET /a?modal_session_token=bad HTTP/1.1\r\n" + HOST + b"\r\n")
        self.assertIn(b" 401 ", client.taken)
        self.assertNotIn(b"set-cookie", client.taken)

    def test_a_fetch_with_a_query_token_goes_on_without_it(self) -> None:
        edge = FakeEdge()
        ask(
            edge,
            b"GET /a?modal_session_token=" + TOKEN + b" HTTP/1.1\r\n" + HOST + b"Sec-Fetch-Mode: cors\r\n\r\n",
        )
        container = edge.container()
        container.drain()
        self.assertTrue(container.taken.startswith(b"GET /a HTTP/1.1\r\n"))
        self.assertNotIn(TOKEN, container.taken)


class EndedTests(TestCase):
    def ended(self, data: bytes, site: Site | None = None) -> bytes:
        edge = FakeEdge(site)
        edge.routing.refusal = errors.SessionEnded("idle_timeout")
        return ask(edge, data).taken

    def test_410_names_the_reason(self) -> None:
        answer = self.ended(get())
        self.assertEqual(fields(answer)[0], b"HTTP/1.1 410 Gone")
        self.assertIn(b'"idle_timeout"', answer)

    def test_ended_status_can_be_401(self) -> None:
        self.assertIn(b" 401 ", self.ended(get(), Site(name=SERVER, ended_status=401)))

    def test_the_cookie_is_cleared_only_on_a_navigation_that_carried_it(self) -> None:
        navigation = b"GET / HTTP/1.1\r\n" + HOST + COOKIE + b"Sec-Fetch-Mode: navigate\r\n\r\n"
        self.assertIn(b"Max-Age=0", self.ended(navigation))
        self.assertNotIn(b"set-cookie", self.ended(navigation.replace(b"navigate", b"cors")))
        self.assertNotIn(b"set-cookie", self.ended(get(extra=COOKIE)))

    def test_a_browsers_handshake_is_accepted_and_closed_with_the_reason(self) -> None:
        answer = self.ended(handshake(b"Origin: http://game.example\r\nSec-WebSocket-Protocol: chat, x\r\n"))
        head, _, frame = answer.partition(b"\r\n\r\n")
        self.assertEqual(head.split(b"\r\n")[0], b"HTTP/1.1 101 Switching Protocols")
        self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", head)
        self.assertIn(b"Sec-WebSocket-Protocol: chat", head.split(b"\r\n"))
        self.assertEqual(frame, b"\x88\x0e" + (4410).to_bytes(2, "big") + b"idle_timeout")

    def told(self) -> tuple[FakeEdge, FakeTransport]:
        """A browser that has got the Close."""
        edge = FakeEdge()
        edge.routing.refusal = errors.SessionEnded(EndReason.IDLE_TIMEOUT.value)
        client = ask(edge, handshake(b"Origin: http://game.example\r\n"))
        client.drain()
        self.assertFalse(client.disconnecting or client.write_shut or client.lost)
        return edge, client

    def test_its_connection_is_closed_when_its_own_close_has_come_and_not_before(self) -> None:
        close = encode(Frame(8, (4410).to_bytes(2, "big"), masked=True))
        before = encode(Frame(1, b"x" * 300, masked=True)) + encode(Frame(10, b"pong", masked=True))
        for cut in range(len(before), len(before) + len(close)):
            _, client = self.told()
            data = before + close
            client.receive(data[:cut])
            self.assertFalse(client.disconnecting)
            client.receive(data[cut:])
            self.assertTrue(client.disconnecting)
            client.drain()
            self.assertTrue(client.lost)

    def test_one_that_comes_while_ours_is_on_its_way_counts(self) -> None:
        edge = FakeEdge()
        edge.routing.refusal = errors.SessionEnded(EndReason.IDLE_TIMEOUT.value)
        client = edge.client()
        client.receive(handshake(b"Origin: http://game.example\r\n"))
        client.receive(encode(Frame(8, b"", masked=True)))
        client.drain()
        client.drain()
        self.assertTrue(client.lost)

    def test_a_browser_that_never_answers_or_leaves_is_let_go(self) -> None:
        edge, client = self.told()
        client.receive_fin()
        self.assertTrue(client.disconnecting)
        edge, client = self.told()
        client.receive(bytes(100_000))
        for _ in range(19):
            edge.reactor.advance(0.5)
        self.assertFalse(client.aborted)
        for _ in range(2):
            edge.reactor.advance(0.5)
        self.assertTrue(client.aborted)
        edge.reactor.advance(0)
        self.assertEqual(edge.context.doors.inside, 0)

    def test_other_handshakes_are_410(self) -> None:
        self.assertIn(b" 410 ", self.ended(handshake()))
        origin = b"Origin: http://game.example\r\n"
        self.assertIn(b" 410 ", self.ended(handshake(origin), Site(name=SERVER, websocket_refusal="http")))


class ControlTests(TestCase):
    START = b"POST /_modal/sessions/start HTTP/1.1\r\n" + HOST

    def test_a_control_call_is_not_forwarded_and_knows_its_token(self) -> None:
        edge = FakeEdge()
        client = ask(edge, b"GET /_modal/sessions/status?a=1 HTTP/1.1\r\n" + HOST + COOKIE + b"\r\n")
        self.assertTrue(client.taken.endswith(b"{}"))
        (request,) = edge.control.requests
        self.assertEqual((request.path, request.query), (b"/_modal/sessions/status", b"a=1"))
        self.assertEqual((request.session_token, request.client), (TOKEN, "192.0.2.7"))
        self.assertEqual(edge.routing.granted, 0)

    def test_its_body_stays_unread_and_the_connection_closes(self) -> None:
        edge = FakeEdge()
        client = ask(edge, self.START + b"Content-Length: 100\r\n\r\n{")
        self.assertIn(b"connection: close", fields(client.taken))

    def test_a_late_answer_comes_and_a_refusal_too(self) -> None:
        edge = FakeEdge()
        waiting = edge.control.wait()
        client = ask(edge, self.START + b"\r\n")
        self.assertEqual(client.taken, b"")
        waiting.callback(Answer(200, (), b"late"))
        client.drain()
        self.assertTrue(client.taken.endswith(b"late"))
        waiting = edge.control.wait()
        client.receive(self.START + b"\r\n")
        waiting.errback(errors.QueueFull(retry_after=2.5))
        client.drain()
        self.assertIn(b"retry-after: 3", fields(client.taken.partition(b"late")[2]))

    def test_an_http_1_0_client_has_events_without_chunks_and_their_end_by_the_close(self) -> None:
        stream = Stream()
        edge = FakeEdge()
        edge.control.answer_with = stream
        client = ask(edge, self.START.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n\r\n")
        stream.write(b"event: queued\n\n")
        stream.finish()
        for _ in range(3):
            client.drain()
        self.assertIn(b"connection: close", fields(client.taken))
        self.assertTrue(client.taken.endswith(b"\r\n\r\nevent: queued\n\n") and client.lost)

    def test_after_events_to_a_client_whose_body_is_still_coming_the_connection_closes(self) -> None:
        stream = Stream()
        edge = FakeEdge()
        edge.control.answer_with = stream
        client = ask(edge, self.START + b"Content-Length: 9\r\n\r\n")
        self.assertIn(b"connection: close", fields(client.taken))

    def test_a_late_answer_that_is_none_ends_the_connection(self) -> None:
        edge = FakeEdge()
        waiting = edge.control.wait()
        client = ask(edge, self.START + b"\r\n")
        waiting.callback(None)  # type: ignore[arg-type]
        edge.reactor.advance(0)
        self.assertTrue(client.lost)
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)

    def test_a_client_that_takes_no_events_is_given_up_before_it_costs_much(self) -> None:
        stream = Stream()
        edge = FakeEdge()
        edge.control.answer_with = stream
        client = ask(edge, self.START + b"\r\n")
        event, written = b"event: status\ndata: " + b"x" * 1000 + b"\n\n", 0
        while not stream.stopped and written < 1_000_000:
            stream.write(event)
            written += len(event)
            edge.reactor.advance(0)
        self.assertEqual(stream.stopped, 1)
        self.assertLess(client.most, HIGH + 2 * len(event))
        self.assertTrue(client.aborted)

    def test_one_that_takes_them_gets_any_number(self) -> None:
        stream = Stream()
        edge = FakeEdge()
        edge.control.answer_with = stream
        client = ask(edge, self.START + b"\r\n")
        for _ in range(300):
            stream.write(b"x" * 1000)
            edge.reactor.advance(0)
            client.drain()
        stream.finish()
        client.drain()
        self.assertEqual((stream.stopped, client.taken.count(b"x" * 1000)), (0, 300))
        self.assertTrue(client.taken.endswith(b"0\r\n\r\n"))

    def test_events_pass_and_the_stream_stops_when_the_client_leaves(self) -> None:
        stream = Stream()
        edge = FakeEdge()
        edge.control.answer_with = stream
        client = ask(edge, self.START + b"\r\n")
        stream.write(b"event: queued\n\n")
        client.drain()
        self.assertTrue(client.taken.endswith(b"f\r\nevent: queued\n\n\r\n"))
        self.assertIn(b"content-type: text/event-stream", fields(client.taken))
        self.assertNotIn(b"connection: close", fields(client.taken))
        stream.finish()
        client.drain()
        self.assertTrue(client.taken.endswith(b"0\r\n\r\n"))
        self.assertEqual(stream.stopped, 0)
        client.receive(self.START + b"\r\n")
        client.receive_fin()
        self.assertEqual(stream.stopped, 1)
        stream.write(b"too late")


@implementer(IEventStream)
class Stream:
    """Hands the test what it was given."""

    stopped = 0

    def start(self, write: Any, finish: Any) -> None:
        self.write = write
        self.finish = finish

    def stop(self) -> None:
        self.stopped += 1


@implementer(ILeaseHolder)
class HandoverTests(TestCase):
    def setUp(self) -> None:
        self.calls: list[tuple[IWebSocketFront, Handshake, ILease]] = []
        self.gone = 0
        self.edge = FakeEdge(relay=self.relay)
        self.client = self.edge.client()
        self.client.receive(handshake(b"Sec-WebSocket-Protocol: modal-session, chat\r\n"))
        ((self.front, self.handshake, self.lease),) = self.calls

    def relay(self, front: IWebSocketFront, shake: Handshake, lease: ILease) -> None:
        self.calls.append((front, shake, lease))
        front.on_gone(self.left)
        lease.transfer(self)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        self.front.refuse(errors.SessionEnded(reason.value, detail))

    def left(self) -> None:
        self.gone += 1
        self.lease.release()

    def test_the_handshake_is_stripped_and_names_the_session(self) -> None:
        self.assertEqual((self.handshake.offers, self.handshake.echo), ((b"chat",), b"modal-session"))
        self.assertNotIn(TOKEN, self.handshake.container_head)
        self.assertIn(b"x-modal-server-session-id: " + SESSION.encode(), self.handshake.container_head)

    def test_take_over_gives_early_bytes_and_the_lease_ends_with_the_relay(self) -> None:
        self.client.receive(b"early")
        self.assertEqual(self.front.take_over(), b"early")
        self.assertEqual((len(self.edge.routing.held), self.edge.context.doors.inside), (1, 1))
        self.lease.release()
        self.assertEqual((len(self.edge.routing.held), self.edge.context.doors.inside), (0, 0))
        self.assertRaises(errors.IllegalEvent, self.front.take_over)

    def test_a_websocket_is_logged_once_when_it_is_over(self) -> None:
        self.assertRaises(errors.IllegalEvent, self.front.over, "closed_1000", 0, 0)
        self.front.take_over()
        self.edge.reactor.advance(7.0)
        self.assertEqual(self.edge.records, [])
        self.front.over("closed_1000", 12, 3456)
        (record,) = self.edge.records
        self.assertEqual((record.status, record.reason), (101, "closed_1000"))
        self.assertEqual((record.bytes_in, record.bytes_out, record.session), (12, 3456, SESSION))
        self.assertEqual(record.total, 7.0)
        self.assertRaises(errors.IllegalEvent, self.front.over, "closed_1000", 12, 3456)

    def test_early_bytes_end_a_client_that_floods(self) -> None:
        self.client.receive(b"x" * 65_537)
        self.assertEqual(self.gone, 1)
        self.assertTrue(self.client.aborted)

    def test_refuse_answers_as_http(self) -> None:
        self.front.refuse(errors.ContainerUnavailable())
        self.client.drain()
        self.assertIn(b" 503 ", self.client.taken)
        self.assertEqual(self.edge.routing.held, set())
        self.assertFalse(self.client.lost)

    def test_pass_on_streams_the_containers_own_answer_and_pools_nothing(self) -> None:
        transport = FakeTransport(self.edge.reactor)
        self.front.pass_on(transport, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno")
        self.client.drain()
        transport.receive(b"pe")
        self.client.drain()
        self.assertEqual(self.client.taken, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope")
        transport.drain()
        self.assertTrue(transport.lost)
        self.assertEqual(self.edge.routing.held, set())
        self.client.receive(get())
        self.edge.container().receive(ANSWER)
        self.client.drain()
        self.assertTrue(self.client.taken.endswith(ANSWER))

    def test_a_fin_after_that_is_a_half_close_as_with_any_answer(self) -> None:
        transport = FakeTransport(self.edge.reactor)
        self.front.pass_on(transport, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno")
        self.client.receive_fin()
        transport.receive(b"pe")
        self.client.drain()
        self.assertTrue(self.client.taken.endswith(b"nope"))

    def test_a_client_that_leaves_is_told_to_the_relay_once_and_counted_once(self) -> None:
        self.client.receive_fin()
        self.edge.reactor.advance(0)
        self.assertEqual(self.gone, 1)
        self.assertEqual((len(self.edge.routing.held), self.edge.context.doors.inside), (0, 0))
        self.assertRaises(errors.IllegalEvent, self.front.refuse, errors.BadGateway())

    def test_after_the_relay_gave_up_the_front_hears_of_the_sessions_end_and_counts_the_client_alone(self) -> None:
        transport = FakeTransport(self.edge.reactor)
        self.front.pass_on(transport, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno")
        self.edge.routing.end_all(EndReason.TERMINATED)
        self.lease.release()  # late, and no longer the relay's
        self.assertEqual(self.edge.context.doors.inside, 1)
        self.assertTrue(transport.aborted)
        self.client.drain()
        self.client.drain()
        self.assertTrue(self.client.lost)
        self.assertEqual(self.edge.context.doors.inside, 0)

    def test_a_session_that_ends_while_the_relay_dials_is_410(self) -> None:
        self.edge.routing.end_all(EndReason.TERMINATED)
        self.client.drain()
        self.assertIn(b" 410 ", self.client.taken)

    def test_without_a_relay_handshakes_are_503(self) -> None:
        self.assertIn(b" 503 ", ask(FakeEdge(), handshake()).taken)

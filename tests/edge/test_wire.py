"""Names from the brand, and both heads that go on: what is stripped, what stays byte for byte, what is added."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core.values import EndReason
from sticky.edge.forwarding import Peer, TrustedProxies
from sticky.edge.grammar import HeadLimits
from sticky.edge.parsing import RequestHead, parse_request, parse_response
from sticky.edge.wire import (
    Names,
    client_head,
    close_code,
    container_head,
    strip_query_token,
    trailer_section,
)

NAMES = Names()
PEER = Peer("192.0.2.1", True, TrustedProxies())
FACTS = (
    b"x-modal-server-session-id: sd-1\r\n"
    b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example\r\n\r\n"
)


def request(fields: bytes = b"", line: bytes = b"GET /x HTTP/1.1", host: bytes = b"Host: a.example\r\n") -> RequestHead:
    return parse_request(line + b"\r\n" + host + fields + b"\r\n", HeadLimits())


class NamesTests(TestCase):
    def test_every_name_has_the_brand_and_nothing_else(self) -> None:
        self.assertEqual(NAMES.cookie, b"__Host-modal-session-token")
        self.assertEqual(NAMES.query, b"modal_session_token")
        self.assertEqual(NAMES.session_id, b"x-modal-server-session-id")
        self.assertEqual(NAMES.idle_timeout, b"x-modal-server-session-idle-timeout")
        self.assertEqual(NAMES.control, b"/_modal/")
        self.assertEqual(NAMES.affinity[0], b"modal-routing-affinity-key")
        self.assertEqual(NAMES.subprotocol_token, b"modal-session-token.")
        other = Names("sticky")
        self.assertEqual(other.authorization, b"sticky-authorization")
        self.assertNotIn("modal", repr(other))
        self.assertNotIn(b"modal", other.stripped.pattern + other.own_cookie.pattern + other.credentials.pattern)
        self.assertEqual(Names("sticky"), other)

    def test_a_brand_is_one_plain_word(self) -> None:
        for brand in ("", "Modal", "a-b", "a b", "a\r\n"):
            self.assertRaises(ValueError, Names, brand)


class ContainerHeadTests(TestCase):
    def head(self, fields: bytes, line: bytes = b"GET /x HTTP/1.1") -> bytes:
        """What is between the request line and what is added."""
        sent = container_head(request(fields, line), NAMES, PEER, b"sd-1")
        self.assertTrue(sent.endswith(b"\r\n" + FACTS), sent)
        return sent.removesuffix(FACTS).partition(b"\r\n")[2].removeprefix(b"Host: a.example\r\n")

    def test_everything_ordinary_passes_byte_for_byte(self) -> None:
        fields = b"accept: a\r\nX-B:\t2 \r\nACCEPT: b\r\nCookie: a=1;  b=2\r\nAuthorization: Bearer abc\r\nContent-Length: 3\r\n"
        self.assertEqual(self.head(fields), fields)

    def test_connection_cannot_take_the_length_away_in_any_spelling(self) -> None:
        for name in (b"Content-Length", b"content_length", b"Content_Length", b"CONTENT-LENGTH"):
            fields = b"Connection: " + name + b"\r\nContent-Length: 3\r\nX: 1\r\n"
            self.assertEqual(self.head(fields, b"POST /x HTTP/1.1"), b"Content-Length: 3\r\nX: 1\r\n", name)

    def test_an_answer_cannot_lose_its_length_by_connection_either(self) -> None:
        for name in (b"Content-Length", b"content_length"):
            answer = b"HTTP/1.1 200 OK\r\nConnection: " + name + b"\r\nContent-Length: 2\r\n\r\n"
            sent = client_head(parse_response(answer, b"GET"), request(b""), keep_alive=True)
            self.assertIn(b"\r\nContent-Length: 2\r\n", sent, name)

    def test_what_is_stripped(self) -> None:
        for line in (
            *(b"Modal-Authorization: Bearer t", b"modal_authorization: t", b"Modal_Key: wk-1", b"MODAL-SECRET: ws-1"),
            *(b"X-Modal-Server-Anything: 1", b"x_modal_server_session_id: 1", b"Authorization: Bearer wk-1.ws-2"),
            *(b"authorization:bearer  wk-1.ws-2", b"X-Forwarded-For: 1", b"X_Forwarded_Port: 1", b"Forwarded: for=1"),
            *(
                b"Keep-Alive: 1",
                b"Proxy-Connection: 1",
                b"Upgrade: h2c",
                b"Content_Length: 9",
                b"Transfer_Encoding: chunked",
            ),
            *(b"Connection: close", b"Cookie: __Host-modal-session-token=t", b"cookie:modal-session-token=t; "),
        ):
            self.assertEqual(self.head(b"A: 1\r\n" + line + b"\r\nB: 2\r\n"), b"A: 1\r\nB: 2\r\n", line)

    def test_what_only_looks_like_ours_passes(self) -> None:
        for line in (
            *(b"Modal-Routing-Affinity-Key: k", b"Modal-Keys: 1", b"X-Modal-Servers: 1", b"Authorization: Bearer wk-1"),
            *(b"X-Forwarded: 1", b"Cookie: x__Host-modal-session-token=1", b"Cookie: __Host-modal-session-tokens=1"),
            *(b"Cookie: a=modal-session-token", b"X-A: cookie: modal-session-token=1"),
        ):
            self.assertEqual(self.head(line + b"\r\n"), line + b"\r\n")

    def test_only_our_cookie_is_cut(self) -> None:
        ours = b"__Host-modal-session-token=t"
        for sent, kept in (
            (ours + b"; a=1", b"a=1"),
            (b"a=1; " + ours, b"a=1"),
            (b"a=1; " + ours + b"; b=2", b"a=1; b=2"),
            (b"a=1;" + ours + b";b=2;", b"a=1;b=2;"),
            (ours + b";  a=1; " + ours + b"; " + ours, b"a=1"),
            (b';a="x y"; ' + ours + b"; ;b", b';a="x y"; ;b'),
            (b"a=1; modal-session-token=t; b", b"a=1; b"),
            (b"a=1; __Host-modal-session-token = t; b", b"a=1; b"),
        ):
            self.assertEqual(self.head(b"Cookie: " + sent + b"\r\n"), b"Cookie: " + kept + b"\r\n", sent)

    def test_each_cookie_line_is_cut_on_its_own(self) -> None:
        fields = b"Cookie: __Host-modal-session-token=t\r\nCookie: b=1\r\nCOOKIE: c=1; __Host-modal-session-token=t\r\n"
        self.assertEqual(self.head(fields), b"Cookie: b=1\r\nCOOKIE: c=1\r\n")

    def test_fields_named_by_connection_go_but_for_what_all_need(self) -> None:
        fields = b"Connection: x-a, Host, Content-Length, X-Forwarded-For\r\nX-A: 1\r\nx_a: 1\r\nContent-Length: 5\r\n"
        self.assertEqual(self.head(fields), b"Content-Length: 5\r\n")

    def test_framing_is_stated_once_as_parsed(self) -> None:
        self.assertEqual(self.framing(b"Transfer-encoding:  CHUNKED \r\n"), [b"Transfer-Encoding: chunked"])
        self.assertEqual(self.framing(b"Content-Length: 0\r\n"), [b"Content-Length: 0"])

    def framing(self, fields: bytes) -> list[bytes]:
        lines = container_head(request(fields), NAMES, PEER, None).split(b"\r\n")
        return [line for line in lines if b"ength" in line or b"oding" in line]

    def test_trailers_are_wanted_where_the_client_wants_them(self) -> None:
        sent = container_head(request(b"TE: gzip;q=0.5, trailers\r\nConnection: TE\r\n"), NAMES, PEER, None)
        self.assertIn(b"\r\nConnection: TE\r\nTE: trailers\r\n", sent)

    def test_a_handshake_keeps_its_upgrade(self) -> None:
        fields = (
            b"Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: modal-session, chat ,modal-session-token.t\r\n"
            b"Sec-WebSocket-Protocol: modal-session-token.t\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
        )
        sent = container_head(request(fields), NAMES, PEER, b"sd-1")
        self.assertEqual(sent.count(b"Upgrade"), 2)
        self.assertIn(b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", sent)
        self.assertIn(b"\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n", sent)
        self.assertNotIn(b"modal-session-token", sent)

    def test_the_query_token_goes_from_target_and_referrer(self) -> None:
        head = request(
            b"Referer: https://a.example/p?a=1&modal_session_token=t\r\n",
            b"GET /x?modal_session_token=t&b=%20 HTTP/1.1",
        )
        sent = container_head(head, NAMES, PEER, b"sd-1")
        self.assertTrue(sent.startswith(b"GET /x?b=%20 HTTP/1.1\r\n"))
        self.assertIn(b"\r\nReferer: https://a.example/p?a=1\r\n", sent)

    def test_http_1_0(self) -> None:
        hostless = container_head(request(b"Expect: 100-continue\r\n", b"GET /x HTTP/1.0", b""), NAMES, PEER, None)
        self.assertEqual(
            hostless,
            b"GET /x HTTP/1.0\r\nConnection: close\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n",
        )
        absolute = container_head(request(b"", b"GET http://b.example/x HTTP/1.0", b""), NAMES, PEER, None)
        self.assertTrue(absolute.startswith(b"GET /x HTTP/1.1\r\nHost: b.example\r\n"))


class QueryTests(TestCase):
    def test_only_the_token_goes_and_the_rest_stays_byte_for_byte(self) -> None:
        for target, kept in (
            (b"/?modal_session_token=t", b"/"),
            (b"/?modal_session_token", b"/"),
            (b"/?a=1&modal_session_token=t&&b=%zz;c=+", b"/?a=1&&b=%zz;c=+"),
            (b"/?modal_session_token=1&a&modal_session_token=2", b"/?a"),
            (b"/?&modal_session_token=1&a", b"/?&a"),
            (b"/?modal%5Fsession%5ftoken=1&a", b"/?a"),
            (
                b"/?xmodal_session_token=1&modal_session_tokens=2&%a",
                b"/?xmodal_session_token=1&modal_session_tokens=2&%a",
            ),
            (b"/modal_session_token=1?", b"/modal_session_token=1?"),
            (b"/?a=?modal_session_token=1", b"/?a=?modal_session_token=1"),
        ):
            self.assertEqual(strip_query_token(target, NAMES), kept)


class ClientHeadTests(TestCase):
    def answer(self, head: bytes, *, keep_alive: bool = True, minor: int = 1, method: bytes = b"GET") -> bytes:
        asked = request(line=method + b" / HTTP/1.%d" % minor)
        return client_head(parse_response(head, method), asked, keep_alive=keep_alive)

    def test_a_head_without_anything_hop_by_hop_passes_untouched(self) -> None:
        head = b"HTTP/1.1 200 Fine\r\nset-cookie: a\r\nSet-Cookie: b\r\nX:\t1 \r\nContent-Length: 3\r\n\r\n"
        self.assertEqual(self.answer(head), head)
        self.assertEqual(self.answer(head, keep_alive=False), head[:-2] + b"Connection: close\r\n\r\n")
        self.assertEqual(self.answer(head, minor=0), head[:-2] + b"Connection: keep-alive\r\n\r\n")

    def test_what_concerns_the_containers_connection_is_dropped(self) -> None:
        head = b"HTTP/1.0 200\r\nConnection: close, X-A, Content-Length\r\nX-A: 1\r\nKeep-Alive: 5\r\nContent-Length: 3\r\n\r\n"
        self.assertEqual(self.answer(head), b"HTTP/1.1 200 \r\nContent-Length: 3\r\n\r\n")

    def test_framing_for_each_version(self) -> None:
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        until_close = b"HTTP/1.1 200 OK\r\n\r\n"
        self.assertEqual(self.answer(until_close), chunked)
        self.assertEqual(
            self.answer(chunked, minor=0, keep_alive=False), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        )

    def test_answers_without_a_body_keep_only_the_length_that_means_something(self) -> None:
        for status, method, kept in ((b"204", b"GET", False), (b"304", b"GET", True), (b"200", b"HEAD", True)):
            answer = self.answer(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 5\r\n\r\n", method=method)
            self.assertEqual(b"Content-Length" in answer, kept)
        answer = self.answer(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n", method=b"HEAD")
        self.assertEqual(answer, b"HTTP/1.1 200 X\r\n\r\n")

    def test_an_informational_head_says_nothing_of_the_connection(self) -> None:
        head = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        self.assertEqual(self.answer(head, keep_alive=False), head)


class TrailerTests(TestCase):
    def test_only_harmless_trailers_pass(self) -> None:
        trailers = [(b"X-Sum", b"1"), (b"x-sum", b"2"), (b"grpc-status", b"0")]
        bad = [
            *(b"Content-Length", b"Transfer_Encoding", b"host", b"Modal-Key", b"modal_secret", b"Modal-Authorization"),
            *(b"X_Modal-Server-Session-Id", b"Cookie", b"Authorization", b"X-Forwarded-For", b"Trailer", b"x-hidden"),
        ]
        section = trailer_section([*trailers, *((name, b"evil") for name in bad)], NAMES, (b"x-hidden",))
        self.assertEqual(section, b"X-Sum: 1\r\nx-sum: 2\r\ngrpc-status: 0\r\n\r\n")
        self.assertEqual(trailer_section([], NAMES), b"\r\n")


class CloseCodeTests(TestCase):
    def test_every_reason_has_the_code_of_the_table(self) -> None:
        codes = {reason.value: close_code(reason) for reason in EndReason}
        self.assertEqual(
            codes,
            {
                "idle_timeout": 4410,
                "terminated": 4410,
                "container_lost": 1011,
                "container_max_age": 4408,
                "deployment_ended": 1012,
                "server_stopped": 1001,
                "ended": 4410,
            },
        )

"""Where a session token is found, which one decides, and the redirect that turns one into a cookie."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.edge.credentials import (
    Credential,
    Source,
    application_offers,
    clearing_cookie,
    find_credential,
    first_offer,
    is_navigation,
    public_base,
    redirect_answer,
    set_cookie,
    subprotocol_echo,
    wants_redirect,
)
from sticky.edge.grammar import HeadLimits
from sticky.edge.parsing import RequestHead, parse_request
from sticky.edge.wire import Names

NAMES = Names()
HANDSHAKE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
OFFER = b"Sec-WebSocket-Protocol: chat, modal-session\r\nSec-WebSocket-Protocol: modal-session-token.offered\r\n"


def request(fields: bytes = b"", target: bytes = b"/x") -> RequestHead:
    return parse_request(b"GET " + target + b" HTTP/1.1\r\nHost: a.example:8080\r\n" + fields + b"\r\n", HeadLimits())


class FindTests(TestCase):
    def test_the_first_place_in_order_decides(self) -> None:
        header = b"modal-authorization: bearer  header \r\n"
        cookie = b"Cookie: a=1; __Host-modal-session-token=cookie; b\r\n"
        query = b"/x?a&modal_session_token=query&modal_session_token=later"
        for fields, target, source, token in (
            (HANDSHAKE + OFFER + cookie + header, query, Source.HEADER, b"header"),
            (HANDSHAKE + OFFER + cookie, query, Source.QUERY, b"query"),
            (HANDSHAKE + OFFER + cookie, b"/x", Source.COOKIE, b"cookie"),
            (HANDSHAKE + OFFER, b"/x", Source.SUBPROTOCOL, b"offered"),
        ):
            self.assertEqual(find_credential(request(fields, target), NAMES), Credential(source, token))
        self.assertIsNone(find_credential(request(b"Cookie: a=1\r\nAuthorization: Bearer t\r\n"), NAMES))
        self.assertIsNone(find_credential(request(OFFER), NAMES), "no handshake, no subprotocol")

    def test_an_empty_or_bad_one_is_not_skipped(self) -> None:
        cookie = b"Cookie: __Host-modal-session-token=good\r\n"
        self.assertEqual(
            find_credential(request(cookie, b"/?modal_session_token"), NAMES), Credential(Source.QUERY, b"")
        )
        for header in (
            b"Modal-Authorization: Basic x\r\n",
            b"Modal-Authorization:\r\n",
            b"Modal-Authorization: Bearer a b\r\n",
        ):
            self.assertRaises(errors.BadCredential, find_credential, request(cookie + header), NAMES)

    def test_contradictions_are_refused(self) -> None:
        name = b"__Host-modal-session-token="
        same = b"Cookie: " + name + b"t; " + name + b"t\r\nCookie: " + name + b"t\r\n"
        self.assertEqual(find_credential(request(same), NAMES), Credential(Source.COOKIE, b"t"))
        two = request(same + b"Cookie: " + name + b"u\r\n")
        self.assertRaises(errors.BadCredential, find_credential, two, NAMES)
        headers = b"Modal-Authorization: Bearer t\r\nModal-Authorization: Bearer u\r\n"
        self.assertRaises(errors.BadCredential, find_credential, request(headers), NAMES)

    def test_only_the_cookie_that_the_server_sets_is_read(self) -> None:
        head = request(b"Cookie: __Host-modal-session-token=secure; modal-session-token=plain\r\n")
        self.assertEqual(find_credential(head, NAMES), Credential(Source.COOKIE, b"secure"))
        self.assertEqual(find_credential(head, NAMES, insecure_cookie=True), Credential(Source.COOKIE, b"plain"))

    def test_an_escaped_query_token_is_found_as_the_container_would(self) -> None:
        head = request(target=b"/?modal%5fsession_token=a%2Eb")
        self.assertEqual(find_credential(head, NAMES), Credential(Source.QUERY, b"a.b"))

    def test_spellings_with_underscores_are_no_credentials(self) -> None:
        self.assertIsNone(find_credential(request(b"Modal_Authorization: Bearer t\r\n"), NAMES))

    def test_the_repr_hides_the_token(self) -> None:
        self.assertNotIn("t0ken", repr(Credential(Source.QUERY, b"t0ken")))


class OfferTests(TestCase):
    def test_ours_are_taken_out_and_echoed_only_if_offered(self) -> None:
        head = request(HANDSHAKE + OFFER)
        self.assertEqual(application_offers(head, NAMES), (b"chat",))
        self.assertEqual(subprotocol_echo(head, NAMES), b"modal-session")
        self.assertEqual(first_offer(head, NAMES), b"chat")
        bare = request(HANDSHAKE + b"Sec-WebSocket-Protocol: modal-session-token.t\r\n")
        self.assertEqual((application_offers(bare, NAMES), subprotocol_echo(bare, NAMES)), ((), None))
        self.assertIsNone(first_offer(bare, NAMES))


class RedirectTests(TestCase):
    def test_it_has_exactly_the_documented_headers(self) -> None:
        head = request(target=b"/a//b?x=%20&modal_session_token=v4.public.t&y")
        answer = redirect_answer(head, b"v4.public.t", NAMES, public_base(head, None, b"http"))
        self.assertEqual(answer.status, 307)
        self.assertEqual(
            answer.headers,
            (
                (b"location", b"http://a.example:8080/a//b?x=%20&y"),
                (
                    b"set-cookie",
                    b"__Host-modal-session-token=v4.public.t; Path=/; Secure; HttpOnly; SameSite=Lax",
                ),
                (b"cache-control", b"no-store"),
                (b"referrer-policy", b"no-referrer"),
            ),
        )
        self.assertEqual(answer.body, b"")

    def test_a_target_that_looks_like_a_host_stays_on_this_host(self) -> None:
        head = request(target=b"//evil.example/?modal_session_token=t")
        base = public_base(head, "https://pub.example", b"http")
        self.assertEqual(redirect_answer(head, b"t", NAMES, base).headers[0][1], b"https://pub.example//evil.example/")

    def test_cookie_variants(self) -> None:
        self.assertEqual(
            set_cookie(b"t", NAMES, third_party_frames=True),
            b"__Host-modal-session-token=t; Path=/; Secure; HttpOnly; SameSite=None; Partitioned",
        )
        self.assertEqual(
            set_cookie(b"t", NAMES, insecure_cookie=True), b"modal-session-token=t; Path=/; HttpOnly; SameSite=Lax"
        )
        self.assertEqual(
            clearing_cookie(NAMES),
            b"__Host-modal-session-token=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0",
        )
        for token in (b"", b"a;b", b"a\r\nb", b"a b"):
            self.assertRaises(ValueError, set_cookie, token, NAMES)

    def test_only_navigations_and_plain_clients_are_redirected(self) -> None:
        query = Credential(Source.QUERY, b"t")
        self.assertTrue(wants_redirect(request(), query))
        self.assertTrue(wants_redirect(request(b"Sec-Fetch-Mode: navigate\r\n"), query))
        for mode in (b"cors", b"no-cors", b"websocket"):
            self.assertFalse(wants_redirect(request(b"Sec-Fetch-Mode: " + mode + b"\r\n"), query))
        self.assertFalse(wants_redirect(request(HANDSHAKE), query))
        self.assertFalse(is_navigation(request(HANDSHAKE)))
        self.assertFalse(wants_redirect(request(), Credential(Source.COOKIE, b"t")))

"""Which proxy token a control call carries, and who is let in with it."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.control.credentials import proxy_credential
from sticky.edge.wire import Names
from tests.control.calls import BEARER, GAME, SECRET, Room, anonymous_start, call, start
from tests.fakes.sessions import credentials

NAMES = Names()
PAIR = ((b"Modal-Key", b"wk-pair"), (b"Modal-Secret", SECRET.encode()))
OWN = (b"Modal-Authorization", b"Bearer wk-own." + SECRET.encode())


class Finding(SynchronousTestCase):
    def found(self, *headers: tuple[bytes, bytes]) -> str:
        return proxy_credential(call(b"POST", b"sessions/start", *headers), NAMES)[0]

    def test_each_form_is_found(self) -> None:
        self.assertEqual(proxy_credential(call(b"POST", b"", BEARER), NAMES), ("wk-dev", SECRET))
        self.assertEqual(proxy_credential(call(b"POST", b"", OWN), NAMES), ("wk-own", SECRET))
        self.assertEqual(proxy_credential(call(b"POST", b"", *PAIR), NAMES), ("wk-pair", SECRET))

    def test_field_names_and_the_scheme_are_compared_without_case(self) -> None:
        self.assertEqual(self.found((b"AUTHORIZATION", b"bEARER  wk-dev." + SECRET.encode() + b" ")), "wk-dev")
        self.assertEqual(self.found((b"modal-KEY", b"wk-pair"), (b"MODAL-secret", SECRET.encode())), "wk-pair")

    def test_the_first_form_present_decides(self) -> None:
        self.assertEqual(self.found(*PAIR, OWN, BEARER), "wk-dev")
        self.assertEqual(self.found(*PAIR, OWN), "wk-own")

    def test_a_bad_credential_is_not_skipped_in_favour_of_the_next(self) -> None:
        for bad in (
            (b"Authorization", b"Bearer wk-dev"),
            (b"Authorization", b"Bearer wk-dev.ws-"),
            (b"Modal-Authorization", b"Bearer something"),
            (b"Modal-Authorization", b"Basic d2s6d3M="),
            (b"Modal-Authorization", b""),
        ):
            self.assertRaises(errors.BadCredential, self.found, bad, *PAIR)

    def test_an_authorization_that_is_the_containers_is_passed_over(self) -> None:
        for other in (b"Basic d2s6d3M=", b"Bearer eyJhbGciOi", b"Bearer", b""):
            self.assertEqual(self.found((b"Authorization", other), *PAIR), "wk-pair")
            self.assertRaises(errors.NoCredential, self.found, (b"Authorization", other))

    def test_a_session_token_is_called_what_it_is(self) -> None:
        token = b"Bearer v4.public.abc"
        for kind, field in ((errors.NoCredential, b"Authorization"), (errors.BadCredential, b"Modal-Authorization")):
            self.assertIn("This is a session token", self.assertRaises(kind, self.found, (field, token)).message)
        self.assertEqual(self.found((b"Authorization", token), *PAIR), "wk-pair")

    def test_half_a_pair_is_bad_and_nothing_is_none(self) -> None:
        for half in PAIR:
            self.assertRaises(errors.BadCredential, self.found, half)
        self.assertRaises(errors.BadCredential, self.found, PAIR[0], (b"Modal-Secret", b"plain"))
        self.assertRaises(errors.BadCredential, self.found, (b"Modal-Key", b"plain"), PAIR[1])
        said = self.assertRaises(errors.NoCredential, self.found).message
        self.assertIn("Authorization: Bearer wk-", said)
        for text in (said, errors.IS_SESSION_TOKEN, errors.IS_PROXY_TOKEN):
            self.assertIn(text, json.dumps(text))  # as whoever calls by hand reads it

    def test_two_different_values_of_one_form_are_bad(self) -> None:
        self.assertRaises(errors.BadCredential, self.found, BEARER, (b"Authorization", b"Bearer x"))
        self.assertRaises(errors.BadCredential, self.found, *PAIR, (b"Modal-Key", b"wk-two"))
        self.assertEqual(self.found(BEARER, BEARER), "wk-dev")

    def test_bytes_outside_ascii_are_bad(self) -> None:
        self.assertRaises(errors.BadCredential, self.found, (b"Modal-Authorization", b"Bearer wk-\xe4.ws-\xff"))

    def test_names_follow_the_brand(self) -> None:
        pair = ((b"Sticky-Key", b"wk-pair"), (b"Sticky-Secret", SECRET.encode()))
        self.assertEqual(proxy_credential(call(b"POST", b"", *pair), Names("sticky"))[0], "wk-pair")
        self.assertRaises(errors.NoCredential, proxy_credential, call(b"POST", b"", *pair), NAMES)


class Admitting(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.at_once = credentials()

    def with_token(self, token_id: bytes, secret: str = SECRET) -> object:
        bearer = (b"Authorization", b"Bearer " + token_id + b"." + secret.encode())
        return self.room.ask(call(b"POST", b"sessions/start", bearer))

    def test_without_a_credential_nobody_starts(self) -> None:
        refused = self.assertRaises(errors.NoCredential, self.room.ask, call(b"POST", b"sessions/start"))
        self.assertEqual(refused.status, 401)
        self.assertEqual(self.room.sessions.starts, [])

    def test_a_wrong_secret_an_unknown_id_and_an_expired_token_are_refused_alike(self) -> None:
        texts = {
            str(self.assertRaises(errors.BadCredential, self.with_token, *wrong))
            for wrong in ((b"wk-dev", SECRET + "x"), (b"wk-nobody",), (b"wk-old",))
        }
        self.assertEqual(len(texts), 1)
        self.assertEqual(self.room.sessions.starts, [])

    def test_a_server_outside_the_scope_is_refused(self) -> None:
        refused = self.assertRaises(errors.OutOfScope, self.with_token, b"wk-chat")
        self.assertEqual((refused.status, refused.code), (403, "out_of_scope"))

    def test_the_owner_is_the_caller(self) -> None:
        self.with_token(b"wk-dev")
        request = self.room.sessions.starts[0].request
        self.assertEqual((request.server, request.owner, request.caller), (GAME, "dev", "dev"))

    def test_on_an_unauthenticated_server_the_address_is_the_caller_and_a_token_says_nothing(self) -> None:
        for headers in ((), (BEARER,), ((b"Authorization", b"Bearer wk-dev.ws-wrong"),)):
            self.room.ask(anonymous_start(*headers))
        for waiting in self.room.sessions.starts:
            self.assertEqual((waiting.request.owner, waiting.request.caller), ("", "192.0.2.1"))
        self.assertEqual(len(self.room.sessions.starts), 3)

    def test_a_page_of_another_origin_starts_nothing_on_an_unauthenticated_server(self) -> None:
        foreign = anonymous_start((b"Origin", b"https://evil.example"), origin_allowed=False)
        refused = self.assertRaises(errors.BadOrigin, self.room.ask, foreign)
        self.assertEqual((refused.status, refused.code), (403, "bad_origin"))
        self.assertEqual(self.room.sessions.starts, [])

    def test_with_a_proxy_token_the_origin_does_not_matter(self) -> None:
        self.room.ask(start((b"Origin", b"https://other.example"), origin_allowed=False))
        self.assertEqual(len(self.room.sessions.starts), 1)

    def test_an_address_with_too_many_failures_waits_and_others_do_not(self) -> None:
        for _ in range(3):
            self.assertRaises(errors.BadCredential, self.with_token, b"wk-dev", "ws-wrong")
        refused = self.assertRaises(errors.TooManyFailures, self.with_token, b"wk-dev")
        self.assertEqual((refused.status, refused.retry_after), (429, 10.0))
        self.room.ask(start(client="192.0.2.2"))
        self.room.clock.advance(10)
        self.with_token(b"wk-dev")
        self.assertEqual(len(self.room.sessions.starts), 2)

    def test_no_credential_at_all_is_no_failure(self) -> None:
        for _ in range(10):
            self.assertRaises(errors.NoCredential, self.room.ask, call(b"POST", b"sessions/start"))
        self.with_token(b"wk-dev")

    def test_no_refusal_shows_the_secret(self) -> None:
        for wrong in ((b"wk-nobody", SECRET), (b"wk-chat", SECRET), (b"wk-dev", SECRET + "x")):
            refused = self.assertRaises(errors.Refusal, self.with_token, *wrong)
            self.assertNotIn(SECRET, f"{refused} {refused!r} {refused.message}")

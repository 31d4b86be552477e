"""Session tokens: the official PASETO vectors, what a verifier refuses and in which order, and what it remembers."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from unittest.mock import patch

import attrs
from hypothesis import assume, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core import tokens
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.core.values import ContainerId, DeploymentId, ServerName, SessionId
from sticky.errors import BadCredential, SessionEnded

CASES = json.loads((Path(__file__).parent.parent / "cases" / "paseto.json").read_text())
SEED = bytes(range(32))
WALL = 1_800_000_000.0
CLAIMS = Claims(
    SessionId("sd-AAAAAAAAAAAAAAAAAAAAAA"),
    ServerName("game"),
    DeploymentId("dp-1"),
    ContainerId("ct-BBBBBBBBBBBBBBBBBBBBBB"),
    int(WALL) - 60,
    int(WALL) + 3600,
)
KEY = SigningKey("k1", SEED)
TOKEN = KEY.sign(CLAIMS).encode()

texts = st.text(min_size=1, max_size=20)
claims = st.builds(
    lambda session, server, deployment, container, issued, life: Claims(
        SessionId(session), ServerName(server), DeploymentId(deployment), ContainerId(container), issued, issued + life
    ),
    texts,
    texts,
    texts,
    texts,
    st.integers(0, 2**40),
    st.integers(0, 10**8),
)


def verifier(cache_size: int = 100) -> Verifier:
    return Verifier({KEY.key_id: KEY.public}, cache_size)


def sealed(message: bytes, key: SigningKey = KEY, footer: bytes = b'{"kid":"k1"}') -> bytes:
    """A truly signed token with any payload."""
    return tokens.seal(message, footer, key._secret)


class PasetoVectors(SynchronousTestCase):
    """https://github.com/paseto-standard/test-vectors: v4.json, 4-S-1 to 4-S-3."""

    def test_signing_gives_the_official_tokens(self) -> None:
        key = SigningKey("official", bytes.fromhex(CASES["seed"]))
        self.assertEqual(key.public.hex(), CASES["public"])
        for case in CASES["cases"]:
            made = tokens.seal(
                case["payload"].encode(), case["footer"].encode(), key._secret, case["implicit"].encode()
            )
            self.assertEqual(made.decode(), case["token"], case["name"])

    def test_the_official_tokens_verify(self) -> None:
        self.assertEqual([case["name"] for case in CASES["cases"]], ["4-S-1", "4-S-2", "4-S-3"])
        for case in CASES["cases"]:
            footer, implicit, public = (
                case["footer"].encode(),
                case["implicit"].encode(),
                bytes.fromhex(CASES["public"]),
            )
            message, signature, encoded_footer = tokens.split(case["token"].encode())
            self.assertEqual(message, case["payload"].encode(), case["name"])
            self.assertEqual(encoded_footer, urlsafe_b64encode(footer).rstrip(b"="))
            self.assertTrue(tokens.is_signed(message, signature, footer, public, implicit), case["name"])
            self.assertFalse(tokens.is_signed(message, signature, footer, public, implicit + b"x"), case["name"])
            self.assertFalse(tokens.is_signed(message, signature, footer + b"x", public, implicit), case["name"])


class Signing(SynchronousTestCase):
    @given(claims)
    def test_what_was_signed_is_what_is_read(self, given_claims: Claims) -> None:
        token = KEY.sign(given_claims)
        self.assertRegex(token, r"\A[A-Za-z0-9._-]{1,1023}\Z")
        self.assertEqual(verifier().verify(token.encode(), given_claims.expires_at), given_claims)

    def test_the_same_claims_give_the_same_token(self) -> None:
        self.assertEqual(KEY.sign(CLAIMS), SigningKey("k1", SEED).sign(CLAIMS))

    def test_a_usual_token_is_short(self) -> None:
        self.assertLess(len(TOKEN), 350)

    def test_names_too_long_for_a_token_are_refused(self) -> None:
        long = Claims(CLAIMS.session, ServerName("x" * 800), CLAIMS.deployment, CLAIMS.container, 0, 1)
        self.assertRaises(ValueError, KEY.sign, long)

    def test_claims_that_no_verifier_takes_are_refused(self) -> None:
        for issued_at, expires_at in ((2, 1), (-1, 5), (0, 2**60)):
            bad = Claims(CLAIMS.session, CLAIMS.server, CLAIMS.deployment, CLAIMS.container, issued_at, expires_at)
            self.assertRaises(ValueError, KEY.sign, bad)
        self.assertRaises(
            ValueError, KEY.sign, Claims(SessionId(""), CLAIMS.server, CLAIMS.deployment, CLAIMS.container, 0, 1)
        )

    def test_a_seed_or_key_id_of_another_form_is_refused_without_showing_it(self) -> None:
        refused = self.assertRaises(ValueError, SigningKey, "k1", b"secret")
        self.assertNotIn("secret", str(refused))
        for key_id in ("", "a b", 'a"', "x" * 33, "k1\n"):
            self.assertRaises(ValueError, SigningKey, key_id, SEED)

    def test_reprs_show_no_secret(self) -> None:
        for shown in (repr(KEY), str(KEY), repr(verifier()), f"{KEY!r}"):
            for secret in (SEED, KEY._secret):
                self.assertNotIn(repr(secret)[2:-1], shown)
                self.assertNotIn(secret.hex(), shown)
            self.assertNotIn("\\x", shown)

    def test_a_key_id_follows_from_the_public_key(self) -> None:
        self.assertEqual(tokens.key_id_of(KEY.public), tokens.key_id_of(SigningKey("other", SEED).public))
        self.assertRegex(tokens.key_id_of(KEY.public), r"\A[A-Za-z0-9_-]{12}\Z")


class Refusing(SynchronousTestCase):
    @given(st.integers(0, len(TOKEN) - 1), st.integers(0, 255))
    def test_any_other_byte_anywhere_fails(self, at: int, byte: int) -> None:
        assume(TOKEN[at] != byte)
        self.assertRaises(BadCredential, verifier().verify, TOKEN[:at] + bytes([byte]) + TOKEN[at + 1 :], WALL)

    @given(st.integers(0, len(TOKEN) - 1))
    def test_any_shorter_token_fails(self, length: int) -> None:
        self.assertRaises(BadCredential, verifier().verify, TOKEN[:length], WALL)
        self.assertRaises(BadCredential, verifier().verify, TOKEN[length + 1 :], WALL)

    def test_a_proxy_token_is_called_what_it_is(self) -> None:
        for token, said in ((b"wk-a.ws-b", "This is a proxy token"), (b"v4.local.abc", "The token is malformed")):
            self.assertIn(said, self.assertRaises(BadCredential, verifier().verify, token, WALL).message)

    @given(st.one_of(st.binary(max_size=1200), st.binary(max_size=1200).map(lambda rest: tokens.HEADER + rest)))
    def test_anything_else_fails_cleanly(self, token: bytes) -> None:
        self.assertRaises(BadCredential, verifier().verify, token, WALL)

    @given(st.binary(max_size=600))
    def test_a_signed_payload_of_another_form_fails_cleanly(self, message: bytes) -> None:
        token = sealed(message)
        self.assertRaises(BadCredential, verifier().verify, token, WALL)

    def test_payloads_that_are_nearly_right_fail(self) -> None:
        good = {"s": "sd-1", "n": "game", "d": "dp", "c": "ct-1", "i": int(WALL), "x": int(WALL) + 1}
        self.assertEqual(verifier().verify(sealed(json.dumps(good).encode()), WALL).session, "sd-1")
        wrong: list[object] = [
            {**good, "x": True},
            {**good, "x": WALL + 1},
            {**good, "x": str(int(WALL) + 1)},
            {**good, "x": 2**53},
            {**good, "i": int(WALL) + 2},
            {**good, "i": -1},
            {**good, "s": 5},
            {**good, "n": ""},
            {**good, "c": None},
            {name: good[name] for name in "sndci"},
            [good],
            "text",
        ]
        for payload in wrong:
            self.assertRaises(BadCredential, verifier().verify, sealed(json.dumps(payload).encode()), WALL)
        for text in (b'{"x":NaN}', json.dumps(good).encode("utf-16"), b"[" * 600, b'{"a":' * 120, b""):
            self.assertRaises(BadCredential, verifier().verify, sealed(text), WALL)

    def test_a_payload_too_deep_for_the_stack_that_is_left_fails_cleanly(self) -> None:
        token = sealed(b"[" * 600)

        def deep(levels: int) -> None:
            if levels:
                deep(levels - 1)
            else:
                self.assertRaises(BadCredential, verifier().verify, token, WALL)

        deep(sys.getrecursionlimit() - 500)

    def test_another_key_under_the_same_id_fails(self) -> None:
        other = SigningKey("k1", bytes(32))
        self.assertRaises(BadCredential, verifier().verify, other.sign(CLAIMS).encode(), WALL)

    def test_an_unknown_key_id_fails(self) -> None:
        self.assertRaises(BadCredential, verifier().verify, SigningKey("k2", SEED).sign(CLAIMS).encode(), WALL)

    def test_a_footer_of_another_known_key_fails(self) -> None:
        other = SigningKey("k2", bytes(32))
        both = Verifier({"k1": KEY.public, "k2": other.public})
        body = TOKEN.rpartition(b".")[0]
        footer = other.sign(CLAIMS).encode().rpartition(b".")[2]
        self.assertRaises(BadCredential, both.verify, body + b"." + footer, WALL)

    def test_a_footer_in_another_spelling_or_none_fails(self) -> None:
        body = TOKEN.rpartition(b".")[0]
        spaced = urlsafe_b64encode(b'{"kid": "k1"}').rstrip(b"=")
        for token in (body, body + b".", body + b"." + spaced, TOKEN + b"=", TOKEN + b".", TOKEN + b"\n"):
            self.assertRaises(BadCredential, verifier().verify, token, WALL)
        self.assertRaises(
            BadCredential, verifier().verify, sealed(tokens.split(TOKEN)[0], footer=b'{"kid": "k1"}'), WALL
        )

    def test_non_canonical_base64_fails(self) -> None:
        body, _, footer = TOKEN[len(tokens.HEADER) :].partition(b".")
        alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        # One of these lengths leaves bits in the last character that decode to nothing.
        for extra in range(3):
            message = tokens.split(TOKEN)[0] + b" " * extra
            true = sealed(message)
            self.assertEqual(verifier().verify(true, WALL), CLAIMS)
            body, _, footer = true[len(tokens.HEADER) :].partition(b".")
            if len(body) % 4 == 0:
                continue
            index = alphabet.index(body[-1])
            respelled = body[:-1] + alphabet[index + 1 : index + 2]
            self.assertEqual(len(respelled), len(body))
            self.assertRaises(BadCredential, verifier().verify, tokens.HEADER + respelled + b"." + footer, WALL)
        for respelled in (
            body + b"=",
            body + b"==",
            body[:9] + b"\n" + body[9:],
            body[:9] + b"!" + body[9:],
            b" " + body,
        ):
            self.assertRaises(BadCredential, verifier().verify, tokens.HEADER + respelled + b"." + footer, WALL)
        standard = body.replace(b"-", b"+").replace(b"_", b"/")
        if standard != body:
            self.assertRaises(BadCredential, verifier().verify, tokens.HEADER + standard + b"." + footer, WALL)

    def test_length_key_id_and_expiry_are_looked_at_before_the_signature(self) -> None:
        forgotten = attrs.evolve(CLAIMS, issued_at=0, expires_at=5)
        hopeless = [
            tokens.HEADER + b"A" * 1020,
            SigningKey("k2", SEED).sign(CLAIMS).encode(),
            KEY.sign(forgotten).encode(),
            TOKEN.replace(b"v4.public.", b"v4.local."),
        ]
        with patch.object(tokens, "is_signed", side_effect=AssertionError("the signature was checked")):
            for token in hopeless:
                self.assertRaises(BadCredential, verifier().verify, token, WALL)


class Expiry(SynchronousTestCase):
    def test_a_true_token_past_its_expiry_names_the_reason(self) -> None:
        checked = verifier()
        last = CLAIMS.expires_at + tokens.EXPIRY_LEEWAY
        for _ in range(2):  # from the signature, then from memory
            self.assertEqual(checked.verify(TOKEN, last), CLAIMS)
            ended = self.assertRaises(SessionEnded, checked.verify, TOKEN, last + 0.5)
            self.assertEqual((ended.code, ended.status), ("container_max_age", 410))
        self.assertRaises(SessionEnded, verifier().verify, TOKEN, last + 86_400)

    def test_a_forged_token_past_its_expiry_is_only_bad(self) -> None:
        forged = SigningKey("k1", bytes(32)).sign(CLAIMS).encode()
        self.assertRaises(BadCredential, verifier().verify, forged, CLAIMS.expires_at + 1000)

    def test_a_wall_clock_that_went_back_does_no_harm(self) -> None:
        self.assertEqual(verifier().verify(TOKEN, CLAIMS.issued_at - 3600), CLAIMS)


class Memory(SynchronousTestCase):
    def test_a_verified_token_needs_no_second_signature_check(self) -> None:
        checked = verifier()
        with patch.object(tokens, "is_signed", wraps=tokens.is_signed) as check:
            for _ in range(3):
                self.assertEqual(checked.verify(bytes(bytearray(TOKEN)), WALL), CLAIMS)
            self.assertEqual(check.call_count, 1)

    def test_a_failure_is_never_remembered(self) -> None:
        checked = verifier()
        forged = SigningKey("k1", bytes(32)).sign(CLAIMS).encode()
        with patch.object(tokens, "is_signed", wraps=tokens.is_signed) as check:
            for _ in range(3):
                self.assertRaises(BadCredential, checked.verify, forged, WALL)
            self.assertEqual(check.call_count, 3)
        self.assertEqual(remembered(checked), 0)

    def test_memory_is_bounded_and_keeps_what_is_used(self) -> None:
        checked = verifier(cache_size=10)
        others = [
            KEY.sign(Claims(SessionId(f"sd-{n}"), CLAIMS.server, CLAIMS.deployment, CLAIMS.container, 0, int(WALL)))
            for n in range(40)
        ]
        checked.verify(TOKEN, WALL)
        with patch.object(tokens, "is_signed", wraps=tokens.is_signed) as check:
            for other in others:
                checked.verify(other.encode(), WALL)
                checked.verify(TOKEN, WALL)
                self.assertLessEqual(remembered(checked), 10)
            self.assertEqual(check.call_count, len(others))

    def test_what_is_not_used_is_forgotten_in_time_and_what_is_used_stays(self) -> None:
        for direction in (1, -1):
            checked = verifier()
            with patch.object(tokens, "is_signed", wraps=tokens.is_signed) as check:
                others = [
                    KEY.sign(Claims(SessionId(f"sd-{n}"), CLAIMS.server, CLAIMS.deployment, CLAIMS.container, 0, 2**40))
                    for n in range(20)
                ]
                for step, other in enumerate(others):
                    wall = WALL + direction * step * tokens.TURNS_EVERY / 3
                    checked.verify(other.encode(), wall)
                    self.assertEqual(checked.verify(TOKEN, wall), CLAIMS)
                    self.assertLessEqual(remembered(checked), 9)
                self.assertEqual(check.call_count, len(others) + 1)
            self.assertEqual(next(step for step, other in enumerate(others) if checked.remembers(other.encode())), 15)
            self.assertTrue(checked.remembers(TOKEN))

    def test_a_dropped_key_verifies_nothing_not_even_from_memory(self) -> None:
        other = SigningKey("k2", bytes(32))
        checked = Verifier({"k1": KEY.public, "k2": other.public})
        checked.verify(TOKEN, WALL)
        checked.verify(other.sign(CLAIMS).encode(), WALL)
        checked.drop_key("k1")
        checked.drop_key("k1")
        self.assertRaises(BadCredential, checked.verify, TOKEN, WALL)
        self.assertEqual(checked.verify(other.sign(CLAIMS).encode(), WALL), CLAIMS)

    def test_an_added_key_verifies_beside_the_others(self) -> None:
        checked = verifier()
        other = SigningKey("k2", bytes(32))
        checked.add_key("k2", other.public)
        checked.add_key("k2", other.public)
        self.assertEqual(checked.verify(other.sign(CLAIMS).encode(), WALL), CLAIMS)
        self.assertEqual(checked.verify(TOKEN, WALL), CLAIMS)

    def test_a_key_id_never_changes_its_key(self) -> None:
        checked = verifier()
        self.assertRaises(ValueError, checked.add_key, "k1", SigningKey("k1", bytes(32)).public)
        self.assertRaises(ValueError, checked.add_key, "k3", b"short")
        self.assertEqual(checked.verify(TOKEN, WALL), CLAIMS)


def remembered(checked: Verifier) -> int:
    return len(checked._recent) + len(checked._older)

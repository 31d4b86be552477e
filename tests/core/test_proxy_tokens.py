"""Proxy tokens: text, hashes, scope, expiry; what a wrong one costs; the limit on failures."""

from __future__ import annotations

import contextlib
import hmac
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core import proxy_tokens
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret, new_token, parse_bearer
from sticky.core.values import ServerName
from sticky.errors import BadCredential, TooManyFailures

SECRET = "ws-0123456789abcdefABCDEF_-"
KEY = b"k" * 32


def token(token_id: str = "wk-dev", secret: str = SECRET, key: bytes = b"", **more: object) -> ProxyToken:
    fields: dict[str, object] = {"id": token_id, "secret_hash": hash_secret(secret, key), "owner": "dev", **more}
    return ProxyToken(**fields)  # type: ignore[arg-type]


class Text(SynchronousTestCase):
    def test_a_bearer_holds_id_and_secret(self) -> None:
        self.assertEqual(parse_bearer(f"wk-a_B-9.{SECRET}"), ("wk-a_B-9", SECRET))

    def test_other_texts_are_no_bearer(self) -> None:
        for text in (
            "",
            "wk-a",
            "wk-a.",
            f"wk-.{SECRET}",
            "wk-a.ws-",
            f"a.{SECRET}",
            f"{SECRET}.wk-a",
            f"wk-a.{SECRET}.x",
            f"wk-a .{SECRET}",
            f"wk-a.{SECRET}\n",
            f"wk-ä.{SECRET}",
            f"wk-{'a' * 65}.{SECRET}",
            f"wk-a.ws-{'a' * 201}",
        ):
            self.assertRaises(BadCredential, parse_bearer, text)

    def test_a_session_token_is_called_what_it_is(self) -> None:
        for text, said in (("v4.public.abc", "This is a session token"), ("wk-a", "The token is malformed")):
            self.assertIn(said, self.assertRaises(BadCredential, parse_bearer, text).message)

    @given(st.text(max_size=50))
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        try:
            token_id, secret = parse_bearer(text)
        except BadCredential:
            return
        self.assertEqual(f"{token_id}.{secret}", text)

    @given(st.binary(min_size=9, max_size=9), st.binary(min_size=24, max_size=24))
    def test_a_new_token_is_parsed_again(self, id_bytes: bytes, secret_bytes: bytes) -> None:
        made = new_token(id_bytes, secret_bytes)
        self.assertEqual(parse_bearer(".".join(made)), made)
        self.assertEqual(len(made[1]), 3 + 32)

    def test_a_new_token_wants_enough_random_bytes(self) -> None:
        self.assertRaises(ValueError, new_token, bytes(8), bytes(24))
        self.assertRaises(ValueError, new_token, bytes(9), bytes(23))

    def test_the_plain_hash_is_what_b2sum_prints(self) -> None:
        # printf %s ws-0123456789abcdefABCDEF_- | b2sum -l 256
        printed = "12a22b2f24d326902505ffe1c55773928ee68f06110fbff4b4af2c6afd4cd35e"
        self.assertEqual(hash_secret(SECRET), "blake2b:" + printed)

    def test_the_keyed_hash_depends_on_the_key(self) -> None:
        hashes = {hash_secret(SECRET), hash_secret(SECRET, KEY), hash_secret(SECRET, b"j" * 32)}
        self.assertEqual(len({text.partition(":")[2] for text in hashes}), 3)
        self.assertTrue(hash_secret(SECRET, KEY).startswith("blake2b-keyed:"))
        for text in hashes:
            self.assertTrue(proxy_tokens.is_secret_hash(text))

    def test_an_id_or_hash_of_another_form_is_refused_without_showing_a_secret(self) -> None:
        for secret_hash in ("", SECRET, "sha256:" + "0" * 64, "blake2b:" + "0" * 63, "blake2b:" + "A" * 64):
            refused = self.assertRaises(ValueError, ProxyToken, id="wk-a", secret_hash=secret_hash, owner="dev")
            self.assertNotIn(SECRET, str(refused))
        self.assertRaises(ValueError, ProxyToken, id="dev", secret_hash=hash_secret(SECRET), owner="dev")


class Identifying(SynchronousTestCase):
    def test_id_and_secret_prove_a_token(self) -> None:
        for key in (b"", KEY):
            kept = token(key=key)
            self.assertIs(ProxyTokens([kept], key).identify("wk-dev", SECRET, 0.0), kept)

    def test_plain_and_keyed_hashes_live_side_by_side(self) -> None:
        table = ProxyTokens([token("wk-plain"), token("wk-keyed", key=KEY)], KEY)
        self.assertEqual(table.identify("wk-plain", SECRET, 0.0).id, "wk-plain")
        self.assertEqual(table.identify("wk-keyed", SECRET, 0.0).id, "wk-keyed")

    def test_a_keyed_hash_under_another_key_proves_nothing(self) -> None:
        table = ProxyTokens([token(key=KEY)], b"j" * 32)
        self.assertRaises(BadCredential, table.identify, "wk-dev", SECRET, 0.0)
        self.assertRaises(ValueError, ProxyTokens, [token(key=KEY)])

    @given(st.text(max_size=30))
    def test_any_other_secret_is_refused(self, secret: str) -> None:
        if secret != SECRET:
            self.assertRaises(BadCredential, ProxyTokens([token()]).identify, "wk-dev", secret, 0.0)

    def test_an_unknown_id_is_refused_whatever_the_secret(self) -> None:
        for key in (b"", KEY):
            for secret in (SECRET, "", "ws-x"):
                self.assertRaises(BadCredential, ProxyTokens([token()], key).identify, "wk-other", secret, 0.0)

    def test_an_unknown_id_costs_the_same_hash_and_the_same_comparison(self) -> None:
        table = ProxyTokens([token()])
        for token_id in ("wk-dev", "wk-other"):
            with (
                patch("hmac.compare_digest", wraps=hmac.compare_digest) as compared,
                patch.object(proxy_tokens, "hash_secret", wraps=hash_secret) as hashed,
            ):
                self.assertRaises(BadCredential, table.identify, token_id, "ws-wrong", 0.0)
            self.assertEqual((compared.call_count, hashed.call_count), (1, 1))
            self.assertEqual([len(text) for text in compared.call_args.args], [72, 72])

    def test_a_token_is_refused_from_its_expiry(self) -> None:
        table = ProxyTokens([token(expires_at=100.0)])
        self.assertEqual(table.identify("wk-dev", SECRET, 99.9).owner, "dev")
        self.assertRaises(BadCredential, table.identify, "wk-dev", SECRET, 100.0)

    def test_a_revoked_token_is_refused(self) -> None:
        table = ProxyTokens([token(), token("wk-other")])
        self.assertTrue(table.revoke("wk-dev"))
        self.assertFalse(table.revoke("wk-dev"))
        self.assertRaises(BadCredential, table.identify, "wk-dev", SECRET, 0.0)
        self.assertEqual([kept.id for kept in table.all()], ["wk-other"])

    def test_an_id_is_there_once(self) -> None:
        table = ProxyTokens([token()])
        self.assertRaises(ValueError, table.add, token(secret="ws-another"))
        self.assertEqual(table.identify("wk-dev", SECRET, 0.0).id, "wk-dev")

    def test_the_scope_names_servers_or_all(self) -> None:
        self.assertTrue(token().allows(ServerName("game")))
        scoped = token(servers=frozenset({"game", "chat"}))
        self.assertTrue(scoped.allows(ServerName("game")))
        self.assertFalse(scoped.allows(ServerName("gam")))
        self.assertFalse(token(servers=frozenset()).allows(ServerName("game")))

    def test_reprs_show_neither_secret_nor_hash(self) -> None:
        table = ProxyTokens([token(key=KEY)], KEY)
        for shown in (repr(token()), repr(table), str(table.all())):
            for hidden in (SECRET, hash_secret(SECRET)[8:], hash_secret(SECRET, KEY)[14:], "kkkk"):
                self.assertNotIn(hidden, shown)


class Failures(SynchronousTestCase):
    def fail(self, limit: FailureLimit, address: str, now: float, times: int = 1) -> None:  # type: ignore[override]
        for _ in range(times):
            limit.check(address, now)
            limit.failed(address, now)

    def test_a_burst_passes_and_the_next_waits(self) -> None:
        limit = FailureLimit(burst=3, interval=2.0, spare=0)
        self.fail(limit, "192.0.2.1", 10.0, times=3)
        refused = self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 10.0)
        self.assertEqual((refused.status, refused.retry_after), (429, 2.0))
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 11.5)
        self.fail(limit, "192.0.2.1", 12.0)
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 12.0)

    def test_others_are_not_limited(self) -> None:
        limit = FailureLimit(burst=1, spare=0)
        self.fail(limit, "192.0.2.1", 0.0)
        limit.check("192.0.2.2", 0.0)
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 0.0)

    def test_checking_alone_never_limits(self) -> None:
        limit = FailureLimit(burst=1, spare=0)
        for _ in range(100):
            limit.check("192.0.2.1", 0.0)
        self.assertEqual(len(limit), 0)

    def test_the_burst_is_back_after_quiet(self) -> None:
        limit = FailureLimit(burst=3, interval=2.0, spare=0)
        self.fail(limit, "192.0.2.1", 0.0, times=3)
        self.fail(limit, "192.0.2.1", 6.0, times=3)
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 6.0)

    def test_ipv6_counts_by_its_64_bit_network_and_mapped_ipv4_as_ipv4(self) -> None:
        limit = FailureLimit(burst=1, spare=0)
        self.fail(limit, "2001:db8:0:1::1", 0.0)
        self.assertRaises(TooManyFailures, limit.check, "2001:db8:0:1:ffff::2", 0.0)
        limit.check("2001:db8:0:2::1", 0.0)
        self.fail(limit, "::ffff:192.0.2.7", 0.0)
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.7", 0.0)
        self.fail(limit, "unix:peer", 0.0)
        self.assertRaises(TooManyFailures, limit.check, "unix:peer", 0.0)

    def test_the_table_is_bounded_and_a_busy_failure_stays_in_it(self) -> None:
        limit = FailureLimit(burst=2, interval=1000.0, size=10, spare=0)
        self.fail(limit, "192.0.2.1", 0.0)
        for number in range(100):
            limit.failed(f"198.51.100.{number}", 0.0)
            with contextlib.suppress(TooManyFailures):
                limit.failed("192.0.2.1", 0.0)
            self.assertLessEqual(len(limit), 10)
            self.assertRaises(TooManyFailures, limit.check, "192.0.2.1", 0.0)

    def test_a_right_credential_from_an_exhausted_address_is_looked_at_and_a_wrong_one_is_told_to_wait(self) -> None:
        limit = FailureLimit(burst=1, interval=2.0)
        self.fail(limit, "192.0.2.1", 0.0)
        for _ in range(40):
            limit.check("192.0.2.1", 0.0)  # a right one costs nobody anything
            refused = self.assertRaises(TooManyFailures, limit.failed, "192.0.2.1", 0.0)
            self.assertEqual(refused.retry_after, 2.0)
        self.fail(limit, "192.0.2.1", 2.0)  # what was refused has not made the wait longer

    def test_exhausted_addresses_share_a_number_of_looks_a_second(self) -> None:
        limit = FailureLimit(burst=1, interval=100.0, spare=3)
        for address in ("192.0.2.1", "192.0.2.2"):
            self.fail(limit, address, 0.0)
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
            limit.check(address, 5.0)
        self.assertRaises(TooManyFailures, limit.check, "192.0.2.2", 5.9)
        limit.check("192.0.2.3", 5.9)  # nobody else waits for them
        limit.check("192.0.2.2", 6.0)

    def test_impossible_limits_are_refused(self) -> None:
        for wrong in ({"burst": 0}, {"interval": 0.0}, {"size": 1}, {"spare": -1}):
            self.assertRaises(ValueError, FailureLimit, **wrong)

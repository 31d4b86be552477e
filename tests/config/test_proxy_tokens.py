"""Proxy tokens of the file: hashes, secrets from the environment, and what is never shown."""

from __future__ import annotations

from sticky.core.proxy_tokens import hash_secret
from tests.config.toml import ECHO, ConfigCase


class ProxyTokenTests(ConfigCase):
    def token(self, text: str, **more: object) -> str:
        return self.refused(f"{ECHO}[[proxy_tokens]]\n{text}", **more)

    def test_a_hash_or_a_variable_is_taken_quietly(self) -> None:
        kept = hash_secret("ws-12345678")
        settings = self.load(
            f'{ECHO}[[proxy_tokens]]\nid = "wk-a"\nowner = "o"\nsecret_hash = "{kept}"\nexpires_at = 2030-01-31T12:00:00Z\n'
            '[[proxy_tokens]]\nid = "wk-b"\nowner = "o"\nsecret = "env:S"\nservers = ["echo"]\nadmin = true\nexpires_at = 9',
            environ={"S": "ws-abcdefgh"},
        )
        first, second = settings.daemon.proxy_tokens
        self.assertEqual((first.secret_hash, first.secret, first.servers), (kept, None, ("*",)))
        self.assertEqual((first.expires_at, first.admin), (1896091200.0, False))
        self.assertEqual((second.secret_hash, second.secret, second.servers), (None, "ws-abcdefgh", ("echo",)))
        self.assertEqual((second.expires_at, second.admin), (9.0, True))
        self.assertEqual(settings.warnings, ())
        self.assertNotIn("abcdefgh", repr(settings))
        self.assertNotIn(kept, repr(settings))

    def test_a_plain_secret_and_an_unknown_server_warn(self) -> None:
        settings = self.load(
            f'{ECHO}[[proxy_tokens]]\nid = "wk-a"\nowner = "o"\nsecret = "ws-12345678"\nservers = ["echa"]'
        )
        plain, unknown = settings.warnings
        self.assertEqual(
            plain,
            'sticky.toml: proxy_tokens[0].secret: a plain secret is for development; use secret_hash or "env:NAME"',
        )
        self.assertEqual(
            unknown, 'sticky.toml: proxy_tokens[0].servers: there is no Server "echa" yet; there are: echo'
        )
        self.assertNotIn("12345678", repr(settings))

    def test_wrong_tokens_are_refused_without_showing_secrets(self) -> None:
        good = 'id = "wk-a"\nowner = "o"\n'
        for text, expected in {
            'owner = "o"': "proxy_tokens[0].id: is missing; allowed: wk- and 1 to 64 letters, digits, - or _",
            'id = "a"': 'proxy_tokens[0].id: "a" is not allowed; allowed: wk- and 1 to 64 letters, digits, - or _',
            good: "proxy_tokens[0].secret: give either secret_hash or secret",
            good + 'secret = "hunter2"': "proxy_tokens[0].secret: this value is not allowed; allowed: ws- and 1 to 200 "
            "letters, digits, - or _; or env:NAME, a variable that holds it",
            good
            + 'secret_hash = "hunter2"': "proxy_tokens[0].secret_hash: this value is not allowed; allowed: blake2b: or "
            "blake2b-keyed: and 64 hex digits",
            good + 'secret = "env:GONE"': "proxy_tokens[0].secret: the environment variable GONE is not set",
            good
            + 'secret = "env:BAD"': "proxy_tokens[0].secret: the environment variable BAD does not hold a secret of "
            "the form ws-…",
            good + 'secret = "ws-a"\nservers = []': "proxy_tokens[0].servers: [] is not allowed; allowed: a list (not "
            'empty); each item: a Server\'s name or "*"',
            good + 'secret = "ws-a"\n[[proxy_tokens]]\nsecret = "ws-b"\n' + good: 'proxy_tokens[1].id: "wk-a" is there '
            "twice",
            good + 'secret = "ws-a"\nexpires_at = 2030-01-31': "proxy_tokens[0].expires_at: 2030-01-31 is not allowed; "
            "allowed: a time with its offset such as 2030-01-31T12:00:00Z, or Unix seconds",
        }.items():
            error = self.token(text, environ={"BAD": "hunter2"})
            self.assertEqual(error, f"sticky.toml: {expected}")

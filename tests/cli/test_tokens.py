"""Proxy tokens that are made here fit the configuration and prove themselves."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime, timedelta

from sticky.config.loading import load
from sticky.core.proxy_tokens import hash_secret, parse_bearer
from tests.cli.daemon import CommandCase


class TokenTests(CommandCase):
    def create(self, *arguments: str) -> str:
        return self.sticky("tokens", "create", "--owner", "alice", *arguments, state=False)

    def test_stdout_belongs_into_the_file_and_stderr_to_the_user(self) -> None:
        file = self.folder / "sticky.toml"
        text = '[servers.game]\ncommand = ["x"]\n' + self.create("--server", "game", "--expires", "90d", "--admin")
        file.write_text(text)
        settings = load(file=file, app=None, flags={}, cwd=self.folder, environ={}, backends=["process"])
        (token,) = settings.daemon.proxy_tokens
        bearer = next(line for line in self.captured.err.splitlines() if line.startswith("wk-"))
        identity, secret = parse_bearer(bearer)
        self.assertEqual((token.id, token.secret_hash, token.secret), (identity, hash_secret(secret), None))
        self.assertEqual((token.owner, token.servers, token.admin), ("alice", ("game",), True))
        assert token.expires_at is not None
        days = (datetime.fromtimestamp(token.expires_at, UTC) - datetime.now(UTC)) / timedelta(days=1)
        self.assertLess(abs(days - 90), 0.1)
        self.assertNotIn(secret, text)
        self.assertEqual(settings.warnings, ())

    def test_json_has_it_all(self) -> None:
        found = json.loads(self.create("--json", "--expires", "2100-01-31T12:00:00Z"))
        self.assertEqual(found["secret_hash"], hash_secret(parse_bearer(found["bearer"])[1]))
        self.assertEqual((found["servers"], found["expires_at"][:10]), (["*"], "2100-01-31"))

    def test_no_two_are_the_same(self) -> None:
        self.assertNotEqual(tomllib.loads(self.create()), tomllib.loads(self.create()))

    def test_wrong_owners_and_times(self) -> None:
        for arguments in (
            ("--owner", "has space"),
            ("--owner", ""),
            ("--owner", "a", "--expires", "soon"),
            ("--owner", "a", "--expires", "2001-01-01T00:00:00Z"),
            ("--owner", "a", "--expires", "2100-01-01T00:00:00"),
            (),
        ):
            self.assertEqual(self.sticky("tokens", "create", *arguments, status=2, state=False), "")
            self.assertEqual(self.captured.err.count("\n"), 1, self.captured.err)

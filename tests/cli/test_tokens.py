"""Proxy tokens that are made here fit the configuration and prove themselves."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from datetime import UTC, datetime, timedelta

from sticky.admin.bodies import keys, proxy_token, rotated
from sticky.config.loading import load
from sticky.core.proxy_tokens import hash_secret, parse_bearer
from sticky.ioperating import KeyView
from tests.cli.daemon import CommandCase, Reply
from tests.fakes.operating import ALICE, OWN


class FileTests(CommandCase):
    def create(self, *arguments: str) -> str:
        return self.sticky("tokens", "create", "--toml", "--owner", "alice", *arguments, state=False)

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
            self.assertEqual(self.sticky("tokens", "create", "--toml", *arguments, status=2, state=False), "")
            self.assertEqual(self.captured.err.count("\n"), 1, self.captured.err)


class DaemonTests(CommandCase):
    """Tokens that the daemon keeps."""

    def setUp(self) -> None:
        super().setUp()
        self.listen()
        alice = {**proxy_token(ALICE), "bearer": "wk-alice.ws-secret"}
        self.replies["POST /v1/tokens"] = Reply(alice)
        self.replies["GET /v1/tokens"] = Reply({"tokens": [proxy_token(one) for one in (ALICE, OWN)]})
        for name, fresh in (("wk-alice", None), ("wk-own", "wk-new")):
            self.replies[f"POST /v1/tokens/{name}/revoke"] = Reply({"id": name, "replaced_by": fresh})

    def test_a_new_one_is_on_stdout_and_nowhere_else(self) -> None:
        said = self.sticky(
            "tokens", "create", "--owner", "alice", "--server", "game", "--expires", "2100-01-01T00:00:00Z", "--admin"
        )
        self.assertEqual("wk-alice.ws-secret\n", said)
        self.assertNotIn("ws-secret", self.captured.err)
        _, body = self.asked[-1]
        self.assertEqual({"owner": "alice", "servers": ["game"], "expires_at": 4102444800.0, "admin": True}, body)
        self.assertEqual(
            "wk-alice.ws-secret", json.loads(self.sticky("tokens", "create", "--owner", "a", "--json"))["bearer"]
        )

    def test_a_list(self) -> None:
        lines = self.sticky("tokens", "list").splitlines()
        self.assertEqual(["TOKEN", "OWNER", "SERVERS", "EXPIRES", "ADMIN", "FROM"], lines[0].split())
        self.assertRegex(lines[1], r"^wk-alice +alice +game +2096-\S+ +yes +created$")
        self.assertRegex(lines[2], r"^wk-own +dev +\* +- +- +state directory$")
        self.assertEqual(2, len(json.loads(self.sticky("tokens", "list", "--json"))["tokens"]))

    def test_revoking(self) -> None:
        self.sticky("tokens", "revoke", "wk-al")
        self.assertIn("wk-alice is refused from now on\n", self.captured.err)
        self.sticky("tokens", "revoke", "wk-own")
        self.assertIn("wk-new is in its place", self.captured.err)

    def test_a_whole_token_is_taken_by_its_id_and_not_repeated(self) -> None:
        self.sticky("tokens", "revoke", "wk-alice.ws-SECRET")
        self.assertEqual("POST /v1/tokens/wk-alice/revoke", self.calls()[-1])
        line = self.complaint("tokens", "revoke", "wk-gone.ws-SECRET", status=4)
        self.assertIn("there is no proxy token 'wk-gone'", line)
        self.assertNotIn("SECRET", line)
        self.assertIn("2 tokens begin with 'wk-'", self.complaint("tokens", "revoke", "wk-", status=2))


class KeyTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        body = keys(KeyView("k2", {"k1": 4e9}))
        self.replies["GET /v1/keys"] = self.replies["POST /v1/keys/rotate"] = Reply(body)

    def test_rotation(self) -> None:
        self.sticky("keys", "rotate")
        self.assertEqual("sticky: session tokens are signed with k2 now\n", self.captured.err)
        self.assertEqual({"revoke": False}, self.asked[-1][1])
        self.sticky("keys", "rotate", "--revoke", "--yes")
        self.assertIn("earlier ones are refused", self.captured.err)
        self.assertEqual({"revoke": True}, self.asked[-1][1])
        body = rotated(KeyView("k3", {}, ("worker-1",)))
        self.replies["POST /v1/keys/rotate"] = Reply(body)
        self.assertEqual(body, json.loads(self.sticky("keys", "rotate", "--json")))
        self.assertIn("worker-1 was silent and was cut off", self.captured.err)

    def test_a_revocation_asks_first(self) -> None:
        self.patch(sys, "stdin", io.StringIO("n\n"))
        self.sticky("keys", "rotate", "--revoke", status=1)
        self.assertIn("Every session token of this daemon stops working", self.captured.err)
        self.assertEqual([], self.asked)

    def test_a_list(self) -> None:
        lines = self.sticky("keys", "list").splitlines()
        self.assertRegex(lines[1], r"^k2 +signs +-$")
        self.assertRegex(lines[2], r"^k1 +retired +2096-")
        self.assertEqual("k2", json.loads(self.sticky("keys", "list", "--json"))["key"])

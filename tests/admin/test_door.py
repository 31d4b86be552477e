"""Who may use the admin API over TCP."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.admin.door import TokenDoor
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret

WALL = 1_700_000_000.0


class DoorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.tokens = ProxyTokens(
            [
                ProxyToken(id="wk-admin", secret_hash=hash_secret("ws-SECRET"), owner="ops", admin=True),
                ProxyToken(id="wk-user", secret_hash=hash_secret("ws-SECRET"), owner="alice"),
                ProxyToken(id="wk-old", secret_hash=hash_secret("ws-SECRET"), owner="ops", admin=True, expires_at=WALL),
            ]
        )
        self.clock = Clock()
        self.door = TokenDoor(lambda: self.tokens, {"ops.example.org"}, FailureLimit(burst=3), self.clock, lambda: WALL)

    def admit(self, bearer: str | None = "Bearer wk-admin.ws-SECRET", host: str | None = "127.0.0.1:9443") -> str:
        return self.door.admit("192.0.2.1", host, bearer)

    def test_the_holder_of_an_admin_token(self) -> None:
        self.assertEqual("wk-admin", self.admit())
        self.assertEqual("wk-admin", self.admit("bearer wk-admin.ws-SECRET"))

    def test_hosts_that_nobody_can_rebind(self) -> None:
        host: str | None
        for host in (
            "localhost",
            "LOCALHOST:9443",
            "a.localhost:1",
            "[::1]:9443",
            "192.0.2.7",
            "ops.example.org:9443",
            "ops.example.org.",
        ):
            self.assertEqual("wk-admin", self.admit(host=host), host)
        for host in (
            None,
            "",
            "evil.example",
            "evil.example:9443",
            "ops.example.org.evil.example",
            "[::1",
            "127.0.0.1.evil.example",
        ):
            with self.assertRaises(errors.UnknownHost):
                self.admit(host=host)

    def test_other_tokens(self) -> None:
        for bearer, kind in (
            (None, errors.NoCredential),
            ("", errors.NoCredential),
            ("Bearer ", errors.NoCredential),
            ("Bearer wk-user.ws-SECRET", errors.OutOfScope),
            ("Bearer wk-admin.ws-wrong", errors.BadCredential),
            ("Bearer wk-old.ws-SECRET", errors.BadCredential),
            ("Basic wk-admin.ws-SECRET", errors.BadCredential),
        ):
            with self.assertRaises(kind) as caught:
                self.admit(bearer)
            self.assertNotIn("SECRET", caught.exception.message)

    def test_guesses_are_limited_by_address(self) -> None:
        for _ in range(3):
            self.assertRaises(errors.BadCredential, self.admit, "Bearer wk-admin.ws-wrong")
        self.assertRaises(errors.TooManyFailures, self.admit, "Bearer wk-admin.ws-wrong")
        wrong = "Bearer wk-admin.ws-wrong"
        self.assertRaises(errors.BadCredential, self.door.admit, "192.0.2.2", "localhost", wrong)
        self.clock.advance(10)
        self.assertRaises(errors.BadCredential, self.admit, wrong)

"""The admin API's calls for what an operator sets while the daemon runs."""

from __future__ import annotations

from zope.interface.verify import verifyObject

from sticky import errors
from sticky.admin.calls import AdminCalls
from sticky.ioperating import IOperating
from tests.admin.test_calls import CallsCase, checked
from tests.fakes.operating import FakeOperating


class OperatingTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.operating = FakeOperating()
        self.calls = AdminCalls(
            self.inspection, self.recent, checked, self.calls._in_thread, self.calls._clock, operating=self.operating
        )

    def test_the_fake_is_an_operating(self) -> None:
        self.assertTrue(verifyObject(IOperating, self.operating))

    def test_access(self) -> None:
        expected = {"url": "http://127.0.0.1:8080", "brand": "modal", "proxy_token": "wk-operator.ws-secret"}
        self.assertEqual(expected, self.ask("POST", "/v1/access", {"server": "game"}))
        self.assertEqual(expected, self.ask("POST", "/v1/access", {"app": "game", "server": "game"}))
        self.refused(errors.UnknownServer, "POST", "/v1/access", {"app": "other", "server": "game"})
        for body in ({}, {"server": 5}, {"server": "game", "app": 5}):
            self.assertIn("names the Server", self.refused(errors.BadRequest, "POST", "/v1/access", body))

    def test_the_autoscaler(self) -> None:
        body = {"server": "game", "min_containers": 1, "scaledown_window": 60.0, "updated": ["min_containers"]}
        self.assertEqual(body, self.ask("GET", "/v1/servers/game/autoscaler"))
        self.assertEqual(body, self.ask("POST", "/v1/servers/game/autoscaler", {"min_containers": 1}))
        self.assertEqual([("game", {"min_containers": 1})], self.operating.asked)
        self.refused(errors.UnknownServer, "GET", "/v1/servers/gaem/autoscaler")

    def test_proxy_tokens(self) -> None:
        alice = {
            "id": "wk-alice",
            "owner": "alice",
            "servers": ["game"],
            "expires_at": 4e9,
            "admin": True,
            "source": "created",
        }
        self.assertEqual(alice, self.ask("GET", "/v1/tokens")["tokens"][0])
        made = self.ask("POST", "/v1/tokens", {"owner": "alice"})
        self.assertEqual({**alice, "bearer": "wk-alice.ws-secret"}, made)
        self.assertEqual({"id": "wk-alice", "replaced_by": None}, self.ask("POST", "/v1/tokens/wk-alice/revoke"))
        self.assertEqual({"id": "wk-own", "replaced_by": "wk-own"}, self.ask("POST", "/v1/tokens/wk-own/revoke"))
        self.refused(errors.UnknownToken, "POST", "/v1/tokens/wk-gone/revoke")
        self.assertEqual(
            [("create", {"owner": "alice"}), ("revoke", "wk-alice"), ("revoke", "wk-own")], self.operating.asked
        )

    def test_keys(self) -> None:
        body = {"key": "k2", "retired": [{"id": "k1", "until": 4e9}]}
        self.assertEqual(body, self.ask("GET", "/v1/keys"))
        rotated = {**body, "cut_off": ["worker-2"]}
        self.assertEqual(rotated, self.ask("POST", "/v1/keys/rotate"))
        self.assertEqual(rotated, self.ask("POST", "/v1/keys/rotate", {"revoke": True}))
        self.assertEqual([("rotate", False), ("rotate", True)], self.operating.asked)
        self.refused(errors.BadRequest, "POST", "/v1/keys/rotate", {"revoke": "yes"})

    def test_where_nothing_can_be_set_the_calls_are_not_there(self) -> None:
        self.calls = AdminCalls(self.inspection, self.recent, checked, self.calls._in_thread, self.calls._clock)
        for method, path in (("POST", "/v1/access"), ("GET", "/v1/servers/game/autoscaler")):
            self.refused(errors.NotFound, method, path, {"server": "game"})

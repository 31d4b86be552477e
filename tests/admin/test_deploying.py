"""The calls of the admin API that bring a new definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.admin.calls import AdminCalls
from sticky.iinspection import IDeploying
from tests.admin.test_calls import CallsCase, checked
from tests.fakes.deploying import REPORT, FakeDeploying


class DeployingTests(CallsCase):
    def setUp(self) -> None:
        super().setUp()
        self.deploying = FakeDeploying()
        self.calls = AdminCalls(self.inspection, self.recent, checked, maybeDeferred, Clock(), self.deploying)

    def later(self, path: str, body: dict[str, Any]) -> Deferred[Any]:
        result = self.calls.answer("POST", path, {}, body)
        assert isinstance(result, Deferred)
        return result

    def test_the_fake_deploys(self) -> None:
        self.assertTrue(verifyObject(IDeploying, self.deploying))

    def test_the_same_again(self) -> None:
        answer = self.later("/v1/deploy", {"cwd": "/somewhere"})
        self.assertEqual(self.deploying.asked, [(None, None, None, False, False)])
        self.deploying.answer.callback(REPORT)
        self.assertEqual(
            self.successResultOf(answer),
            {
                "servers": [
                    {
                        "name": "game",
                        "what": "rolling",
                        "deployment": "dp-2",
                        "before": "dp-1",
                        "settings": ["env", "max_containers"],
                        "sessions": 3,
                    },
                    {
                        "name": "echo",
                        "what": "removed",
                        "deployment": None,
                        "before": "dp-1",
                        "settings": [],
                        "sessions": 0,
                    },
                ],
                "proxy_tokens": True,
                "warnings": ["look twice"],
                "cut_off": ["worker-2"],
                "sources": "releases/41/sticky.toml",
            },
        )

    def test_another_file_and_app(self) -> None:
        self.later("/v1/deploy", {"file": "a.toml", "app": "game.py", "cwd": "/x", "recreate": True, "force": True})
        self.assertEqual(self.deploying.asked, [(Path("a.toml"), "game.py", Path("/x"), True, True)])

    def test_undo(self) -> None:
        self.later("/v1/rollout/undo", {"recreate": True})
        self.assertEqual(self.deploying.asked, [("undo", True)])

    def test_whoever_asked_may_leave_and_it_goes_on(self) -> None:
        answer = self.later("/v1/deploy", {})
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertFalse(self.deploying.answer.called, "it goes on")
        self.deploying.answer.callback(REPORT)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_a_wrong_definition(self) -> None:
        answer = self.later("/v1/deploy", {})
        self.deploying.answer.errback(errors.ConfigError("a.toml", "servers", "there is none"))
        self.failureResultOf(answer, errors.ConfigError)

    def test_wrong_bodies(self) -> None:
        for body in (
            {"file": 1, "cwd": "/x"},
            {"app": [], "cwd": "/x"},
            {"file": "a.toml"},
            {"file": "a.toml", "cwd": "relative"},
            {"recreate": "yes"},
            {"force": 1},
        ):
            self.refused(errors.BadRequest, "POST", "/v1/deploy", body)
        self.assertEqual(self.deploying.asked, [])

    def test_rollout(self) -> None:
        found = self.ask("GET", "/v1/rollout")
        self.assertEqual([one["sessions"] for one in found["deployments"]], [2, 3])
        self.assertEqual(found["leaving"], [{"server": "echo", "containers": 1, "sessions": 4}])
        self.assertEqual((found["sources"], found["can_undo"]), ("game.py", True))

    def test_a_daemon_that_cannot_deploy(self) -> None:
        self.calls = AdminCalls(self.inspection, self.recent, checked, maybeDeferred, Clock())
        self.refused(errors.NotFound, "POST", "/v1/deploy")
        self.refused(errors.NotFound, "GET", "/v1/rollout")

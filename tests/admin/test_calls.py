"""The calls of the admin API."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.admin.calls import ROUTES, AdminCalls
from sticky.admin.recent import Recent
from sticky.admin.streams import LogStream
from sticky.config.loading import load
from sticky.config.settings import Settings
from sticky.core.values import SessionId
from sticky.iinspection import IInspection
from sticky.isticky import Credentials
from tests.fakes.inspection import WORKERS, FakeInspection


def checked(file: Path | None, app: str | None, cwd: Path) -> Settings:
    return load(file=file, app=None, flags={}, cwd=cwd, environ={}, backends=["process"])


class CallsCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.inspection = FakeInspection(self.folder)
        self.recent = Recent()
        self.calls = AdminCalls(self.inspection, self.recent, checked, maybeDeferred, Clock())

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, **query: str) -> Any:
        result = self.calls.answer(method, path, query, body or {})
        return self.successResultOf(result) if isinstance(result, Deferred) else result

    def refused(
        self, wanted: type[errors.Refusal], method: str, path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> str:
        try:
            result = self.calls.answer(method, path, query, body or {})
        except wanted as error:
            return error.message
        assert isinstance(result, Deferred), result
        return str(self.failureResultOf(result, wanted).value)


class LookingTests(CallsCase):
    def test_the_fake_is_an_inspection(self) -> None:
        self.assertTrue(verifyObject(IInspection, self.inspection))

    def test_status(self) -> None:
        self.recent.requests["game"] = 12
        status = self.ask("GET", "/v1/status")
        self.assertEqual(
            {key: status["daemon"][key] for key in ("version", "api", "pid", "uptime", "listen")},
            {"version": "9.9", "api": 1, "pid": 42, "uptime": 61.5, "listen": ["http://127.0.0.1:8080"]},
        )
        (server,) = status["servers"]
        self.assertIsNone(server["snapshot"])
        self.assertEqual(server["totals"], {"granted": 5, "refused": 1, "requests": 12})
        self.assertEqual(server["queue"], {"waiting": 1, "oldest": 0.123, "limit": 1000})
        self.assertEqual((server["limits"]["max_concurrency"], server["limits"]["target_concurrency"]), (7, 7))
        self.assertEqual(server["limits"]["placement"], "spread")
        self.assertEqual(server["containers"][0]["state"], "ready")
        self.assertEqual(server["ended"][0]["last_lines"], ["boom"])

    def test_status_of_workers(self) -> None:
        self.assertEqual(self.ask("GET", "/v1/status")["workers"], [])
        self.inspection.processes = WORKERS
        served, ended = self.ask("GET", "/v1/status")["workers"]
        self.assertEqual(
            served,
            {
                "name": "worker-1",
                "state": "serving",
                "pid": 51,
                "age": 61.0,
                "restarts": 0,
                "clients": 9,
                "websockets": 2,
                "in_flight": 3,
                "sessions": 4,
                "answered": 700,
            },
        )
        self.assertEqual((ended["state"], ended["pid"], ended["age"], ended["restarts"]), ("empty", None, None, 5))

    def test_sessions_in_pages(self) -> None:
        first = self.ask("GET", "/v1/sessions", limit="2", owner="dev")
        self.assertEqual(([one["id"] for one in first["sessions"]], first["next"]), (["sd-000", "sd-001"], "sd-001"))
        last = self.ask("GET", "/v1/sessions", limit="2", after=first["next"])
        self.assertEqual(([one["id"] for one in last["sessions"]], last["next"]), (["sd-002"], None))
        self.assertEqual(self.inspection.asked[0], (None, None, "dev", None, 3))

    def test_one_session(self) -> None:
        self.assertEqual(self.ask("GET", "/v1/sessions/sd-001")["idle_left"], 599.5)
        self.refused(errors.UnknownSession, "GET", "/v1/sessions/sd-nope")
        self.assertIn("idle_timeout", self.refused(errors.SessionEnded, "GET", "/v1/sessions/sd-over"))

    def test_containers(self) -> None:
        found = self.ask("GET", "/v1/containers", server="game")
        self.assertEqual([one["pid"] for one in found["containers"]], [77])
        self.assertEqual([one["id"] for one in found["ended"]], ["ct-old"])
        self.refused(errors.UnknownServer, "GET", "/v1/containers", server="gmae")

    def test_logs_are_streams(self) -> None:
        self.assertIsInstance(self.ask("GET", "/v1/logs", kinds="events,output"), LogStream)
        self.assertIsInstance(self.ask("GET", "/v1/containers/ct-box1/logs", follow="1"), LogStream)
        self.refused(errors.UnknownContainer, "GET", "/v1/containers/ct-nope/logs")
        self.refused(errors.UnknownSession, "GET", "/v1/logs", session="sd-nope", kinds="events")
        self.refused(errors.BadRequest, "GET", "/v1/logs", kinds="everything")
        self.refused(errors.BadRequest, "GET", "/v1/logs", lines="-1")

    def test_the_log_is_about_a_session_that_nobody_else_remembers(self) -> None:
        for session in ("sd-gone1", "sd-gone1", "sd-gone2", "-", None):
            self.recent({"log_namespace": "sticky.service", "log_format": "x", "session": session})
        for session in ("sd-gone1", "sd-gone2", "sd-over"):
            self.assertIsInstance(self.ask("GET", "/v1/logs", session=session, kinds="events"), LogStream)
        self.refused(errors.AmbiguousId, "GET", "/v1/logs", session="sd-gone", kinds="events")
        self.refused(errors.UnknownSession, "GET", "/v1/logs", session="sd-", kinds="events")
        self.refused(errors.UnknownSession, "GET", "/v1/logs", session="sd-gone3", kinds="events")


class DoingTests(CallsCase):
    def test_start_gives_credentials_once_there_is_a_session(self) -> None:
        waiting = self.calls.answer("POST", "/v1/sessions", {}, {"server": "game", "idle_timeout": 30})
        assert isinstance(waiting, Deferred)
        self.assertNoResult(waiting)
        self.inspection.waiting.callback(Credentials(SessionId("sd-new"), "v4.public.t", 30.0, 1e9, True))
        given = self.successResultOf(waiting)
        self.assertEqual(
            (given["session_id"], given["token"], given["url"], given["brand"]),
            ("sd-new", "v4.public.t", "http://127.0.0.1:8080", "modal"),
        )
        self.assertEqual(self.inspection.asked, [("start", "game", 30.0)])

    def test_names(self) -> None:
        waiting = self.calls.answer("POST", "/v1/sessions", {}, {"server": "game", "name": "Grün 1"})
        assert isinstance(waiting, Deferred)
        self.inspection.waiting.callback(Credentials(SessionId("sd-1"), "v4.public.t", 30.0, 1e9, False))
        self.assertFalse(self.successResultOf(waiting)["created"])
        released = self.ask("POST", "/v1/sessions/release", {"server": "game", "name": "Grün 1", "grace": 3})
        self.assertEqual("Grün 1", released["name"])
        self.assertEqual({"session_id", "in_flight", "cut_left", "age_left"}, set(released["session"]))
        self.assertEqual(self.inspection.asked, [("start", "game", None, "Grün 1"), ("release", "game", "Grün 1", 3.0)])
        wrong: object
        for wrong in ("", "x" * 129, "a\nb", "\ud800", 5, ["a"]):
            self.refused(errors.BadSessionName, "POST", "/v1/sessions", {"server": "game", "name": wrong})
            self.refused(errors.BadSessionName, "POST", "/v1/sessions/release", {"server": "game", "name": wrong})
        for body in ({"server": "game"}, {"name": "a"}, {}):
            self.refused(errors.BadRequest, "POST", "/v1/sessions/release", body)

    def test_a_start_that_is_refused(self) -> None:
        self.inspection.waiting.errback(errors.QueueFull(retry_after=3.0))
        self.refused(errors.QueueFull, "POST", "/v1/sessions", {"server": "game"})

    def test_wrong_bodies(self) -> None:
        self.refused(errors.BadRequest, "POST", "/v1/sessions", {})
        self.refused(errors.BadRequest, "POST", "/v1/sessions", {"server": 1})
        self.refused(errors.UnknownServer, "POST", "/v1/sessions", {"server": "gmae"})
        wrong: object
        for wrong in ("1", True, -1, float("nan"), float("inf"), [1]):
            self.refused(errors.BadIdleTimeout, "POST", "/v1/sessions", {"server": "game", "idle_timeout": wrong})
            self.refused(errors.BadGrace, "POST", "/v1/sessions/sd-001/terminate", {"grace": wrong})
        self.refused(errors.BadGrace, "POST", "/v1/sessions/sd-001/terminate", {"grace": 3601})
        self.assertEqual(self.inspection.asked, [])

    def test_terminate_and_extend_and_stop(self) -> None:
        self.assertEqual(
            self.ask("POST", "/v1/sessions/sd-001/terminate", {"grace": 2}),
            {"session_id": "sd-001", "in_flight": 0, "cut_left": None, "age_left": 80000.0},
        )
        self.ask("POST", "/v1/sessions/sd-002/extend")
        self.ask("POST", "/v1/containers/ct-box1/stop")
        self.assertEqual(
            self.inspection.asked, [("terminate", "sd-001", 2.0), ("extend", "sd-002"), ("stop", "ct-box1")]
        )
        self.refused(errors.UnknownContainer, "POST", "/v1/containers/ct-x/stop")

    def test_a_sessions_token_once_more(self) -> None:
        given = self.ask("POST", "/v1/sessions/sd-001/token")
        self.assertEqual((given["server"], given["token"]), ("game", "v4.public.secret"))

    def test_check(self) -> None:
        (self.folder / "a.toml").write_text('[servers.echo]\ncommand = ["x"]\nmax_containers = 3\n')
        found = self.ask("POST", "/v1/check", {"file": "a.toml", "cwd": str(self.folder)})
        self.assertEqual((found["servers"][0]["name"], found["servers"][0]["limits"]["max_containers"]), ("echo", 3))
        (self.folder / "b.toml").write_text('[servers.echo]\ncommand = ["x"]\nmax_containers = 0\n')
        result = self.calls.answer("POST", "/v1/check", {}, {"file": "b.toml", "cwd": str(self.folder)})
        assert isinstance(result, Deferred)
        self.failureResultOf(result, errors.ConfigError)
        for body in ({}, {"file": 1, "cwd": "/"}, {"file": "a.toml"}, {"file": "a.toml", "cwd": "relative"}):
            self.refused(errors.BadRequest, "POST", "/v1/check", body)


class RoutingTests(CallsCase):
    def test_unknown_addresses(self) -> None:
        for path in (
            "/",
            "/v1",
            "/v2/status",
            "/v1/status/",
            "/v1/sessions/a/b",
            "/v1/sessions/../status",
            "/v1/sessions/",
        ):
            self.refused(errors.NotFound, "GET", path)

    def test_a_wrong_method_names_the_right_ones(self) -> None:
        error = self.assertRaises(errors.MethodNotAllowed, self.calls.answer, "PUT", "/v1/sessions", {}, {})
        self.assertEqual(error.allowed, ("GET", "POST"))

    def test_an_unknown_parameter_is_no_silent_default(self) -> None:
        text = self.refused(errors.BadRequest, "GET", "/v1/sessions", ownr="dev")
        self.assertIn("'ownr'", text)
        self.assertIn("owner", text)
        self.assertIn("none", self.refused(errors.BadRequest, "GET", "/v1/status", x="1"))

    def test_no_two_rows_are_the_same(self) -> None:
        rows = [(route.method, route.path) for route in ROUTES]
        self.assertEqual(len(rows), len(set(rows)))

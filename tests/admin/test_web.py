"""HTTP around the calls, through twisted.web's own parser."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Site

from sticky import errors
from sticky._version import __version__
from sticky.admin.calls import AdminCalls
from sticky.admin.door import TokenDoor
from sticky.admin.recent import Recent
from sticky.admin.streams import POLL
from sticky.admin.web import LONGEST_BODY, AdminRequest, AdminResource
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret
from sticky.core.values import SessionId
from sticky.isticky import Credentials
from tests.admin.test_calls import checked
from tests.fakes.inspection import FakeInspection


class WebCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.inspection = FakeInspection(self.folder)
        self.clock = Clock()
        calls = AdminCalls(self.inspection, Recent(), checked, maybeDeferred, self.clock)
        self.site = Site(AdminResource(calls), requestFactory=AdminRequest, reactor=self.clock)
        self.site.log = lambda request: None  # type: ignore[method-assign]
        self.transport = StringTransport()
        self.connection = self.site.buildProtocol(None)
        self.connection.makeConnection(self.transport)
        self.addCleanup(self.lose)

    def lose(self) -> None:
        if self.connection is not None:
            self.connection.connectionLost(Failure(ConnectionLost()))
            self.connection = None

    def send(self, method: str, target: str, body: bytes = b"") -> None:
        head = f"{method} {target} HTTP/1.1\r\nHost: sticky\r\nContent-Length: {len(body)}\r\n\r\n"
        self.connection.dataReceived(head.encode() + body)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), fields, json.loads(body) if body else None

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, str], Any]:
        self.transport.clear()
        self.send(method, target, body)
        return self.answer()


class AnswerTests(WebCase):
    def test_an_answer_is_json_and_says_which_version_speaks(self) -> None:
        status, fields, body = self.ask("GET", "/v1/status")
        self.assertEqual((status, body["daemon"]["pid"]), (200, 42))
        self.assertEqual(fields["content-type"], "application/json")
        self.assertEqual((fields["sticky-version"], fields["sticky-api"]), (__version__, "1"))
        self.assertEqual(fields["cache-control"], "no-store")

    def test_parameters_and_bodies_arrive(self) -> None:
        self.ask("GET", "/v1/sessions?owner=d%20v&limit=5")
        self.ask("POST", "/v1/sessions/sd-001/terminate", b'{"grace": 3}')
        self.assertEqual(self.inspection.asked, [(None, None, "d v", None, 6), ("terminate", "sd-001", 3.0)])

    def test_refusals_are_answers(self) -> None:
        for method, target, body, wanted in (
            ("GET", "/v1/nothing", b"", (404, "not_found")),
            ("DELETE", "/v1/status", b"", (405, "method_not_allowed")),
            ("GET", "/v1/sessions/sd-over", b"", (410, "idle_timeout")),
            ("POST", "/v1/sessions", b"{", (400, "bad_body")),
            ("POST", "/v1/sessions", b"[1]", (400, "bad_body")),
            ("POST", "/v1/sessions", b"[" * 20_000, (400, "bad_body")),
            ("GET", "/v1/sessions?limit=1&limit=2", b"", (400, "bad_request")),
            ("POST", "/v1/check", b'{"file": "gone.toml", "cwd": "/"}', (400, "bad_configuration")),
        ):
            status, _, answer = self.ask(method, target, body)
            self.assertEqual((status, answer["error"]), wanted, target)

    def test_a_body_that_is_too_long_is_not_read_to_its_end(self) -> None:
        self.connection.dataReceived(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n\r\n")
        self.connection.dataReceived(b" " * LONGEST_BODY)
        self.assertEqual(b"", self.transport.value())
        self.connection.dataReceived(b" ")
        status, fields, answer = self.answer()
        self.assertEqual((400, "bad_body", "close"), (status, answer["error"], fields["connection"]))
        self.assertEqual((__version__, "no-store"), (fields["sticky-version"], fields["cache-control"]))
        self.assertTrue(self.transport.disconnecting)
        sent = self.transport.value()
        self.connection.dataReceived(b" " * 1_000_000)
        self.assertEqual(sent, self.transport.value())

    def test_a_body_without_a_length_that_is_too_long(self) -> None:
        self.connection.dataReceived(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.connection.dataReceived(b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n")
        self.assertEqual((400, "bad_body"), (self.answer()[0], self.answer()[2]["error"]))
        self.assertEqual(1, self.transport.value().count(b"HTTP/1.1 "))
        self.assertEqual([], self.inspection.asked)

    def test_a_wrong_method_says_what_is_allowed(self) -> None:
        self.assertEqual(self.ask("PUT", "/v1/sessions")[1]["allow"], "get, post")

    def test_our_own_fault_is_500_and_in_the_log(self) -> None:
        self.patch(FakeInspection, "servers", lambda _: 1 / 0)
        status, _, answer = self.ask("GET", "/v1/status")
        self.assertEqual((status, answer["error"]), (500, "internal_error"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class DoorTests(WebCase):
    def setUp(self) -> None:
        super().setUp()
        token = ProxyToken(id="wk-admin", secret_hash=hash_secret("ws-SECRET"), owner="ops", admin=True)
        door = TokenDoor(lambda: ProxyTokens([token]), (), FailureLimit(), self.clock, lambda: 1e9)
        calls = AdminCalls(self.inspection, Recent(), checked, maybeDeferred, self.clock)
        self.site = Site(AdminResource(calls, door), requestFactory=AdminRequest, reactor=self.clock)
        self.site.log = lambda request: None  # type: ignore[method-assign]
        self.lose()
        self.transport = StringTransport()
        self.connection = self.site.buildProtocol(None)
        self.connection.makeConnection(self.transport)

    def get(self, *lines: str) -> tuple[int, str | None]:
        self.transport.clear()
        head = "\r\n".join(["GET /v1/status HTTP/1.1", *lines, "", ""])
        self.connection.dataReceived(head.encode())
        status, _, body = self.answer()
        return status, body.get("error")

    def test_a_token_and_a_known_host_let_in(self) -> None:
        good = "Authorization: Bearer wk-admin.ws-SECRET"
        self.assertEqual((200, None), self.get("Host: localhost:9443", good))
        self.assertEqual((401, "no_credential"), self.get("Host: localhost:9443"))
        self.assertEqual((401, "bad_credential"), self.get("Host: localhost:9443", good + "x"))
        self.assertEqual((404, "unknown_host"), self.get("Host: evil.example", good))


class LaterTests(WebCase):
    START = b'{"server": "game"}'

    def test_a_start_is_answered_when_it_is_decided(self) -> None:
        self.send("POST", "/v1/sessions", self.START)
        self.assertEqual(self.transport.value(), b"")
        self.inspection.waiting.callback(Credentials(SessionId("sd-new"), "t", 30.0, 1e9, True))
        self.assertEqual(self.answer()[2]["session_id"], "sd-new")

    def test_a_refusal_says_when_to_retry(self) -> None:
        self.send("POST", "/v1/sessions", self.START)
        self.inspection.waiting.errback(errors.QueueFull(retry_after=1.2))
        status, fields, _ = self.answer()
        self.assertEqual((status, fields["retry-after"]), (503, "2"))

    def test_a_client_that_leaves_gives_its_place_up(self) -> None:
        left: list[object] = []
        self.inspection.waiting = Deferred(left.append)
        self.send("POST", "/v1/sessions", self.START)
        self.lose()
        self.assertEqual(left, [self.inspection.waiting])


class StreamTests(WebCase):
    def lines(self) -> list[str]:
        text = self.transport.value().decode()
        return [json.loads(line)["text"] for line in text.splitlines() if line.startswith("{")]

    def test_a_stream_goes_on_until_the_client_leaves(self) -> None:
        log = self.folder / "game.ct-box1.log"
        log.write_text("one\n")
        self.send("GET", "/v1/logs?follow=1")
        self.assertIn(b"application/x-ndjson", self.transport.value())
        with log.open("a") as file:
            file.write("two\n")
        self.clock.advance(POLL)
        self.assertEqual(self.lines(), ["one", "two"])
        self.lose()
        log.write_text("three\n")
        self.clock.advance(POLL)
        self.assertEqual(self.lines(), ["one", "two"])

    def test_the_head_does_not_wait_for_the_first_line(self) -> None:
        self.send("GET", "/v1/logs?follow=1")
        self.assertTrue(self.transport.value().startswith(b"HTTP/1.1 200"))

    def test_a_stream_without_follow_ends(self) -> None:
        (self.folder / "game.ct-box1.log").write_text("one\n")
        self.send("GET", "/v1/containers/ct-box1/logs")
        self.assertTrue(self.transport.value().endswith(b"0\r\n\r\n"))
        self.assertEqual(self.lines(), ["one"])

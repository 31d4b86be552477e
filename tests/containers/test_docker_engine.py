"""The client of an Engine's API, against good, bad and torn answers over a real Unix socket."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet.defer import Deferred

from sticky.containers.docker.blocking import ask
from sticky.containers.docker.engine import LONGEST_ANSWER, Engine
from sticky.containers.docker.faults import (
    EngineError,
    EngineNonsense,
    EngineRefused,
    EngineUnreachable,
    connecting,
)
from tests.containers.docker_case import REACTOR, DockerCase
from tests.fakes.engine import Reply, error


class EngineCase(DockerCase):
    def setUp(self) -> None:
        super().setUp()
        self.client = Engine(REACTOR, self.engine.path)

    def list(self, timeout: float = 5.0) -> Deferred[Any]:
        return Deferred.fromCoroutine(
            self.client.request("GET", "/containers/json", {"filters": '{"label":[]}'}, timeout=timeout)
        )


class VersionTests(EngineCase):
    async def test_the_older_of_both_is_spoken_and_asked_for_once(self) -> None:
        for theirs, spoken in (("1.40", "1.40"), ("1.41", "1.41"), ("1.99", "1.48")):
            self.engine.version = {"ApiVersion": theirs, "MinAPIVersion": "1.12"}
            self.client.forget_version()
            await self.list()
            await self.list()
            self.assertEqual(self.engine.asked[-1].version, spoken)
        self.assertEqual(self.engine.count("GET /version"), 3)

    async def test_an_engine_too_old_or_too_new_is_refused_with_both_ranges(self) -> None:
        for version in (
            {"ApiVersion": "1.39", "MinAPIVersion": "1.12"},
            {"ApiVersion": "2.0", "MinAPIVersion": "1.60"},
        ):
            self.engine.version = version
            failure = await self.assertFailure(self.list(), EngineNonsense)
            self.assertIn(version["ApiVersion"], str(failure))
            self.assertIn("1.40 to 1.48", str(failure))

    async def test_what_tells_no_version_is_no_engine(self) -> None:
        for version in ({}, {"ApiVersion": 5}, {"ApiVersion": "one"}):
            self.engine.version = version
            await self.assertFailure(self.list(), EngineNonsense)


class AnswerTests(EngineCase):
    async def test_errors_carry_the_engines_own_words_on_one_line_and_bounded(self) -> None:
        for reply, words in (
            (error(409, "Conflict.\nIn use"), "Conflict. In use (409)"),
            (Reply(500, b"<html>oops"), "<html>oops (500)"),
            (Reply(500, b'["x"]'), '["x"] (500)'),
            (Reply(503, b""), "nothing (503)"),
        ):
            self.engine.script.append((".*containers/json", reply))
            failure = await self.assertFailure(self.list(), EngineRefused)
            self.assertIn(words, str(failure))
        self.engine.script.append((".*containers/json", error(500, "x" * 5000)))
        failure = await self.assertFailure(self.list(), EngineRefused)
        self.assertLess(len(str(failure)), 600)

    async def test_torn_and_foreign_answers_are_unreachable_and_the_next_is_taken(self) -> None:
        for raw in (
            b"",
            b"garbage\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[",
        ):
            self.engine.script.append((".*containers/json", Reply(raw=raw)))
            await self.assertFailure(self.list(), EngineUnreachable)
        self.assertEqual(await self.list(), [])

    async def test_what_is_not_json_is_nonsense(self) -> None:
        self.engine.script.append((".*containers/json", Reply(200, b"{")))
        await self.assertFailure(self.list(), EngineNonsense)

    async def test_an_answer_without_end_is_given_up(self) -> None:
        self.engine.script.append((".*containers/json", Reply(200, b" " * (LONGEST_ANSWER + 1))))
        await self.assertFailure(self.list(), EngineNonsense)

    async def test_redirects_are_not_followed(self) -> None:
        redirect = b"HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
        self.engine.script.append((".*containers/json", Reply(raw=redirect)))
        await self.assertFailure(self.list(), EngineRefused)
        self.assertEqual(self.engine.count(".*elsewhere"), 0)

    async def test_silence_ends_after_the_timeout(self) -> None:
        await self.client.version()
        self.engine.script.append((".*containers/json", Reply(silent=True)))
        failure = await self.assertFailure(self.list(timeout=0.05), EngineUnreachable)
        self.assertIn("within 0.05 seconds", str(failure))

    async def test_a_missing_socket_and_a_stopped_engine_say_what_to_do(self) -> None:
        await self.engine.stop()
        failure = await self.assertFailure(self.list(), EngineUnreachable)
        self.assertIn("there is no such socket; start Docker", str(failure))
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.engine.path)
        failure = await self.assertFailure(self.list(), EngineUnreachable)
        self.assertIn("nobody listens", str(failure))

    def test_permission_denied_names_the_group(self) -> None:
        for number in (1, 13):
            self.assertIn("group docker", str(connecting("/s", number, os.strerror(number))))


class StreamTests(EngineCase):
    async def test_an_end_a_tear_and_a_refusal_are_told_apart(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
        for reply, kind, received in (
            (Reply(raw=head + b"0\r\n\r\n"), type(None), b"hi"),
            (Reply(raw=head), EngineError, b"hi"),
            (error(404, "gone"), EngineRefused, b""),
            (Reply(raw=b""), EngineUnreachable, b""),
        ):
            self.engine.script.append((".*stream", reply))
            pieces: list[bytes] = []
            closed: Deferred[EngineError | None] = Deferred()
            self.client.stream("/stream", {}, opened=lambda: None, received=pieces.append, closed=closed.callback)
            self.assertIsInstance(await closed, kind)
            self.assertEqual(b"".join(pieces), received)

    async def test_one_that_is_closed_tells_nothing_any_more(self) -> None:
        told: list[object] = []
        opened: Deferred[None] = Deferred()
        stream = self.client.stream(
            "/events", {}, opened=lambda: opened.callback(None), received=told.append, closed=told.append
        )
        await opened
        stream.close()
        stream.close()
        early = self.client.stream(
            "/events", {}, opened=lambda: told.append(1), received=told.append, closed=told.append
        )
        early.close()
        await self.until(lambda: not self.engine.event_streams)
        self.assertEqual(told, [])


class BlockingTests(EngineCase):
    async def test_without_an_engine_it_fails_alike(self) -> None:
        await self.engine.stop()
        self.assertRaises(EngineUnreachable, ask, self.engine.path, "/containers/json", {})

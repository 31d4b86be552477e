"""The example game's launcher page: whom it starts rooms for and what it says when there is none."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from examples.game.launcher import Game, Start, StartFailed, answer


class FakeGame:
    """A game whose start waits for the test."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.waiting: Deferred[str] = Deferred(self._cancel)

    def _cancel(self, _: object) -> None:
        self.cancelled += 1

    async def start(self) -> str:
        return await self.waiting


class StartTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.game = FakeGame()

    def post(self, **headers: str) -> DummyRequest:
        request = DummyRequest([])
        request.method = b"POST"
        for name, value in {"host": "127.0.0.1:8000", **headers}.items():
            request.requestHeaders.addRawHeader(name, value)
        body = Start(cast(Game, self.game)).render(cast(Any, request))
        if isinstance(body, bytes):
            request.write(body)
        return request

    def said(self, request: DummyRequest) -> tuple[int | None, dict[str, str]]:
        return request.responseCode, json.loads(b"".join(request.written))

    def test_a_player_gets_the_link_and_no_cache_keeps_it(self) -> None:
        request = self.post(origin="http://127.0.0.1:8000")
        self.game.waiting.callback("http://game/?x")
        self.assertEqual(self.said(request), (200, {"link": "http://game/?x"}))
        self.assertEqual(request.responseHeaders.getRawHeaders("cache-control"), ["no-store"])

    def test_a_page_of_another_site_starts_nothing(self) -> None:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:8001"):
            self.assertEqual(self.said(self.post(origin=origin))[0], 403)
        self.assertEqual(self.game.cancelled, 0)

    def test_why_there_is_no_room_reaches_the_player(self) -> None:
        request = self.post()
        self.game.waiting.errback(StartFailed(503, "No container had room."))
        self.assertEqual(self.said(request), (503, {"message": "No container had room."}))

    def test_a_player_who_leaves_gives_the_place_in_the_queue_back(self) -> None:
        request = self.post()
        request.processingFailed(Failure(ConnectionError()))
        self.assertEqual(self.game.cancelled, 1)

    def test_an_answer_is_json(self) -> None:
        request = DummyRequest([])
        self.assertEqual(json.loads(answer(cast(Any, request), 400, {"message": "no"})), {"message": "no"})
        self.assertEqual(request.responseHeaders.getRawHeaders("content-type"), ["application/json"])


class FakeAgent:
    """An agent that fails as the test says."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def request(self, *_: object) -> Deferred[object]:
        failed: Deferred[object] = Deferred()
        failed.errback(self._failure)
        return failed


class SilenceTests(SynchronousTestCase):
    def test_a_game_that_does_not_answer_is_a_503_in_words(self) -> None:
        game = Game(Clock(), "http://127.0.0.1:9/", None)
        game._agent = cast(Any, FakeAgent(ConnectionRefusedError()))
        problem = self.failureResultOf(Deferred.fromCoroutine(game.start()), StartFailed).value
        self.assertEqual((problem.status, str(problem)), (503, "The game's server does not answer."))

"""Blocking, asyncio and Twisted are the same calls: one body for all three, against one scripted daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import sticky
from sticky import exception
from sticky.sdk.calling import Call, Carriers
from sticky.sdk.daemon import Daemon
from sticky.sdk.server import Server
from sticky.sdk.steps import Ask, Failure, Reply
from sticky.sdk.twisted import TwistedServer

_R = TypeVar("_R")
BEARER, TOKEN = "wk-dev.ws-SECRETsecret", "v4.public.TOKENtoken"
STATUS = {
    "session_id": "sd-1",
    "state": "active",
    "in_flight": 0,
    "idle_timeout": 600,
    "idle_left": 599.5,
    "age_left": 80000,
    "created_ago": 0.5,
}
SCALING = {
    "server": "Game",
    "min_containers": 1,
    "max_containers": 4,
    "buffer_containers": 0,
    "scaleup_window": 0.0,
    "scaledown_window": 60.0,
    "updated": ["min_containers"],
}


def reply(status: int, **fields: object) -> Reply:
    return Reply(status, json.dumps(fields).encode())


@attrs.define(eq=False)
class Script:
    """Answers in order; what it was asked, and each pause, is in `seen`."""

    answers: list[Reply | Failure]
    seen: list[str] = attrs.field(factory=list)
    asked: list[Ask] = attrs.field(factory=list)

    def send(self, ask: Ask) -> Reply | Failure:
        self.seen.append(f"{ask.method} {ask.url.partition('://')[2].partition('/')[2]}")
        self.asked.append(ask)
        return self.answers.pop(0)

    def sleep(self, seconds: float) -> None:
        self.seen.append(f"pause {seconds:g}")


class Form(Protocol):
    """A Server's calls in one of the forms, each awaitable."""

    def start(self, **arguments: Any) -> Awaitable[sticky.ServerSessionCredentials]: ...
    def terminate(self, token: str, *, grace: float | None = None) -> Awaitable[None]: ...
    def release(self, name: str, *, grace: float | None = None) -> Awaitable[None]: ...
    def status(self, token: str) -> Awaitable[sticky.SessionStatus]: ...
    def extend(self, token: str) -> Awaitable[sticky.SessionStatus]: ...
    def list(self) -> Awaitable[list[sticky.SessionStatus]]: ...
    def get_url(self) -> Awaitable[str]: ...
    def settings(self) -> Awaitable[sticky.AutoscalerSettings]: ...
    def update(self, **changes: Any) -> Awaitable[sticky.AutoscalerSettings]: ...


def server(script: Script, cwd: Path, environ: dict[str, str]) -> Server:
    async def send(ask: Ask) -> Reply | Failure:
        return script.send(ask)

    async def sleep(seconds: float) -> None:
        script.sleep(seconds)

    carriers = Carriers(script.send, script.sleep, send, sleep)
    return Server("app", "Game", daemon=Daemon(environ, cwd), carriers=carriers)


class Python:
    """Blocking, or on asyncio, by what `form` makes of a call."""

    def __init__(self, server: Server, form: Callable[[Call[..., Any]], Callable[..., Awaitable[Any]]]) -> None:
        for name in ("start", "terminate", "release", "status", "extend", "list"):
            setattr(self, name, form(getattr(server.sessions, name)))
        for name in ("settings", "update"):
            setattr(self, name, form(getattr(server.autoscaler, name)))
        self.get_url = form(server.get_url)


class Twisted:
    def __init__(self, server: TwistedServer) -> None:
        for name in ("start", "terminate", "release", "status", "extend", "list"):
            setattr(self, name, getattr(server.sessions, name))
        self.settings, self.update, self.get_url = server.autoscaler.settings, server.autoscaler.update, server.get_url


def blocking(call: Call[..., _R]) -> Callable[..., Awaitable[_R]]:
    async def wrapped(*args: Any, **kwargs: Any) -> _R:
        return call(*args, **kwargs)

    return wrapped


class FormsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.cwd = Path(self.mktemp()).absolute()
        (self.cwd / "state").mkdir(parents=True)
        self.environ = {"STICKY_URL": "http://127.0.0.1:8080", "STICKY_PROXY_TOKEN": BEARER}

    def each(self, body: Callable[[Any], Coroutine[Any, Any, None]], *answers: Reply | Failure) -> list[str]:
        """Run it in the three forms; what the daemon saw, which is the same in all."""
        seen = []
        for run in (self._blocking, self._asyncio, self._twisted):
            script = Script(list(answers))
            run(script, body)
            self.assertEqual([], script.answers, run.__name__)
            seen.append(script.seen)
            self.assertNotIn("SECRET", repr(script.asked))
            self.assertNotIn("TOKENtoken", repr(script.asked))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])
        return seen[0]

    def _blocking(self, script: Script, body: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        running = body(Python(server(script, self.cwd, self.environ), blocking))
        # It never waits, so that a single step is the whole of it.
        self.assertRaises(StopIteration, running.send, None)

    def _asyncio(self, script: Script, body: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(body(Python(server(script, self.cwd, self.environ), lambda call: call.aio)))

    def _twisted(self, script: Script, body: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        clock = Clock()
        twisted = TwistedServer(
            server(script, self.cwd, self.environ), clock, lambda reactor, ask: succeed(script.send(ask))
        )
        done = Deferred.fromCoroutine(body(Twisted(twisted)))
        while clock.getDelayedCalls():
            pause = clock.getDelayedCalls()[0].getTime() - clock.seconds()
            script.sleep(pause)
            clock.advance(pause)
        self.assertIsNone(self.successResultOf(done))

    # --- the bodies

    def test_a_session_from_start_to_end(self) -> None:
        async def body(form: Form) -> None:
            credentials = await form.start(idle_timeout=90, name="room")
            self.assertEqual(("sd-1", TOKEN), (credentials.session_id, credentials.token))
            self.assertEqual("active", (await form.status(credentials.token)).state)
            self.assertEqual(599.5, (await form.extend(credentials.token)).idle_left)
            self.assertEqual(["sd-1"], [one.session_id for one in await form.list()])
            self.assertIsNone(await form.terminate(credentials.token))  # type: ignore[func-returns-value]
            await form.release("room")
            self.assertEqual("http://127.0.0.1:8080", await form.get_url())

        seen = self.each(
            body,
            reply(200, session_id="sd-1", token=TOKEN),
            reply(200, **STATUS),
            reply(200, **STATUS),
            reply(200, sessions=[STATUS], next=None),
            reply(404, error="unknown_session"),
            reply(404, error="unknown_name"),
        )
        self.assertEqual(
            [
                "POST _modal/sessions/start",
                "GET _modal/sessions/status",
                "POST _modal/sessions/extend",
                "GET _modal/sessions?limit=1000",
                "POST _modal/sessions/terminate",
                "POST _modal/sessions/release",
            ],
            seen,
        )

    def test_what_is_in_flight_may_be_given_a_time(self) -> None:
        async def body(form: Form) -> None:
            await form.terminate(TOKEN, grace=0)
            await form.release("room", grace=2.5)

        grace = [("x-modal-server-session-grace", "0.000"), ("x-modal-server-session-grace", "2.500")]
        for run in (self._blocking, self._asyncio, self._twisted):
            script = Script([reply(200), reply(200)])
            run(script, body)
            self.assertEqual(grace, [item for ask in script.asked for item in ask.headers.items() if item in grace])

    def test_retries_and_their_end(self) -> None:
        async def body(form: Form) -> None:
            with self.assertRaisesRegex(exception.QueueTimeout, "/_modal/sessions/start answered 503 queue_timeout"):
                await form.start()
            with self.assertRaisesRegex(exception.ConnectionError, "in 5 attempts: Connection refused"):
                await form.terminate(TOKEN)

        start, end = "POST _modal/sessions/start", "POST _modal/sessions/terminate"
        pauses = ["pause 0.5", "pause 1", "pause 2", "pause 4"]
        seen = self.each(
            body,
            Failure("reset"),
            reply(500),
            *[reply(503, error="queue_timeout")] * 3,
            *[Failure("Connection refused")] * 5,
        )
        expected = [part for call in (start, end) for pair in zip([call] * 4, pauses, strict=True) for part in pair]
        expected.insert(8, start)
        self.assertEqual([*expected, end], seen)

    def test_errors_have_the_url_and_no_token(self) -> None:
        async def body(form: Form) -> None:
            for status, kind in (
                (401, exception.AuthError),
                (404, exception.NotFoundError),
                (422, exception.InvalidError),
            ):
                with self.assertRaises(kind) as caught:
                    await form.start()
                text = str(caught.exception) + repr(caught.exception)
                self.assertIn(f"http://127.0.0.1:8080/_modal/sessions/start answered {status}", text)
                self.assertNotIn("SECRET", text)
            with self.assertRaises(exception.SessionEndedError) as ended:
                await form.status(TOKEN)
            self.assertEqual("container_lost", ended.exception.reason)
            self.assertNotIn("TOKENtoken", str(ended.exception))

        self.each(
            body,
            *[reply(status, error="e", message=f"saw {BEARER}") for status in (401, 404, 422)],
            reply(410, error="container_lost", message=f"saw {TOKEN}"),
        )

    def test_what_is_wrong_is_not_sent(self) -> None:
        async def body(form: Form) -> None:
            for call in (
                lambda: form.start(idle_timeout=0),
                lambda: form.start(name=""),
                lambda: form.terminate("a b"),
                lambda: form.terminate(TOKEN, grace=-1),
                lambda: form.release("room", grace=3601),
                lambda: form.status(""),
                lambda: form.extend("\n"),
                lambda: form.update(),
                lambda: form.update(min_containers=-1),
                lambda: form.update(scaledown_window=1),
            ):
                with self.assertRaises(exception.InvalidError):
                    await call()

        self.assertEqual([], self.each(body))

    def test_the_autoscaler_is_asked_by_the_admin_api(self) -> None:
        (self.cwd / "state" / "admin.sock").touch()

        async def body(form: Form) -> None:
            self.assertEqual(1, (await form.settings()).min_containers)
            settings = await form.update(min_containers=1, scaledown_window=60)
            self.assertEqual((("min_containers",), 60.0), (settings.updated, settings.scaledown_window))
            with self.assertRaisesRegex(exception.InvalidError, "above max_containers"):
                await form.update(min_containers=9)
            with self.assertRaisesRegex(exception.ExecutionError, "of another version"):
                await form.settings()

        seen = self.each(
            body,
            reply(200, **SCALING),
            reply(200, **SCALING),
            reply(400, error="bad_request", message="min_containers = 9 is above max_containers, which is 4."),
            reply(200, min_containers=True),
        )
        self.assertEqual(["GET v1/servers/Game/autoscaler", "POST v1/servers/Game/autoscaler"], seen[:2])

    def test_without_the_admin_api_there_is_no_autoscaler(self) -> None:
        async def body(form: Form) -> None:
            with self.assertRaisesRegex(exception.ConnectionError, "no admin socket .*STICKY_ADMIN_URL"):
                await form.settings()

        self.each(body)


class TwistedTests(SynchronousTestCase):
    def server(self, answer: Deferred[Reply | Failure], clock: Clock) -> TwistedServer:
        environ = {"STICKY_URL": "http://127.0.0.1:8080"}
        return TwistedServer(
            Server("app", "Game", daemon=Daemon(environ, Path("/nowhere"))), clock, lambda reactor, ask: answer
        )

    def test_a_cancel_while_the_daemon_is_asked(self) -> None:
        answer: Deferred[Reply | Failure] = Deferred()
        started = self.server(answer, Clock()).sessions.start()
        self.assertNoResult(started)
        started.cancel()
        self.failureResultOf(started, CancelledError)
        self.assertTrue(answer.called)

    def test_a_cancel_in_a_pause(self) -> None:
        clock = Clock()
        answer: Deferred[Reply | Failure] = succeed(Failure("reset"))
        started = self.server(answer, clock).sessions.start()
        self.assertNoResult(started)
        started.cancel()
        self.failureResultOf(started, CancelledError)
        self.assertEqual([], clock.getDelayedCalls())

    def test_what_a_transport_raises_passes(self) -> None:
        started = self.server(fail(ZeroDivisionError()), Clock()).sessions.start()
        self.failureResultOf(started, ZeroDivisionError)

    def test_by_name(self) -> None:
        server = TwistedServer.from_name("app", "Game", Clock())
        self.assertIn("'Game' of app 'app'", repr(server))
        self.assertRaises(exception.InvalidError, TwistedServer.from_name, "a/b", "Game", Clock())

    def test_a_class_that_is_no_server(self) -> None:
        with self.assertRaisesRegex(exception.InvalidError, "is no Server; it must be a class below @app.server"):
            TwistedServer(Clock, Clock())


class CallTests(SynchronousTestCase):
    def test_a_call_has_the_methods_own_documentation(self) -> None:
        import inspect

        sessions = sticky.Server.from_name("app", "Game").sessions
        self.assertIn("Start a session", str(sessions.start.__doc__))
        self.assertIn("Start a session", str(type(sessions).start.__doc__))
        self.assertEqual(
            ["self", "idle_timeout", "name"], list(inspect.signature(type(sessions).start.__wrapped__).parameters)
        )

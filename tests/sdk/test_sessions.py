"""Starting and terminating: what is sent, what is tried again, and what each answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from twisted.trial.unittest import TestCase

import sticky
from sticky import exception
from sticky.sdk.daemon import Daemon
from sticky.sdk.http import Failure, Reply
from sticky.sdk.names import names_from
from sticky.sdk.server import Server
from sticky.sdk.sessions import ServerSessionCredentials, Sessions

BEARER = "wk-dev.ws-SECRETsecret"
TOKEN = "v4.public.TOKENtoken"


def reply(status: int, **fields: object) -> Reply:
    return Reply(status, json.dumps(fields).encode())


STARTED = reply(200, session_id="sd-1", token=TOKEN, created=True)


@attrs.define(eq=False)
class FakeDaemon:
    """A transport that answers from a list and remembers what it was sent; also the clock that is slept on."""

    outcomes: list[Reply | Failure]
    calls: list[tuple[str, dict[str, str], float]] = attrs.field(factory=list)
    pauses: list[float] = attrs.field(factory=list)

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> Reply | Failure:
        self.calls.append((url, dict(headers), timeout))
        return self.outcomes.pop(0)

    def sessions(self, **arguments: Any) -> Sessions:
        environ = {"STICKY_URL": "http://127.0.0.1:8080", "STICKY_PROXY_TOKEN": BEARER}
        return Sessions(
            "Game",
            Daemon(arguments.pop("environ", environ), Path("/nowhere")),
            transport=self,
            sleep=self.pauses.append,
            wall_clock=lambda: 1_700_000_000.4,
            names=lambda: names_from({}),
            **arguments,
        )


class StartTests(TestCase):
    def failed(self, kind: type[Exception], outcome: Reply | Failure, times: int = 1) -> str:
        daemon = FakeDaemon([outcome] * times)
        with self.assertRaises(kind) as caught:
            daemon.sessions().start()
        self.assertEqual([], daemon.outcomes)
        text = str(caught.exception)
        self.assertIn("http://127.0.0.1:8080/_modal/sessions/start", text)
        self.assertNotIn("SECRET", text + repr(caught.exception))
        return text

    def test_it_sends_what_the_wire_says(self) -> None:
        daemon = FakeDaemon([STARTED])
        credentials = daemon.sessions(new_key=lambda: "k" * 32, longest_wait=60.0).start(idle_timeout=90)
        self.assertEqual(ServerSessionCredentials("sd-1", TOKEN), credentials)
        ((url, headers, timeout),) = daemon.calls
        self.assertEqual("http://127.0.0.1:8080/_modal/sessions/start", url)
        self.assertEqual(
            {
                "Authorization": f"Bearer {BEARER}",
                "x-modal-server-session-idle-timeout": "90",
                "x-idempotency-key": "k" * 32,
                "x-modal-timestamp": "1700000000",
            },
            headers,
        )
        self.assertEqual(75.0, timeout)

    def test_the_brand_names_everything(self) -> None:
        names = names_from({"STICKY_BRAND": "sticky"})
        self.assertEqual("/_sticky/sessions/start", names.start_path)
        self.assertEqual("x-sticky-server-session-token", names.session_token)
        with self.assertRaisesRegex(exception.InvalidError, "STICKY_BRAND='a b'"):
            names_from({"STICKY_BRAND": "a b"})

    def test_it_retries_exceptions_and_5xx_with_one_key(self) -> None:
        failing: list[Reply | Failure] = [Failure("refused"), reply(500), reply(502), reply(503, error="queue_full")]
        daemon = FakeDaemon([*failing, STARTED])
        daemon.sessions().start()
        self.assertEqual([0.5, 1.0, 2.0, 4.0], daemon.pauses)
        keys = {headers["x-idempotency-key"] for _, headers, _ in daemon.calls}
        self.assertEqual(1, len(keys))
        self.assertRegex(keys.pop(), r"\A[0-9a-f]{32}\Z")

    def test_two_starts_have_two_keys(self) -> None:
        daemon = FakeDaemon([STARTED, STARTED])
        sessions = daemon.sessions()
        sessions.start()
        sessions.start()
        self.assertEqual(2, len({headers["x-idempotency-key"] for _, headers, _ in daemon.calls}))

    def test_4xx_is_final(self) -> None:
        for status, kind in (
            (400, exception.InvalidError),
            (401, exception.AuthError),
            (403, exception.AuthError),
            (404, exception.NotFoundError),
            (410, exception.SessionEndedError),
            (422, exception.InvalidError),
            (429, exception.ExecutionError),
        ):
            self.assertIn(
                f"answered {status} the_code (why)", self.failed(kind, reply(status, error="the_code", message="why"))
            )

    def test_five_attempts_and_no_more(self) -> None:
        text = self.failed(exception.ConnectionError, Failure("Connection refused"), times=5)
        self.assertIn("in 5 attempts: Connection refused. Is the daemon running there?", text)

    def test_a_queue_that_never_moves_is_a_queue_timeout(self) -> None:
        self.assertIn(
            "Raise max_containers", self.failed(exception.QueueTimeout, reply(503, error="queue_timeout"), times=5)
        )

    def test_other_5xx_are_execution_errors(self) -> None:
        text = self.failed(exception.ExecutionError, reply(503, error="containers_failing"), times=5)
        self.assertIn("503 containers_failing, in every attempt", text)

    def test_an_answer_of_something_else_is_an_execution_error(self) -> None:
        for outcome in (Reply(200, b"<html>"), Reply(200, b"[]"), reply(200, token="x"), reply(302), reply(204)):
            self.assertIn("that of a Sticky Server?", self.failed(exception.ExecutionError, outcome))

    def test_a_peer_that_echoes_the_token_does_not_get_it_into_the_text(self) -> None:
        text = self.failed(exception.AuthError, reply(401, error="bad", message=f"no: Bearer {BEARER}"))
        self.assertIn("no: Bearer (token)", text)

    def test_an_unauthenticated_server_needs_no_proxy_token(self) -> None:
        daemon = FakeDaemon([STARTED])
        daemon.sessions(environ={"STICKY_URL": "http://127.0.0.1:1"}).start()
        self.assertNotIn("Authorization", daemon.calls[0][1])

    def test_a_wrong_idle_timeout_is_not_sent(self) -> None:
        daemon = FakeDaemon([])
        wrong: Any
        for wrong in (0, -1, "abc", 1e9, True, 1.5, float("nan"), None):
            with self.assertRaisesRegex(
                exception.InvalidError, "idle_timeout=.* is not allowed; it must be a whole number"
            ):
                daemon.sessions().start(idle_timeout=wrong)
        self.assertEqual([], daemon.calls)

    def test_a_keyboard_interrupt_is_not_retried(self) -> None:
        daemon = FakeDaemon([Failure("refused")])

        def interrupted(seconds: float) -> None:
            raise KeyboardInterrupt

        sessions = daemon.sessions()
        self.patch(sessions, "_sleep", interrupted)
        self.assertRaises(KeyboardInterrupt, sessions.start)
        self.assertEqual(1, len(daemon.calls))


class TerminateTests(TestCase):
    def test_it_sends_the_session_token_and_the_proxy_token(self) -> None:
        daemon = FakeDaemon([reply(200)])
        daemon.sessions().terminate(TOKEN)
        ((url, headers, timeout),) = daemon.calls
        self.assertEqual("http://127.0.0.1:8080/_modal/sessions/terminate", url)
        self.assertEqual(
            (f"Bearer {BEARER}", TOKEN), (headers["Authorization"], headers["x-modal-server-session-token"])
        )
        self.assertLess(timeout, 60)

    def test_a_session_that_is_over_is_success(self) -> None:
        daemon = FakeDaemon([reply(404, error="unknown_session")])
        daemon.sessions().terminate(TOKEN)
        self.assertEqual(1, len(daemon.calls))

    def test_5xx_is_retried_and_404_after_it_is_success(self) -> None:
        daemon = FakeDaemon([Failure("reset"), reply(503), reply(404)])
        daemon.sessions().terminate(TOKEN)
        self.assertEqual([0.5, 1.0], daemon.pauses)

    def test_other_answers_are_errors_without_the_token(self) -> None:
        daemon = FakeDaemon([reply(401, error="bad_credential", message=f"{TOKEN} {BEARER}")])
        with self.assertRaises(exception.AuthError) as caught:
            daemon.sessions().terminate(TOKEN)
        self.assertNotIn("SECRET", str(caught.exception))
        self.assertNotIn("TOKEN", str(caught.exception).replace("STICKY_PROXY_TOKEN", ""))

    def test_what_is_no_token_is_not_sent_and_not_shown(self) -> None:
        daemon = FakeDaemon([])
        wrong: Any
        for wrong in ("", TOKEN + "\n", f"a {TOKEN}", None, ServerSessionCredentials("sd-1", TOKEN), "ä"):
            with self.assertRaises(exception.InvalidError) as caught:
                daemon.sessions().terminate(wrong)
            self.assertNotIn("TOKEN", str(caught.exception))
        self.assertEqual([], daemon.calls)


class CredentialsTests(TestCase):
    def test_the_repr_hides_the_token(self) -> None:
        self.assertEqual("ServerSessionCredentials(session_id='sd-1')", repr(ServerSessionCredentials("sd-1", TOKEN)))

    def test_they_are_frozen(self) -> None:
        credentials: Any = ServerSessionCredentials("sd-1", TOKEN)
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            credentials.token = "x"

    def test_an_ended_session_has_its_reason(self) -> None:
        daemon = FakeDaemon([reply(410, error="idle_timeout")])
        with self.assertRaises(exception.SessionEndedError) as caught:
            daemon.sessions().start()
        self.assertEqual("idle_timeout", caught.exception.reason)


class ServerTests(TestCase):
    def test_from_name_asks_nobody(self) -> None:
        server = sticky.Server.from_name("my-app", "Game")
        self.assertEqual("<sticky.Server 'Game' of app 'my-app'>", repr(server))
        with self.assertRaisesRegex(exception.InvalidError, "name='a/b'"):
            sticky.Server.from_name("my-app", "a/b")

    def test_get_url_has_no_slash_at_its_end(self) -> None:
        server = Server("a", "Game", daemon=Daemon({"STICKY_URL": "http://127.0.0.1:8080/"}, Path("/nowhere")))
        self.assertEqual("http://127.0.0.1:8080", server.get_url())

    def test_a_decorated_class_is_a_server_with_sessions(self) -> None:
        class Game:
            @sticky.enter()
            def start(self) -> None: ...

        server = sticky.App("a").server(queue_timeout=5)(Game)
        self.assertIsInstance(server, sticky.Server)
        self.assertIsInstance(server.sessions, Sessions)
        with self.assertRaisesRegex(exception.InvalidError, r"use Game.sessions.start\(\)"):
            server()

    def test_a_start_waits_as_long_as_the_queue_may(self) -> None:
        def longest(**arguments: Any) -> object:
            class Game:
                @sticky.enter()
                def start(self) -> None: ...

            return vars(sticky.App("a").server(**arguments)(Game).sessions)["_longest_wait"]

        self.assertEqual(60.0, longest())
        self.assertEqual(5.0, longest(queue_timeout=5))
        self.assertEqual(300.0, vars(sticky.Server.from_name("a", "b").sessions)["_longest_wait"])

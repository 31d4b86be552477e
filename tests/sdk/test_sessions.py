"""Starting and terminating: what is sent, what is tried again, and what each answer means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from twisted.trial.unittest import TestCase

import sticky
from sticky import exception
from sticky.sdk.calling import Carriers
from sticky.sdk.daemon import Daemon
from sticky.sdk.names import names_from
from sticky.sdk.server import Server
from sticky.sdk.sessions import ServerSessionCredentials, Sessions, SessionStatus
from sticky.sdk.steps import Ask, Failure, Reply

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
    methods: list[str] = attrs.field(factory=list)

    def __call__(self, ask: Ask) -> Reply | Failure:
        self.calls.append((ask.url, dict(ask.headers), ask.timeout))
        self.methods.append(ask.method)
        return self.outcomes.pop(0)

    def sessions(self, **arguments: Any) -> Sessions:
        environ = {"STICKY_URL": "http://127.0.0.1:8080", "STICKY_PROXY_TOKEN": BEARER}
        return Sessions(
            "app",
            "Game",
            Daemon(arguments.pop("environ", environ), Path("/nowhere")),
            carriers=Carriers(self, self.pauses.append),
            wall_clock=lambda: 1_700_000_000.4,
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

    def test_what_is_quoted_has_its_full_stop_behind_the_quotation(self) -> None:
        over = reply(410, error="terminated", message="The session has ended (terminated).")
        self.assertIn(
            " answered 410 terminated (The session has ended (terminated)). Start another session.",
            self.failed(exception.SessionEndedError, over),
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
        sessions.carriers = Carriers(daemon, interrupted)
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
        with self.assertRaisesRegex(exception.InvalidError, "^token is a proxy token, which starts sessions"):
            daemon.sessions().terminate("wk-a.ws-b")
        self.assertEqual([], daemon.calls)


STATUS: dict[str, Any] = {
    "session_id": "sd-1",
    "state": "active",
    "in_flight": 2,
    "idle_timeout": 600,
    "idle_left": None,
    "age_left": 80000.5,
    "created_ago": 1.25,
    "later_member": "passed over",
}


class NameTests(TestCase):
    def test_a_name_travels_in_its_field(self) -> None:
        for name in ("room 7/blue", "Grün \N{SNOWMAN}"):
            daemon = FakeDaemon([reply(200, session_id="sd-1", token=TOKEN, created=False)])
            credentials = daemon.sessions().start(name=name)
            field = daemon.calls[0][1]["x-modal-server-session-name"]
            self.assertEqual(name, field.encode("latin-1").decode("utf-8"))
            self.assertFalse(credentials.created)

    def test_a_name_is_given_back(self) -> None:
        for answer in (reply(200), reply(404, error="unknown_name")):
            daemon = FakeDaemon([answer])
            daemon.sessions().release("room")
            ((url, headers, _),) = daemon.calls
            self.assertEqual(("POST", "http://127.0.0.1:8080/_modal/sessions/release"), (daemon.methods[0], url))
            self.assertEqual("room", headers["x-modal-server-session-name"])
        with self.assertRaises(exception.NotFoundError):
            FakeDaemon([reply(404, error="not_sessioned")]).sessions().release("room")

    def test_a_start_without_a_name_sends_none_and_makes_a_session(self) -> None:
        daemon = FakeDaemon([reply(200, session_id="sd-1", token=TOKEN)])
        self.assertTrue(daemon.sessions().start().created)
        self.assertNotIn("x-modal-server-session-name", daemon.calls[0][1])

    def test_what_is_no_name_is_not_sent(self) -> None:
        daemon = FakeDaemon([])
        wrong: Any
        for wrong in ("", " a", "a ", "a" * 129, "a\x7fb", "a\r\nX: y", "\ud800", 7, b"a"):
            with self.assertRaisesRegex(exception.InvalidError, "name=.* is not allowed; it must be"):
                daemon.sessions().start(name=wrong)
        self.assertEqual([], daemon.calls)

    def test_a_name_whose_session_is_over_says_why(self) -> None:
        daemon = FakeDaemon([reply(410, error="session_expired", reason="container_lost", message="over")])
        with self.assertRaises(exception.SessionEndedError) as caught:
            daemon.sessions().start(name="room")
        self.assertEqual("container_lost", caught.exception.reason)


class LookingTests(TestCase):
    def test_status_sends_the_token_as_a_request_does_and_no_proxy_token(self) -> None:
        daemon = FakeDaemon([reply(200, **STATUS)])
        status = daemon.sessions().status(TOKEN)
        expected = {key: value for key, value in STATUS.items() if key != "later_member"}
        self.assertEqual(SessionStatus(**expected), status)
        ((url, headers, _),) = daemon.calls
        self.assertEqual(("GET", "http://127.0.0.1:8080/_modal/sessions/status"), (daemon.methods[0], url))
        self.assertEqual(f"Bearer {TOKEN}", headers["modal-authorization"])
        self.assertNotIn("Authorization", headers)

    def test_extend_posts(self) -> None:
        daemon = FakeDaemon([reply(200, **STATUS)])
        self.assertEqual("active", daemon.sessions().extend(TOKEN).state)
        self.assertEqual("POST", daemon.methods[0])
        self.assertTrue(daemon.calls[0][0].endswith("/_modal/sessions/extend"))

    def test_an_ended_session_has_its_reason_with_either_status(self) -> None:
        for status in (410, 401):
            daemon = FakeDaemon([reply(status, error="idle_timeout", message="over")])
            with self.assertRaises(exception.SessionEndedError) as caught:
                daemon.sessions().status(TOKEN)
            self.assertEqual("idle_timeout", caught.exception.reason)

    def test_a_wrong_session_token_is_not_blamed_on_the_proxy_token(self) -> None:
        for status, code in ((401, "bad_credential"), (403, "wrong_server")):
            daemon = FakeDaemon([reply(status, error=code, message=f"no {TOKEN}")])
            with self.assertRaises(exception.AuthError) as caught:
                daemon.sessions().status(TOKEN)
            self.assertIn("Use the token that sessions.start() gave", str(caught.exception))
            self.assertNotIn("TOKENtoken", str(caught.exception))

    def test_an_answer_that_is_no_status_is_an_execution_error(self) -> None:
        for change in ({"in_flight": True}, {"state": None}, {"age_left": "1"}, {"created_ago": None}, {"name": 1}):
            daemon = FakeDaemon([reply(200, **{**STATUS, **change})])
            with self.assertRaisesRegex(exception.ExecutionError, "that of a Sticky Server"):
                daemon.sessions().status(TOKEN)

    def test_list_asks_page_by_page(self) -> None:
        daemon = FakeDaemon(
            [reply(200, sessions=[STATUS], next="sd-1"), reply(503), reply(200, sessions=[STATUS, STATUS], next=None)]
        )
        self.assertEqual(3, len(daemon.sessions().list()))
        self.assertEqual(
            [
                "http://127.0.0.1:8080/_modal/sessions?limit=1000",
                "http://127.0.0.1:8080/_modal/sessions?limit=1000&after=sd-1",
                "http://127.0.0.1:8080/_modal/sessions?limit=1000&after=sd-1",
            ],
            [url for url, _, _ in daemon.calls],
        )
        self.assertEqual({f"Bearer {BEARER}"}, {headers["Authorization"] for _, headers, _ in daemon.calls})

    def test_a_list_that_goes_in_circles_is_an_execution_error(self) -> None:
        for pages in (
            [reply(200, sessions=[STATUS], next="sd-1")] * 2,
            [reply(200, sessions=[STATUS], next=5)],
            [reply(200, sessions=[{}], next=None)],
            [reply(200, sessions=None, next=None)],
        ):
            with self.assertRaisesRegex(exception.ExecutionError, "that of a Sticky Server"):
                FakeDaemon(list(pages)).sessions().list()


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

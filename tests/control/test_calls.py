"""The control calls: statuses, bodies and parameters of start, terminate, status, extend and the list (wire.md)."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.core.tokens import SigningKey
from sticky.isticky import ControlRequest, IControl, ISessions
from tests.control.calls import BEARER, KEY, Room, anonymous_start, body, call, start, terminate, token
from tests.fakes.sessions import credentials, status

IDLE = b"X-Modal-Server-Session-Idle-Timeout"
IDEMPOTENCY = b"X-Idempotency-Key"


class Routing(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()

    def test_it_is_what_the_edge_expects(self) -> None:
        self.assertTrue(verifyObject(IControl, self.room.control))
        self.assertTrue(verifyObject(ISessions, self.room.sessions))

    def test_unknown_paths_are_not_found(self) -> None:
        for name in (b"", b"sessions/", b"sessions/start/", b"session/start", b"sessions/Start", b"health"):
            refused = self.assertRaises(errors.NotFound, self.room.ask, call(b"POST", name, BEARER))
            self.assertEqual((refused.status, refused.code), (404, "not_found"))

    def test_a_wrong_method_is_told_the_right_one_before_any_credential_is_asked(self) -> None:
        rights = {
            b"sessions/start": "POST",
            b"sessions/terminate": "POST",
            b"sessions/extend": "POST",
            b"sessions/status": "GET",
            b"sessions": "GET",
        }
        for name, right in rights.items():
            for method in (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"post"):
                if method.decode() == right:
                    continue
                refused = self.assertRaises(errors.MethodNotAllowed, self.room.ask, call(method, name))
                self.assertEqual((refused.status, refused.allowed), (405, (right,)))

    def test_a_plain_server_has_no_sessions(self) -> None:
        for method, name in ((b"POST", b"sessions/start"), (b"POST", b"sessions/terminate"), (b"GET", b"sessions")):
            refused = self.assertRaises(errors.NotSessioned, self.room.ask, call(method, name, BEARER, sessioned=False))
            self.assertEqual(refused.status, 404)

    def test_paths_and_fields_follow_the_brand(self) -> None:
        room = Room("sticky")
        wanted = start((b"x-sticky-server-session-idle-timeout", b"7"), (IDLE, b"bad"), path=b"/_sticky/sessions/start")
        room.ask(wanted)
        self.assertEqual(room.sessions.starts[0].request.idle_timeout, 7.0)
        self.assertRaises(errors.NotFound, room.ask, start())


class Start(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()

    def test_the_answer_gives_the_credentials(self) -> None:
        pending = self.room.pending(start())
        self.assertNoResult(pending)
        self.room.sessions.starts[0].grant(credentials("sd-9", "tok-9"))
        answer = self.successResultOf(pending)
        self.assertEqual(answer.status, 200)
        self.assertEqual(
            body(answer),
            {
                "session_id": "sd-9",
                "token": "tok-9",
                "idle_timeout": 600,
                "expires_at": 1_800_003_600,
                "created": True,
            },
        )

    def test_defaults_are_the_servers(self) -> None:
        self.room.ask(start())
        request = self.room.sessions.starts[0].request
        self.assertEqual((request.idle_timeout, request.key), (None, None))

    def test_an_idle_timeout_is_passed_on_and_a_timestamp_is_not_looked_at(self) -> None:
        self.room.ask(start((IDLE, b"600"), (b"x-modal-timestamp", b"not a time")))
        self.assertEqual(self.room.sessions.starts[0].request.idle_timeout, 600.0)

    def test_a_bad_idle_timeout_is_refused(self) -> None:
        for text in (b"0", b"00", b"-1", b"abc", b"1e9", b"", b" ", b"1.5", b"+5", b"0x10", b"1_0", b"\xb2", b"9" * 13):
            for make in (start, anonymous_start):
                refused = self.assertRaises(errors.BadIdleTimeout, self.room.ask, make((IDLE, text)))
                self.assertEqual((refused.status, refused.code), (400, "bad_idle_timeout"))
        twice = start((IDLE, b"5"), (IDLE, b"6"))
        self.assertRaises(errors.BadIdleTimeout, self.room.ask, twice)
        self.assertEqual(self.room.sessions.starts, [])

    def test_an_idle_timeout_beyond_the_servers_limit_is_the_rules_to_refuse(self) -> None:
        pending = self.room.pending(start((IDLE, b"1000000000")))
        self.assertEqual(self.room.sessions.starts[0].request.idle_timeout, 1e9)
        self.room.sessions.starts[0].refuse(errors.BadIdleTimeout())
        self.failureResultOf(pending, errors.BadIdleTimeout)

    @given(st.binary(max_size=20))
    def test_any_text_is_a_whole_number_of_seconds_or_refused(self, text: bytes) -> None:
        room = Room()
        try:
            room.ask(start((IDLE, text)))
        except errors.BadIdleTimeout:
            return
        self.assertEqual(room.sessions.starts[0].request.idle_timeout, int(text))
        self.assertGreaterEqual(int(text), 1)

    def test_an_idempotency_key_is_passed_on(self) -> None:
        for key in (b"a" * 16, b"!#$%&'*+-.^_`|~0aZ", b"k" * 128):
            self.room.ask(start((IDEMPOTENCY, key)))
            self.assertEqual(self.room.sessions.starts[-1].request.key, key.decode())

    def test_a_bad_idempotency_key_is_refused(self) -> None:
        for key in (b"", b"a" * 15, b"a" * 129, b"a" * 16 + b" b", b"a" * 15 + b"\xe4", b'"' + b"a" * 20, b"a/b" * 8):
            refused = self.assertRaises(errors.BadIdempotencyKey, self.room.ask, start((IDEMPOTENCY, key)))
            self.assertEqual(refused.status, 400)
        twice = start((IDEMPOTENCY, b"a" * 16), (IDEMPOTENCY, b"b" * 16))
        self.assertRaises(errors.BadIdempotencyKey, self.room.ask, twice)
        self.assertEqual(self.room.sessions.starts, [])

    def test_credentials_are_asked_for_before_parameters(self) -> None:
        wrong = call(b"POST", b"sessions/start", (IDLE, b"abc"))
        self.assertRaises(errors.NoCredential, self.room.ask, wrong)

    def test_refusals_of_the_queue_pass_as_they_are(self) -> None:
        for refusal in (
            errors.QueueTimedOut(retry_after=5.0),
            errors.QueueFull(retry_after=1.0),
            errors.ContainersFailing(retry_after=8.0),
            errors.ShuttingDown(),
            errors.KeyReused(),
        ):
            pending = self.room.pending(start())
            self.room.sessions.starts[-1].refuse(refusal)
            self.assertIs(self.failureResultOf(pending).value, refusal)

    def test_a_client_that_leaves_frees_its_place(self) -> None:
        pending = self.room.pending(start())
        pending.cancel()
        self.assertTrue(self.room.sessions.starts[0].cancelled)
        self.failureResultOf(pending, CancelledError)


class Terminate(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.add(status("sd-1"))

    def test_an_accepted_terminate_is_200_and_again_while_it_drains(self) -> None:
        for _ in range(2):
            answer = self.room.answer(terminate(token()))
            self.assertEqual((answer.status, body(answer)), (200, {"session_id": "sd-1"}))
        claims, grace = self.room.sessions.terminated[0]
        self.assertEqual((claims.session, grace), ("sd-1", None))

    def test_a_grace_is_passed_on(self) -> None:
        for text, seconds in ((b"0", 0.0), (b"2.5", 2.5), (b"3600", 3600.0)):
            self.room.answer(terminate(token(), (b"x-modal-server-session-grace", text)))
            self.assertEqual(self.room.sessions.terminated[-1][1], seconds)

    def test_a_bad_grace_is_refused(self) -> None:
        for text in (b"", b"-1", b"3600.1", b"3601", b"nan", b"inf", b"1e2", b"abc"):
            wrong = terminate(token(), (b"x-modal-server-session-grace", text))
            self.assertEqual(self.assertRaises(errors.BadGrace, self.room.ask, wrong).status, 400)
        self.assertEqual(self.room.sessions.terminated, [])

    def test_a_missing_token_is_400(self) -> None:
        for missing in (
            call(b"POST", b"sessions/terminate", BEARER),
            terminate(b""),
            call(b"POST", b"sessions/terminate", BEARER, session_token=token()),
        ):
            refused = self.assertRaises(errors.MissingSessionToken, self.room.ask, missing)
            self.assertEqual(refused.status, 400)

    def test_unknown_forged_foreign_and_ended_sessions_are_all_alike_404(self) -> None:
        texts = set()
        for wrong in (
            token("sd-other"),
            token(server="chat"),
            token(expires_in=-5000),
            token(key=SigningKey("k1", bytes(32))),
            token(key=SigningKey("k9", bytes(32))),
            b"nonsense",
            b"v4.public.AAAA",
        ):
            refused = self.assertRaises(errors.UnknownSession, self.room.ask, terminate(wrong))
            self.assertEqual(refused.status, 404)
            self.assertNotIn(wrong.decode(), str(refused))
            texts.add(refused.message)
        self.assertEqual(len(texts), 1)
        self.assertEqual(self.room.sessions.terminated, [])

    def test_it_needs_a_proxy_token_with_this_scope(self) -> None:
        header = (b"x-modal-server-session-token", token())
        self.assertRaises(errors.NoCredential, self.room.ask, call(b"POST", b"sessions/terminate", header))
        chat = (b"Authorization", BEARER[1].replace(b"wk-dev", b"wk-chat"))
        self.assertRaises(errors.OutOfScope, self.room.ask, call(b"POST", b"sessions/terminate", chat, header))
        self.assertEqual(self.room.sessions.terminated, [])

    def test_on_an_unauthenticated_server_the_token_is_enough_but_not_from_a_foreign_page(self) -> None:
        header = (b"x-modal-server-session-token", token())
        anyone = call(b"POST", b"sessions/terminate", header, unauthenticated=True)
        self.assertEqual(self.room.answer(anyone).status, 200)
        self.assertRaises(errors.BadOrigin, self.room.ask, attrs.evolve(anyone, origin_allowed=False))
        self.assertEqual(len(self.room.sessions.terminated), 1)

    def test_forged_tokens_use_up_the_allowance_of_strangers_only(self) -> None:
        for _ in range(5):
            self.assertRaises(errors.UnknownSession, self.room.ask, terminate(b"nonsense"))
        stranger = terminate(b"nonsense", unauthenticated=True)
        for _ in range(3):
            self.assertRaises(errors.UnknownSession, self.room.ask, stranger)
        self.assertRaises(errors.TooManyFailures, self.room.ask, stranger)


class StatusAndExtend(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.add(status("sd-1"))

    def ask(self, session_token: bytes | None, extend: bool, **more: object) -> ControlRequest:
        method, name = (b"POST", b"sessions/extend") if extend else (b"GET", b"sessions/status")
        return call(method, name, session_token=session_token, **more)

    def test_both_say_how_the_session_is(self) -> None:
        for extend in (False, True):
            answer = self.room.answer(self.ask(token(), extend))
            self.assertEqual(answer.status, 200)
            self.assertEqual(
                body(answer),
                {
                    "session_id": "sd-1",
                    "state": "active",
                    "in_flight": 0,
                    "idle_timeout": 600,
                    "idle_left": 599.5,
                    "age_left": 86000,
                    "created_ago": 0.5,
                },
            )
        self.assertEqual(self.room.sessions.extended, ["sd-1"])

    def test_no_idle_time_is_left_to_tell_while_something_is_in_flight(self) -> None:
        self.room.sessions.add(attrs.evolve(status("sd-1"), in_flight=2, idle_left=None, age_left=float("inf")))
        told = body(self.room.answer(self.ask(token(), False)))
        self.assertEqual((told["in_flight"], told["idle_left"], told["age_left"]), (2, None, None))

    def test_without_a_session_token_it_is_401_even_with_a_proxy_token(self) -> None:
        for extend in (False, True):
            for unauthenticated in (False, True):
                request = self.ask(None, extend, headers=(BEARER,), unauthenticated=unauthenticated)
                self.assertRaises(errors.NoCredential, self.room.ask, request)

    def test_a_bad_token_is_401_and_counts_as_a_failure(self) -> None:
        forged = token(key=SigningKey(KEY.key_id, bytes(32)))
        for _ in range(3):
            self.assertRaises(errors.BadCredential, self.room.ask, self.ask(forged, False))
        self.assertRaises(errors.TooManyFailures, self.room.ask, self.ask(token(), True))

    def test_a_token_of_another_server_is_403(self) -> None:
        for extend in (False, True):
            refused = self.assertRaises(errors.WrongServer, self.room.ask, self.ask(token(server="chat"), extend))
            self.assertEqual(refused.status, 403)

    def test_an_ended_session_is_410_with_its_reason(self) -> None:
        self.room.sessions.ended[status("sd-2").session] = "idle_timeout"
        for wrong, reason in (("sd-2", "idle_timeout"), ("sd-3", "ended")):
            for extend in (False, True):
                refused = self.assertRaises(errors.SessionEnded, self.room.ask, self.ask(token(wrong), extend))
                self.assertEqual((refused.status, refused.code), (410, reason))
        refused = self.assertRaises(errors.SessionEnded, self.room.ask, self.ask(token(expires_in=-301), False))
        self.assertEqual(refused.code, "container_max_age")

    def test_a_draining_session_has_a_status_but_is_not_extended(self) -> None:
        self.room.sessions.add(status("sd-1", state="draining"))
        self.assertEqual(body(self.room.answer(self.ask(token(), False)))["state"], "draining")
        self.assertRaises(errors.SessionEnded, self.room.ask, self.ask(token(), True))

    def test_a_foreign_page_extends_nothing_by_cookie(self) -> None:
        foreign = self.ask(token(), True, session_from_cookie=True, origin_allowed=False)
        self.assertRaises(errors.BadOrigin, self.room.ask, foreign)
        self.assertEqual(self.room.sessions.extended, [])
        by_header = attrs.evolve(foreign, session_from_cookie=False)
        self.assertEqual(self.room.answer(by_header).status, 200)
        own_page = attrs.evolve(foreign, origin_allowed=True)
        self.assertEqual(self.room.answer(own_page).status, 200)


class List(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.add(*[status(f"sd-{number}") for number in range(5)], status("sd-x", owner="other"))

    def ask(self, query: bytes = b"", **more: object) -> ControlRequest:
        return call(b"GET", b"sessions", BEARER, query=query, **more)

    def ids(self, query: bytes = b"") -> tuple[list[str], str | None]:
        page = body(self.room.answer(self.ask(query)))
        return [session["session_id"] for session in page["sessions"]], page["next"]

    def test_the_owners_sessions_are_listed_without_tokens(self) -> None:
        self.assertEqual(self.ids(), (["sd-0", "sd-1", "sd-2", "sd-3", "sd-4"], None))
        page = body(self.room.answer(self.ask()))
        self.assertEqual(
            set(page["sessions"][0]),
            {"session_id", "state", "in_flight", "idle_timeout", "idle_left", "age_left", "created_ago"},
        )

    def test_pages_follow_each_other_without_gap_or_overlap(self) -> None:
        self.assertEqual(self.ids(b"limit=2"), (["sd-0", "sd-1"], "sd-1"))
        self.assertEqual(self.ids(b"limit=2&after=sd-1"), (["sd-2", "sd-3"], "sd-3"))
        self.assertEqual(self.ids(b"after=sd%2D3&limit=2"), (["sd-4"], None))
        self.assertEqual(self.ids(b"limit=5"), (["sd-0", "sd-1", "sd-2", "sd-3", "sd-4"], None))
        self.assertEqual(self.ids(b"after=sd-9&other=1"), ([], None))

    def test_bad_pages_are_refused(self) -> None:
        for query in (
            b"limit=0",
            b"limit=1001",
            b"limit=-1",
            b"limit=abc",
            b"limit=",
            b"limit=%C2%B2",
            b"after=",
            b"after=a%20b",
            b"after=" + b"a" * 65,
            b"\xff=1",
            b"a=1&" * 200,
        ):
            refused = self.assertRaises(errors.BadRequest, self.room.ask, self.ask(query))
            self.assertEqual(refused.status, 400)

    def test_it_needs_a_proxy_token_even_on_an_unauthenticated_server(self) -> None:
        for unauthenticated in (False, True):
            request = self.ask(headers=(), unauthenticated=unauthenticated)
            self.assertRaises(errors.NoCredential, self.room.ask, request)


class Methods(SynchronousTestCase):
    def test_a_call_has_one_method(self) -> None:
        for method in (b"OPTIONS", b"GET", b"HEAD"):
            self.assertRaises(errors.MethodNotAllowed, Room().ask, call(method, b"sessions/start"))

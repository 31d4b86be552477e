"""Names of sessions in control calls: what may be one, whose it is, and how it is released."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.control import bodies
from sticky.edge.answers import refusal
from sticky.isticky import ControlRequest
from tests.control.calls import BEARER, Room, anonymous_start, body, call, start

NAME = b"X-Modal-Server-Session-Name"


def release(*headers: tuple[bytes, bytes], **more: object) -> ControlRequest:
    return call(b"POST", b"sessions/release", BEARER, *headers, **more)


class NameTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()

    def refused(self, request: ControlRequest) -> errors.BadSessionName:
        error: errors.BadSessionName = self.assertRaises(errors.BadSessionName, self.room.ask, request)
        return error

    def test_a_start_takes_the_name_to_the_sessions(self) -> None:
        self.room.pending(start((NAME, b"notebook")))
        (waiting,) = self.room.sessions.starts
        self.assertEqual((waiting.request.name, waiting.request.owner), ("notebook", "dev"))

    def test_names_are_opaque_text_and_never_a_path_to_anything(self) -> None:
        for name in ("../../etc/passwd", "/", ".", "a b", "%2e%2e", "x" * 128, "\N{SNOWMAN}" * 128, "sd-1", "'; --"):
            self.room.pending(start((NAME, name.encode())))
            self.assertEqual(self.room.sessions.starts[-1].request.name, name)

    def test_what_is_no_name_is_refused_and_not_repeated(self) -> None:
        for name in (
            b"",
            b"x" * 129,
            b"x" * 10_000,
            b"\xff",
            b"a\x00b",
            b"a\tb",
            b"a\x7fb",
            "\N{SNOWMAN}".encode() * 129,
        ):
            error = self.refused(start((NAME, name)))
            self.assertEqual(error.status, 400)
            self.assertNotIn("x" * 129, error.message)
        self.assertEqual(self.room.sessions.starts, [])

    def test_two_different_names_are_refused(self) -> None:
        self.refused(start((NAME, b"one"), (NAME, b"two")))

    def test_an_unauthenticated_server_takes_no_names_unless_they_are_public(self) -> None:
        self.assertIn("everybody", self.refused(anonymous_start((NAME, b"notebook"), named=False)).message)
        self.room.pending(anonymous_start((NAME, b"notebook"), named=True))
        self.assertEqual(self.room.sessions.starts[-1].request.owner, "")


class ReleaseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.named.add("notebook")

    def test_it_is_the_callers_own_name(self) -> None:
        answer = self.room.answer(release((NAME, b"notebook"), (b"X-Modal-Server-Session-Grace", b"2.5")))
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.room.sessions.released, [("dev", "notebook", 2.5)])

    def test_one_that_nobody_knows_is_404(self) -> None:
        error = self.assertRaises(errors.UnknownName, self.room.ask, release((NAME, b"other")))
        self.assertEqual((error.status, error.code), (404, "unknown_name"))

    def test_it_has_to_be_named(self) -> None:
        self.assertRaises(errors.BadSessionName, self.room.ask, release())

    def test_it_takes_a_proxy_token(self) -> None:
        request = call(b"POST", b"sessions/release", (NAME, b"notebook"))
        self.assertRaises(errors.NoCredential, self.room.ask, request)
        self.assertEqual(self.room.sessions.released, [])


class ExpiredTests(SynchronousTestCase):
    def test_the_answer_says_why(self) -> None:
        answer = refusal(errors.SessionExpired("idle_timeout"))
        self.assertEqual(answer.status, 410)
        said = body(answer)
        self.assertEqual((said["error"], said["reason"]), ("session_expired", "idle_timeout"))

    def test_so_does_an_event_stream(self) -> None:
        said = bodies.failed(errors.SessionExpired("container_lost", "killed"))
        self.assertEqual((said["error"], said["reason"], said["status"]), ("session_expired", "container_lost", 410))
        self.assertEqual(said["detail"], "killed")

    def test_the_detail_of_an_end_goes_along_and_is_left_out_where_there_is_none(self) -> None:
        for lost in (
            errors.SessionEnded("container_lost", "out_of_memory"),
            errors.SessionExpired("x", "out_of_memory"),
        ):
            self.assertEqual(body(refusal(lost))["detail"], "out_of_memory")
            self.assertEqual(bodies.failed(lost)["detail"], "out_of_memory")
        for other in (errors.SessionEnded("idle_timeout"), errors.SessionExpired("idle_timeout"), errors.BadGateway()):
            self.assertNotIn("detail", body(refusal(other)))

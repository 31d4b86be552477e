"""What a person reads when the daemon cannot be asked."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from sticky._version import __version__
from sticky.cli.client import Admin, path
from sticky.cli.problems import Problem
from tests.cli.daemon import CommandCase, Reply


class WhichTests(CommandCase):
    """What is typed counts more than what the environment says."""

    def test_a_state_directory_that_is_typed(self) -> None:
        self.listen()
        self.patch(
            os, "environ", {**os.environ, "STICKY_ADMIN_URL": "http://127.0.0.1:1", "STICKY_ADMIN_TOKEN": "wk-a.ws-b"}
        )
        self.assertIn("game", self.sticky("status"))
        self.assertEqual("", self.sticky("status", status=3, state=False))
        self.assertIn("cannot reach the daemon at http://127.0.0.1:1", self.captured.err)

    def test_a_url_that_is_typed(self) -> None:
        self.listen()
        env = {**os.environ, "STICKY_STATE_DIR": str(self.folder), "STICKY_ADMIN_TOKEN": "wk-a.ws-b"}
        self.patch(os, "environ", env)
        self.assertIn("game", self.sticky("status", state=False))
        self.sticky("status", "--url", "http://127.0.0.1:1", status=3, state=False)

    def test_a_session_token_for_an_admin_token(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_ADMIN_TOKEN": "v4.public.abc"})
        said = self.sticky("status", "--url", "http://127.0.0.1:1", status=2, state=False)
        self.assertEqual(said, "")
        self.assertIn("STICKY_ADMIN_TOKEN holds a session token, not a proxy token", self.captured.err)

    def test_both_are_too_many(self) -> None:
        self.assertIn("Give --url or --state-dir", self.complaint("status", "--url", "http://127.0.0.1:1", status=2))


class UnreachableTests(CommandCase):
    def test_no_state_directory(self) -> None:
        self.folder = self.folder / "gone"
        self.addCleanup(self.folder.mkdir)
        line = self.complaint("status", status=3)
        self.assertIn(f"no daemon runs with the state directory {self.folder}: it is not there.", line)
        self.assertIn("--state-dir or STICKY_STATE_DIR", line)

    def test_no_socket(self) -> None:
        self.assertIn("there is no admin socket. ", self.complaint("status", status=3))

    def test_a_daemon_that_died(self) -> None:
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(self.folder / "admin.sock"))
        dead.close()
        self.assertIn("has died: nobody listens", self.complaint("status", status=3))

    def test_no_permission(self) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        self.listen()
        self.patch(socket.socket, "connect", refuse)
        line = self.complaint("status", status=3)
        self.assertIn("you may not use", line)
        self.assertIn("as that user or as root", line)

    def test_a_path_that_no_socket_can_have(self) -> None:
        self.folder = self.folder / ("x" * 100)
        self.addCleanup(self.folder.mkdir)
        self.assertIn("too long for a socket", self.complaint("status", status=3))

    def test_the_daemon_is_silent(self) -> None:
        def silent(*_: object) -> None:
            raise TimeoutError

        self.patch(socket.socket, "connect", silent)
        self.assertIn("does not answer", self.complaint("status", status=3))

    def test_somebody_else_listens_there(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply({}, version=None)
        self.assertIn("is no Sticky daemon", self.complaint("status", status=3))
        self.replies["GET /v1/status"] = Reply([1])
        self.assertIn("is no Sticky daemon", self.complaint("status", status=3))

    def test_a_daemon_that_dies_in_the_middle_of_its_answer(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply(self.status(), lacks=3)
        self.assertIn("the daemon broke its answer off; it may have stopped", self.complaint("status", status=3))

    def test_a_daemon_that_dies_in_the_middle_of_a_line(self) -> None:
        self.listen()
        self.replies["GET /v1/lines"] = Reply(lines=[1, {"two": 2}], lacks=3)
        stream = Admin(self.folder).stream("/v1/lines")
        self.assertEqual(next(stream), 1)
        problem = self.assertRaises(Problem, next, stream)
        self.assertIn("the daemon broke the stream off", str(problem))

    def test_a_stream_that_cannot_be_connected_to(self) -> None:
        """Of one no time is known: it may take as long as it wants, once it has begun."""

        def silent(*_: object) -> None:
            raise TimeoutError

        self.patch(socket.socket, "connect", silent)
        problem = self.assertRaises(Problem, next, Admin(self.folder).stream("/v1/lines"))
        self.assertIn("the daemon does not answer on ", str(problem))


class VersionTests(CommandCase):
    def test_another_api_is_not_understood(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply({}, api="2", version="7.0")
        line = self.complaint("status", status=3)
        self.assertIn(f"is sticky 7.0, this command is {__version__}: they do not understand each other", line)
        self.assertIn("restart the daemon", line)

    def test_another_version_with_the_same_api_is_worth_a_warning(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply(self.status(), version="0.0.1")
        self.assertIn("game", self.sticky("status"))
        self.assertEqual(self.captured.err.count("warning: the daemon is sticky 0.0.1"), 1)


class RefusalTests(CommandCase):
    def test_a_refusal_is_its_message_and_what_to_do(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions"] = Reply(
            {"error": "queue_full", "message": "Too many session starts are waiting."}, 503
        )
        line = self.complaint("sessions", "start", status=1)
        self.assertTrue(line.startswith("too many session starts are waiting. Try again later."), line)

    def test_what_is_not_there_has_a_status_of_its_own(self) -> None:
        self.listen()
        for status, code in ((404, "unknown_session"), (410, "idle_timeout")):
            self.replies["GET /v1/sessions/sd-1"] = Reply({"error": code, "message": "Gone."}, status)
            self.complaint("sessions", "show", "sd-1", status=4)

    def test_an_answer_that_makes_no_sense(self) -> None:
        self.listen()
        self.replies["GET /v1/sessions/sd-1"] = Reply("?", 500)
        self.assertEqual(self.complaint("sessions", "show", "sd-1", status=1), "the daemon answered 500.")


class WhereTests(CommandCase):
    def test_the_state_directory_comes_from_the_environment(self) -> None:
        self.listen()
        self.patch(os, "environ", {**os.environ, "STICKY_STATE_DIR": str(self.folder)})
        self.assertIn("game", self.sticky("status", state=False))

    def test_else_it_is_below_the_working_directory(self) -> None:
        self.patch(os, "environ", {name: value for name, value in os.environ.items() if name != "STICKY_STATE_DIR"})
        before = Path.cwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        self.sticky("status", status=3, state=False)
        self.assertIn(f"{Path.cwd() / 'state'}: it is not there", self.captured.err)

    def test_a_socket_elsewhere_is_found(self) -> None:
        self.listen()
        state = self.folder / "other"
        state.mkdir()
        (state / "admin").write_text(f"{self.folder / 'admin.sock'}\n")
        self.assertIn("game", self.sticky("status", "--state-dir", str(state), state=False))

    def test_what_a_person_types_cannot_lead_to_another_call(self) -> None:
        self.assertEqual(path("sessions", "../status?x#y", "token"), "/v1/sessions/..%2Fstatus%3Fx%23y/token")

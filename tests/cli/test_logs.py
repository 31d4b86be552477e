"""What `sticky logs` asks of a daemon, and what it shows."""

from __future__ import annotations

import json

from sticky.admin.bodies import session as session_body
from tests.cli.daemon import CommandCase, Reply
from tests.fakes.inspection import session


class LogsTests(CommandCase):
    LINE = {"kind": "output", "server": "game", "container": "ct-box1", "text": "hello\x1b[2J"}
    EVENT = {"kind": "event", "time": 1e9, "level": "warn", "text": "careful", "number": 1}

    def setUp(self) -> None:
        super().setUp()
        self.listen()

    def test_lines_of_several_containers_say_whose_they_are(self) -> None:
        self.replies["GET /v1/logs"] = Reply(lines=[self.LINE])
        self.assertEqual(self.sticky("logs"), "game ct-box1 | hello\N{REPLACEMENT CHARACTER}[2J\n")
        self.assertEqual(self.calls(), ["GET /v1/logs?follow=0&lines=100"])

    def test_lines_of_one_container_are_as_they_are(self) -> None:
        self.replies["GET /v1/logs"] = Reply(lines=[{**self.LINE, "text": "x" * 300}])
        self.assertEqual(self.sticky("logs", "--container", "ct-box1"), "x" * 300 + "\n")
        self.assertEqual(self.sticky("containers", "logs", "ct-box1", "-n", "5"), "x" * 300 + "\n")
        self.assertEqual(self.calls()[-1], "GET /v1/logs?container=ct-box1&follow=0&lines=5")

    def test_the_daemon_itself(self) -> None:
        self.replies["GET /v1/logs"] = Reply(lines=[self.EVENT])
        self.assertRegex(self.sticky("logs", "--daemon"), r"^2001-09-0\dT\d\d:46:40\.000[+-]\d\d:\d\d warn  careful\n$")
        self.assertIn("kinds=events", self.calls()[-1])

    def test_what_the_daemon_says_in_several_lines_is_indented_and_what_steers_a_terminal_is_kept_from_it(self) -> None:
        self.replies["GET /v1/logs"] = Reply(lines=[{**self.EVENT, "text": "it died\n| a\x1b[2J\r\n| b\u2028c\n"}])
        said = self.sticky("logs", "--daemon").split("\n")
        self.assertTrue(said[0].endswith(" warn  it died"), said)
        self.assertEqual(said[1:], ["    | a\ufffd[2J\ufffd", "    | b\ufffdc", ""])

    def test_a_session_is_its_container_and_what_the_daemon_says_of_it(self) -> None:
        self.replies["GET /v1/sessions/sd-0"] = Reply(session_body(session(0)))
        self.replies["GET /v1/logs"] = Reply(lines=[self.EVENT, self.LINE])
        self.assertIn("careful\nhello", self.sticky("logs", "--session", "sd-0"))
        self.assertIn("container=ct-box1&session=sd-000&kinds=events%2Coutput", self.calls()[-1])

    def test_a_session_that_is_over_still_has_what_the_daemon_said(self) -> None:
        self.replies["GET /v1/sessions/sd-9"] = Reply({"error": "idle_timeout", "message": "Over."}, 410)
        self.replies["GET /v1/logs"] = Reply(lines=[self.EVENT])
        self.assertIn("careful", self.sticky("logs", "--session", "sd-9"))
        self.assertIn("follow=0&lines=100&session=sd-9&kinds=events", self.calls()[-1])
        self.assertEqual(self.captured.err, "sticky: over; what the daemon said of it:\n")
        self.sticky("logs", "-f", "--session", "sd-9")  # it never comes back: there is nothing to wait for
        self.assertIn("follow=0&", self.calls()[-1])

    def test_a_session_that_never_was(self) -> None:
        unknown = Reply({"error": "unknown_session", "message": "There is no such session."}, 404)
        self.replies["GET /v1/sessions/sd-9"] = self.replies["GET /v1/logs"] = unknown
        self.assertIn("there is no such session. It has ended", self.complaint("logs", "--session", "sd-9", status=4))

    def test_json_is_a_line_for_each(self) -> None:
        self.replies["GET /v1/logs"] = Reply(lines=[self.LINE, self.EVENT])
        self.assertEqual(
            [json.loads(line) for line in self.sticky("logs", "--json").splitlines()], [self.LINE, self.EVENT]
        )

    def test_only_one_choice(self) -> None:
        self.complaint("logs", "--server", "game", "--container", "ct-1", status=2)

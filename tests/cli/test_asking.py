"""`curl` and `sessions open`: the token gets there, and into no argument list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from sticky.cli import opening
from sticky.cli.opening import serve_once, with_token
from sticky.cli.problems import Problem
from tests.cli.daemon import TOKEN, CommandCase, Reply


class CurlTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        self.commands: list[list[str]] = []
        self.configs: list[str] = []
        self.status_of_curl = 0
        self.replies["POST /v1/sessions"] = Reply(self.credentials())
        self.replies["POST /v1/sessions/sd-new/terminate"] = Reply({"session_id": "sd-new"})
        self.replies["POST /v1/sessions/sd-1/token"] = Reply(self.credentials("sd-1"))
        case = self

        class Curl:
            def __init__(self, command: list[str], pass_fds: Sequence[int]) -> None:
                case.commands.append(command)
                case.configs.append(Path(command[2]).read_text())
                case.assertEqual(command[2], f"/dev/fd/{pass_fds[0]}")

            def wait(self) -> int:
                return case.status_of_curl

        self.patch(subprocess, "Popen", Curl)
        self.patch(shutil, "which", lambda name: f"/bin/{name}")

    def curl(self, *arguments: str, status: int = 0) -> str:
        """The configuration that it gets."""
        where = ["--state-dir", str(self.folder)]
        found = self.main("curl", *where, *arguments)
        self.assertEqual(found, status, self.captured.err)
        return self.configs[-1] if self.configs else ""

    def main(self, *arguments: str) -> Any:
        from sticky.cli import main

        self.captured.clear()
        return main(arguments)

    def test_as_a_session(self) -> None:
        config = self.curl("--session", "sd-1", "/a?b=c", "--", "-i", "--data", "@-")
        self.assertEqual(config, f'no-progress-meter\nheader = "modal-authorization: Bearer {TOKEN}"\n')
        (command,) = self.commands
        self.assertEqual(command[3:], ["-i", "--data", "@-", "http://127.0.0.1:1/a?b=c"])
        self.assertNotIn(TOKEN, " ".join(command))
        self.assertEqual(self.calls(), ["GET /v1/status", "POST /v1/sessions/sd-1/token"])

    def test_in_a_session_of_its_own_which_ends_with_it(self) -> None:
        self.status_of_curl = 22
        self.curl("/", status=22)
        self.assertEqual(self.calls()[-2:], ["POST /v1/sessions", "POST /v1/sessions/sd-new/terminate"])

    def test_a_control_call_has_the_proxy_token(self) -> None:
        self.assertIn('\nheader = "Authorization: Bearer wk-dev.ws-secret"\n', self.curl("/_modal/sessions"))
        self.assertNotIn("ws-secret", " ".join(self.commands[0]))
        self.assertEqual(set(self.calls()), {"GET /v1/status", "POST /v1/access"})

    def test_the_token_of_the_environment_comes_first(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_PROXY_TOKEN": "wk-own.ws-mine"})
        self.assertIn('\nheader = "Authorization: Bearer wk-own.ws-mine"\n', self.curl("/_modal/sessions"))

    def test_a_control_call_where_no_token_is_needed(self) -> None:
        self.give_bearer(None)
        self.assertEqual(self.curl("/_modal/sessions/start", "--", "-X", "POST"), "no-progress-meter\n")

    def test_on_a_terminal_curl_decides_about_its_meter(self) -> None:
        self.patch(sys.stdout, "isatty", lambda: True)
        self.give_bearer(None)
        self.assertEqual(self.curl("/_modal/sessions"), "")

    def test_a_signal_that_ends_curl(self) -> None:
        self.status_of_curl = -2
        self.curl("/", status=130)

    def test_the_path_is_not_a_url(self) -> None:
        self.curl("https://evil.example/", status=2)
        self.assertEqual(self.commands, [])

    def test_no_curl(self) -> None:
        self.patch(shutil, "which", lambda name: None)
        self.curl("/", status=1)
        self.assertIn("no curl on the PATH. Install it", self.captured.err)


class AddressTests(CommandCase):
    def test_the_token_joins_what_the_address_has(self) -> None:
        for url, wanted in (
            ("http://h/", "http://h/?t=a.b"),
            ("http://h/x?y=1", "http://h/x?y=1&t=a.b"),
            ("http://h/#top", "http://h/?t=a.b#top"),
        ):
            self.assertEqual(with_token(url, "t", "a.b"), wanted)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class OnceTests(CommandCase):
    def visit(self, url: str) -> tuple[int, str | None]:
        try:
            urllib.request.build_opener(NoRedirect).open(url, timeout=5)
        except urllib.error.HTTPError as answer:
            self.addCleanup(answer.close)
            self.assertEqual(answer.headers["cache-control"], "no-store")
            return answer.code, answer.headers["location"]
        raise AssertionError("an answer that is neither a redirect nor an error")

    def test_the_right_address_leads_on_once(self) -> None:
        found: list[Any] = []

        done = Event()

        def browser(url: str) -> None:
            try:
                self.assertNotIn("secret", url)
                found.append(self.visit(url.rpartition("/")[0] + "/guess"))
                found.append(self.visit(url))
            finally:
                done.set()

        serve_once("http://h/?t=secret", browser, 10.0)
        self.assertTrue(done.wait(10.0))
        self.assertEqual(found, [(404, None), (303, "http://h/?t=secret")])

    def test_nobody_comes(self) -> None:
        error = self.assertRaises(Problem, serve_once, "http://h/?t=secret", lambda url: None, 0.05)
        self.assertIn("no browser came", error.text)
        self.assertNotIn("secret", error.text + error.advice)

    def test_open_starts_a_session_and_hands_over_the_address(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions"] = Reply(self.credentials())
        targets: list[str] = []
        self.patch(opening, "serve_once", lambda target, *_: targets.append(target))
        self.assertEqual(self.sticky("sessions", "open", "--path", "/lobby"), "")
        self.assertEqual(targets, [f"http://127.0.0.1:1/lobby?modal_session_token={TOKEN}"])
        self.assertIn("session sd-new of game", self.captured.err)
        self.assertNotIn(TOKEN, self.captured.err)

    def test_the_address_for_a_program(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions"] = Reply(self.credentials())

        def once(target: str, opener: object, wait: float, show: Any) -> None:
            self.assertIsNone(opener)
            show("http://127.0.0.1:7/once")

        self.patch(opening, "serve_once", once)
        found = json.loads(self.sticky("sessions", "open", "--no-browser", "--json"))
        self.assertEqual(
            ("http://127.0.0.1:7/once", "sd-new", "game"), (found["address"], found["session_id"], found["server"])
        )
        self.assertNotIn(TOKEN, self.captured.out)
        self.assertRegex(
            self.captured.err,
            "open this address in a browser on this machine; it is good once, for 60 s, and leads into the session\n"
            r"sticky: from another machine: ssh -L 7:127\.0\.0\.1:7 -L 1:127\.0\.0\.1:1 \S+ there first",
        )

    def test_where_there_is_no_browser_a_person_is_told_what_to_do(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions"] = Reply(self.credentials())
        self.patch(webbrowser, "open", lambda address: False)
        said = self.sticky("sessions", "open", "--wait", "1", status=1)
        self.assertRegex(said, r"\Ahttp://127\.0\.0\.1:\d+/\S+\n\Z")
        self.assertIn("sticky: no browser is found here\nsticky: open this address in a browser", self.captured.err)

    def test_open_of_one_that_is_there(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions/sd-1/token"] = Reply(self.credentials("sd-1"))
        self.patch(opening, "serve_once", lambda *_: None)
        self.sticky("sessions", "open", "sd-1")
        self.assertEqual(self.calls(), ["POST /v1/sessions/sd-1/token"])

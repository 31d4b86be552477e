"""docs/websockets.md: every example on the page is run, and every code, setting and limit in it is the program's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from sticky.config.table import SERVER
from sticky.core.values import EndReason
from sticky.edge.handshake import RelayRules
from sticky.edge.wire import close_code
from tests.docs.pages import load
from tests.integration.daemon_case import DaemonCase
from tests.integration.running_daemon import ROOT, until
from tests.integration.test_game_browser import Window

PAGE = (ROOT / "docs" / "websockets.md").read_text()
BLOCKS = {(block.language, block.title or block.argument): block.text for block in load("websockets.md").blocks}


class PageTests(DaemonCase):
    def begin(self) -> str:
        """A daemon on what the page says; returns a session's token, got as the page says."""
        self.serve(BLOCKS["toml", "sticky.toml"])
        for (language, name), text in BLOCKS.items():
            if language == "python":
                (self.folder / name).write_text(text)
        answer = json.loads(self.bash("start"))
        self.session = str(answer["session_id"])
        return str(answer["token"])

    def at_hand(self, text: str) -> str:
        return text.replace("http://localhost:8080", self.url).replace("localhost:8080", self.url.partition("//")[2])

    def popen(self, name: str, token: str = "") -> subprocess.Popen[str]:
        script = self.at_hand(BLOCKS["sh", name])
        child = subprocess.Popen(
            ["bash", "-ec", script],
            cwd=self.folder,
            env={**os.environ, "TOKEN": token},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(child.kill)
        self.addCleanup(child.communicate)
        return child

    def bash(self, name: str, token: str = "") -> str:
        child = self.popen(name, token)
        out, _ = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 0)
        return out

    def end(self, token: str) -> None:
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token}
        fields["x-modal-server-session-grace"] = "0"
        self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)

    def test_the_programs(self) -> None:
        token = self.begin()
        self.assertEqual(self.bash("client", token).splitlines(), [f"session {self.session}", "hello"])
        again = self.popen("again", token)
        assert again.stdout is not None
        self.assertEqual(again.stdout.readline(), f"session {self.session}\n")
        self.end(token)
        self.assertEqual(again.stdout.readline(), "over: terminated\n")
        self.assertEqual(self.bash("again", token), "refused: 410\n")

    def test_the_client_that_comes_back_is_told_of_a_close_that_its_library_takes_for_an_ordinary_end(self) -> None:
        token = self.begin()
        again = self.popen("again", token)
        assert again.stdout is not None
        self.assertEqual(again.stdout.readline(), f"session {self.session}\n")
        self.daemon.stop()
        self.assertEqual(again.stdout.readline(), "over: server_stopped\n")

    def test_the_page_in_a_browser(self) -> None:
        token = self.begin()
        window = Window(self.folder / "profile")
        self.addCleanup(window.driver.quit)
        script = self.at_hand(BLOCKS["js", "offer"]).replace("console.log", "(window.said ??= []).push")
        window.driver.get(self.url)  # any page
        window.driver.execute_script(
            f"const token = arguments[0];\n{script};socket.onclose=(e)=>{{window.ended=[e.code,e.reason]}}", token
        )
        said = until("the page hears", lambda: window.driver.execute_script("return window.said || window.ended"))
        self.assertEqual(said, [f"session {self.session}", "modal-session"])  # the container selects none

    def test_all_examples_are_run(self) -> None:
        languages = {language for language, _ in BLOCKS}
        self.assertEqual(PAGE.count("```") // 2, len(BLOCKS))
        self.assertEqual(languages, {"python", "toml", "sh", "js"})
        self.assertEqual({name for language, name in BLOCKS if language == "sh"}, {"start", "client", "again"})

    def test_the_table_has_the_programs_own_codes_and_every_reason(self) -> None:
        rows = re.findall(r"^\| (\d{4}) \| ([^|]+) \|", PAGE, re.MULTILINE)
        codes = {reason.strip(" `"): int(code) for code, reasons in rows for reason in reasons.split(",")}
        for reason in EndReason:
            self.assertEqual(codes.pop(reason.value), close_code(reason), reason)
        self.assertEqual(
            codes,
            {
                "client_message_too_big": 1009,
                "container_message_too_big": 1009,
                "client_invalid_payload": 1007,
                "container_invalid_payload": 1007,
                "client_protocol_error": 1002,
                "container_protocol_error": 1011,
            },
        )

    def test_settings_and_defaults_are_those_of_the_program(self) -> None:
        rules = RelayRules()
        known = {setting.name for setting in SERVER}
        for name in ("ping_interval", "ping_timeout", "silent_timeout", "max_message_size", "websocket_refusal"):
            self.assertIn(f"`{name}", PAGE)
            self.assertIn(name, known)
        self.assertIn(f"`ping_interval` ({rules.ping_interval:g} s", PAGE)
        self.assertIn(f"`ping_timeout` ({rules.ping_timeout:g} s", PAGE)
        self.assertIn(f"`max_message_size` ({rules.max_message_size >> 20} MiB)", PAGE)
        self.assertTrue(Path(ROOT / "tests" / "integration" / "test_websockets_page.py").exists())

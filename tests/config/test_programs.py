"""Whether a Server's program is there is found out before a container fails for it."""

from __future__ import annotations

import os
from pathlib import Path

from sticky.config.programs import DEFAULT_PATH, absent
from sticky.config.settings import ServerSettings
from sticky.config.sources import Sources
from tests.config.toml import ConfigCase


class ProgramTests(ConfigCase):
    def setUp(self) -> None:
        super().setUp()
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        self.environ = {"PATH": f"/nowhere:{self.tools}"}

    def file(self, name: str, mode: int = 0o755) -> Path:
        path = self.folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
        return path

    def running(self, command: str, more: str = "") -> ServerSettings:
        (server,) = self.load(f'[servers.game]\ncommand = ["{command}", "{{port}}"]\n{more}').servers
        return server

    def said(self, command: str, more: str = "") -> str:
        return absent(self.running(command, more), self.environ)

    def test_by_its_path(self) -> None:
        self.assertEqual(self.said("./game"), f"there is no program ./game in {self.folder}")
        self.assertEqual(self.said("/nowhere/game"), "there is no program /nowhere/game")
        self.assertEqual(self.said("./tools"), f"there is no program ./tools in {self.folder}")
        game = self.file("game", 0o644)
        self.assertEqual(self.said("./game"), f"{game} is not executable (chmod +x)")
        game.chmod(0o755)
        self.assertEqual(self.said("./game"), "")
        self.assertEqual(self.said(str(game)), "")

    def test_on_the_path(self) -> None:
        self.assertEqual(self.said("game"), f"there is no program game on the PATH (/nowhere:{self.tools})")
        game = self.file("tools/game", 0o644)
        self.assertEqual(self.said("game"), f"{game} is not executable (chmod +x)")
        game.chmod(0o755)
        self.assertEqual(self.said("game"), "")

    def test_the_path_is_the_containers_own(self) -> None:
        self.file("tools/game")
        self.assertEqual(
            self.said("game", 'env = { PATH = "/elsewhere" }'), "there is no program game on the PATH (/elsewhere)"
        )
        self.environ = {}
        self.assertEqual(self.said("no-such-game"), f"there is no program no-such-game on the PATH ({DEFAULT_PATH})")
        self.assertEqual(self.said("sh"), "")

    def test_what_an_interpreter_is_to_run(self) -> None:
        self.file("tools/node")
        for command, said in (
            ("node", ""),
            ('node", "gone.js', f"there is no file gone.js in {self.folder}"),
            ('node", "/gone.mjs', "there is no file /gone.mjs"),
            ('node", "server', ""),  # it finds server.js
            ('node", "--check', ""),
            ('node", "{container_id}.js', ""),
            (f'{self.folder}/tools/node", "gone.js', f"there is no file gone.js in {self.folder}"),
        ):
            self.assertEqual(self.said(command), said, command)
        self.file("gone.js")
        self.assertEqual(self.said('node", "gone.js'), "")
        self.file("tools/prog")
        self.assertEqual(self.said('prog", "out.js'), "")  # which may be what it writes

    def test_only_child_processes_are_looked_for(self) -> None:
        self.assertEqual(self.said("game", 'backend = "memory"'), "")

    def test_whoever_reads_a_definition_is_warned(self) -> None:
        (self.folder / "sticky.toml").write_text(
            '[servers.game]\ncommand = ["./game"]\nhosts = ["a"]\n[servers.echo]\ncommand = ["sh"]\nhosts = ["b"]\n'
        )
        settings = Sources(Path("sticky.toml"), None, {}, self.folder).read(
            lambda *_: self.fail("there is no app"), os.environ, ["process"]
        )
        self.assertEqual(
            settings.warnings,
            (f"the command of game cannot be run: there is no program ./game in {self.folder}",),
        )

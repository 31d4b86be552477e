"""What is made of a child's answer. The children themselves are in tests/integration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from twisted.trial.unittest import TestCase

from sticky.containers import describe as module
from sticky.containers.describe import Description, Questions, describe
from sticky.errors import ConfigError
from sticky.sdk.declaration import AppDeclaration, ServerDeclaration

GAME = ServerDeclaration(name="Game", port=8000, sessioned=True, settings={"min_containers": 1})
ECHO = ServerDeclaration(name="Echo", port=None, sessioned=False, command=("./echo", "{port}"))
APP = AppDeclaration(name="games", servers=(GAME, ECHO), entrypoints=("main",))


class DescribeTests(TestCase):
    def setUp(self) -> None:
        self.cwd = Path(self.mktemp()).absolute()
        self.cwd.mkdir()
        (self.cwd / "game.py").write_text("")
        self.commands: list[Sequence[str]] = []

    def describe(
        self, app: str, answer: object, *, noise: bytes = b"", status: int = 0, python: str | None = None
    ) -> Description:
        def run(
            app: str,
            command: Sequence[str],
            directory: Path,
            timeout: float,
            out: IO[bytes],
            err: IO[bytes],
            _: Questions,
        ) -> int:
            self.commands.append(command)
            out.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
            err.write(noise)
            return status

        self.patch(module, "_run", run)
        return describe(app, python, self.cwd)

    def refused(self, app: str, answer: object, **arguments: Any) -> str:
        with self.assertRaises(ConfigError) as caught:
            self.describe(app, answer, **arguments)
        self.assertEqual(app, caught.exception.source)
        self.assertNotIn("\n", str(caught.exception))
        problem: str = caught.exception.problem
        return problem

    def test_all_servers_of_a_file(self) -> None:
        found = self.describe("game.py", APP.document())
        path = str(self.cwd / "game.py")
        self.assertEqual([[sys.executable, "-m", "sticky.containers.runtime", "describe", path]], self.commands)
        game, echo = found.servers
        self.assertEqual(("games", ("main",)), (found.app, found.entrypoints))
        self.assertEqual(
            (sys.executable, "-m", "sticky.containers.runtime", "serve", path, "--server", "Game"), game.command
        )
        self.assertEqual({"min_containers": 1, "sessioned": True}, dict(game.settings))
        self.assertEqual((8000, True, self.cwd, "games"), (game.port, game.reports_ready, game.directory, game.app))
        self.assertEqual((("./echo", "{port}"), None, False), (echo.command, echo.port, echo.reports_ready))
        self.assertEqual({"sessioned": False}, dict(echo.settings))

    def test_one_server_by_name(self) -> None:
        self.assertEqual(["Echo"], [server.name for server in self.describe("game.py:Echo", APP.document()).servers])
        self.assertEqual(
            "there is no Server 'Nope' in the app 'games'; it has: Game, Echo",
            self.refused("game.py:Nope", APP.document()),
        )

    def test_a_module(self) -> None:
        (server,) = self.describe("package.module:Game", APP.document()).servers
        self.assertEqual("package.module", self.commands[0][-1])
        self.assertEqual(("serve", "package.module", "--server", "Game"), server.command[-4:])

    def test_another_interpreter_asks_and_runs(self) -> None:
        game = self.describe("game.py", APP.document(), python="venv/bin/python").servers[0]
        self.assertEqual(str(self.cwd / "venv/bin/python"), self.commands[0][0])
        self.assertEqual(self.commands[0][0], game.command[0])
        self.assertEqual(
            "python3.12", self.describe("game.py", APP.document(), python="python3.12").servers[0].command[0]
        )

    def test_an_interpreter_that_the_app_names_is_relative_to_its_file(self) -> None:
        (self.cwd / "apps").mkdir()
        (self.cwd / "apps" / "game.py").write_text("")
        own = ServerDeclaration(name="Game", port=1, sessioned=True, python="../venv/bin/python")
        with self.assertRaisesRegex(ConfigError, "Game.python: there is no interpreter .*/venv/bin/python"):
            self.describe("apps/game.py", AppDeclaration(name="a", servers=(own,)).document())
        (self.cwd / "venv/bin").mkdir(parents=True)
        (self.cwd / "venv/bin/python").touch(0o755)
        (server,) = self.describe("apps/game.py", AppDeclaration(name="a", servers=(own,)).document()).servers
        self.assertEqual(str(self.cwd / "apps" / "../venv/bin/python"), server.command[0])

    def test_no_file_asks_nobody(self) -> None:
        self.assertEqual(f"there is no file {self.cwd / 'gone.py'}", self.refused("gone.py", b""))
        self.assertEqual([], self.commands)

    def test_an_app_without_servers(self) -> None:
        self.assertIn("has no Server", self.refused("game.py", AppDeclaration(name="a", servers=()).document()))

    def test_the_childs_own_error(self) -> None:
        self.assertEqual("no App", self.refused("game.py", {"error": "no App", "traceback": "T\nT"}, status=1))

    def test_a_child_that_says_nothing(self) -> None:
        problem = self.refused("game.py", b"", noise=b"loading\nFatal Python error: boom\n\n", status=-11)
        self.assertEqual("importing it ended the interpreter (status -11): Fatal Python error: boom", problem)

    def test_an_interpreter_without_sticky(self) -> None:
        noise = b"/usr/bin/python3: Error while finding module specification (No module named 'sticky')"
        self.assertIn("has no sticky installed", self.refused("game.py", b"", noise=noise, status=1))

    def test_an_endless_answer_is_cut(self) -> None:
        self.assertEqual(
            "its description is longer than 1048576 bytes", self.refused("game.py", b"x" * (1 << 20) + b"xx")
        )

    def test_an_answer_that_is_no_declaration(self) -> None:
        answers: tuple[object, ...] = (b"rubbish", b"\xff", [], {"schema": 99})
        for answer in answers:
            self.assertIn("its description cannot be read", self.refused("game.py", answer))

    def test_secrets_of_the_daemon_are_not_handed_on(self) -> None:
        self.patch(os, "environ", {"PATH": "/bin", "LC_ALL": "C", "STICKY_SECRET": "x", "AWS_KEY": "x"})
        self.assertEqual({"PATH": "/bin", "LC_ALL": "C"}, module._environment(os.environ))

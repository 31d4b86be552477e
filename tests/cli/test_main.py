"""The command line's statuses and one-line errors."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from sticky import cli
from sticky._version import __version__
from sticky.admin.bodies import API
from sticky.cli.document import commands
from sticky.cli.options import Example
from sticky.cli.root import root
from sticky.sdk import run as run_module
from sticky.sdk.exception import ConnectionError, InvalidError
from sticky.sdk.loading import LoadError


class ImportTests(TestCase):
    def test_a_command_does_not_wait_for_the_imports_of_the_daemon(self) -> None:
        code = "import sys, sticky.cli.once; print(sorted({name.partition('.')[0] for name in sys.modules}))"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for heavy in ("twisted", "autobahn", "OpenSSL", "cryptography", "nacl"):
            self.assertNotIn(f"'{heavy}'", ended.stdout)
        self.assertIn("'rich'", ended.stdout)


class CommandTests(TestCase):
    def setUp(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.patch(sys, "stdout", self.out)
        self.patch(sys, "stderr", self.err)

    def folder(self) -> Path:
        """With a short path: the admin socket's, below it, has 107 bytes at most."""
        path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, path)
        return Path(path)

    def run_ends_with(self, outcome: BaseException | int) -> int:
        def run_entrypoint(target: str, *, beside: object) -> int:
            self.assertEqual("game.py", target)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        self.patch(run_module, "run_entrypoint", run_entrypoint)
        self.patch(signal, "signal", lambda *arguments: None)
        return cli.main(["run", "game.py"])

    def test_version(self) -> None:
        self.assertEqual(0, cli.main(["version"]))
        self.assertEqual(f"sticky {__version__}\n", self.out.getvalue())

    def test_wrong_usage_is_one_line_and_status_2(self) -> None:
        wrong: Any
        for wrong in (("fly",), ("run",), ("run", "a", "b"), ("version", "--loud"), ("sessions", "fly")):
            self.err.truncate(0)
            self.err.seek(0)
            self.assertEqual(2, cli.main(wrong))
            self.assertEqual(1, self.err.getvalue().count("\n"), self.err.getvalue())
            self.assertRegex(self.err.getvalue(), r"^sticky: .* \(see sticky[a-z ]* --help\)\n$")
        self.assertEqual("", self.out.getvalue())

    def test_nothing_to_do_shows_what_there_is(self) -> None:
        for arguments in ((), ("sessions",)):
            self.assertEqual(2, cli.main(arguments))
            self.assertIn("Commands:", self.err.getvalue())
        self.assertEqual("", self.out.getvalue())

    def test_help_is_no_error(self) -> None:
        for arguments in (("--help",), ("-h",)):
            self.assertEqual(0, cli.main(arguments))
            self.assertIn("check", self.out.getvalue())

    def test_every_command_has_help_with_an_example(self) -> None:
        found = list(commands(root, "sticky"))
        self.assertGreater(len(found), 20)
        for path, command in found:
            self.out.truncate(0)
            self.out.seek(0)
            self.assertEqual(0, cli.main([*path.split()[1:], "--help"]))
            self.assertIn("Example:\n  ", self.out.getvalue(), path)
            assert isinstance(command, Example)
            self.assertIn(path, command.example)

    def test_every_command_that_answers_has_json(self) -> None:
        # What these print is somebody else's: a program's, a screen's, a shell's.
        others = {"run", "serve", "top", "curl", "completion", "containers exec"}
        without = {
            path.removeprefix("sticky ")
            for path, command in commands(root, "sticky")
            if not any("--json" in parameter.opts for parameter in command.params)
        }
        self.assertEqual(others, without)
        self.assertEqual(0, cli.main(["version", "--json"]))
        self.assertEqual({"version": __version__, "api": API}, json.loads(self.out.getvalue()))

    def test_whoever_reads_the_output_may_leave(self) -> None:
        class Closed(io.StringIO):
            def write(self, text: str) -> int:
                raise BrokenPipeError

        self.patch(sys, "stdout", Closed())
        self.patch(os, "dup2", lambda *arguments: None)
        self.assertEqual(141, cli.main(["version"]))
        self.assertEqual("", self.err.getvalue())

    def test_completion_for_each_shell(self) -> None:
        for shell in ("bash", "zsh", "fish"):
            self.assertEqual(0, cli.main(["completion", shell]))
            self.assertIn("_STICKY_COMPLETE", self.out.getvalue())
        self.assertIn("string split --max 1 ", self.out.getvalue())  # ours, in fish's: see `root.completion`
        self.assertEqual(2, cli.main(["completion", "tcsh"]))

    def test_run_gives_the_entrypoints_status(self) -> None:
        self.assertEqual(1, self.run_ends_with(1))
        self.assertEqual(0, self.run_ends_with(0))
        self.assertEqual("", self.err.getvalue())

    def test_a_wrong_app_is_status_2(self) -> None:
        self.assertEqual(2, self.run_ends_with(InvalidError("port=0 is\nnot allowed")))
        self.assertEqual("sticky: port=0 is not allowed\n", self.err.getvalue())

    def test_an_import_that_fails_shows_the_users_traceback(self) -> None:
        self.assertEqual(2, self.run_ends_with(LoadError("importing it failed", "Traceback ...\n")))
        self.assertEqual("Traceback ...\nsticky: importing it failed\n", self.err.getvalue())

    def test_a_daemon_that_does_not_come_is_status_1(self) -> None:
        self.assertEqual(1, self.run_ends_with(ConnectionError("no daemon")))
        self.assertEqual("sticky: no daemon\n", self.err.getvalue())

    def test_ctrl_c_is_status_130(self) -> None:
        self.assertEqual(130, self.run_ends_with(KeyboardInterrupt()))

    def test_check_says_what_would_run(self) -> None:
        folder = self.folder()
        (folder / "sticky.toml").write_text('[servers.echo]\ncommand = ["./echo", "{port}"]\nmax_containers = 3\n')
        self.assertEqual(0, cli.main(["check", str(folder / "sticky.toml")]), self.err.getvalue())
        self.assertIn(
            "echo: 0 to 3 containers, up to 1000 sessions each, backend process: ./echo {port}\n", self.out.getvalue()
        )
        self.assertIn("listens on tcp:8080:interface=127.0.0.1\n", self.out.getvalue())

    def test_check_refuses_with_file_key_and_what_is_allowed(self) -> None:
        folder = self.folder()
        (folder / "sticky.toml").write_text('[servers.echo]\ncommand = ["./echo"]\nmax_containers = 0\n')
        self.assertEqual(2, cli.main(["check", str(folder / "sticky.toml")]))
        line = self.err.getvalue()
        self.assertEqual(1, line.count("\n"))
        for part in ("sticky.toml", "max_containers", "0 is not allowed", "from 1 to 10000"):
            self.assertIn(part, line)

    def test_check_warns_of_what_a_daemon_here_would_refuse(self) -> None:
        file = self.folder() / "sticky.toml"
        file.write_text('[servers.echo]\ncommand = ["true", "{port}"]\nmemory = "8Mi"\n')
        self.assertEqual(0, cli.main(["check", str(file)]), self.err.getvalue())
        self.assertEqual(
            "sticky: warning: a daemon that you start here would refuse this: Server echo: memory: is too little to start anything in; "
            "allowed: 16Mi and more\n",
            self.err.getvalue(),
        )
        self.assertEqual(1, cli.main(["check", "--strict", str(file)]))

    def test_check_of_a_missing_app(self) -> None:
        self.assertEqual(2, cli.main(["check", "no-such-game.py"]))
        self.assertIn("sticky: no-such-game.py: there is no file", self.err.getvalue())

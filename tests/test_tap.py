"""The command line of `twistd sticky`: what it gives, and how it refuses."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from twisted.application.service import IService, Service
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors, tap, wiring
from sticky._version import __version__
from sticky.config.settings import Settings
from sticky.config.sources import Sources

FILE = '[servers.echo]\ncommand = ["sleep", "{port}"]\n'


class OptionsCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = self.folder / "sticky.toml"
        self.file.write_text(FILE)
        self.stderr, self.stdout = io.StringIO(), io.StringIO()
        self.patch(sys, "stderr", self.stderr)
        self.patch(sys, "__stderr__", self.stderr)
        self.patch(sys, "stdout", self.stdout)

    def options(self, *arguments: str) -> tap.Options:
        options = tap.Options()
        options.parseOptions(list(arguments))
        return options

    def refused(self, *arguments: str) -> str:
        """The one line on stderr of a command line that ends with status 2."""
        error = self.assertRaises(SystemExit, self.options, *arguments)
        self.assertEqual(error.code, 2)
        line = self.stderr.getvalue()
        self.stderr.truncate(0)
        self.stderr.seek(0)
        self.assertTrue(line.startswith("sticky: ") and line.endswith("\n"), line)
        self.assertEqual(line.count("\n"), 1)
        self.assertEqual(self.stdout.getvalue(), "")
        return line.removeprefix("sticky: ").removesuffix("\n")


class OptionsTests(OptionsCase):
    def test_a_file_alone(self) -> None:
        settings = self.options("--config", str(self.file)).settings
        self.assertEqual([server.name for server in settings.servers], ["echo"])
        self.assertEqual(self.stderr.getvalue(), "")
        self.assertEqual(settings.daemon.listen, ("tcp:8080:interface=127.0.0.1",))
        self.assertEqual(settings.daemon.state_dir, self.folder / "state")

    def test_the_command_line_wins(self) -> None:
        settings = self.options(
            *("--config", str(self.file), "--listen", "tcp:1", "--listen=tcp:2", "--state-dir", f"{self.folder}/s"),
            "--workers=1",
        ).settings
        self.assertEqual(settings.daemon.listen, ("tcp:1", "tcp:2"))
        self.assertEqual(settings.daemon.state_dir, self.folder / "s")

    def test_warnings_are_lines_on_stderr(self) -> None:
        self.file.write_text(f'{FILE}[[proxy_tokens]]\nid = "wk-a"\nowner = "o"\nsecret = "ws-12345678"')
        self.options("--config", str(self.file), "--ephemeral")
        line = self.stderr.getvalue()
        self.assertTrue(line.startswith(f"sticky: warning: {self.file}: proxy_tokens[0].secret: "), line)
        self.assertEqual(line.count("\n"), 1)
        self.assertNotIn("12345678", line)

    def test_the_version_is_ours(self) -> None:
        error = self.assertRaises(SystemExit, self.options, "--version")
        self.assertEqual((error.code, self.stdout.getvalue()), (0, f"sticky {__version__}\n"))

    def test_help_names_every_option(self) -> None:
        error = self.assertRaises(SystemExit, self.options, "--help")
        self.assertEqual(error.code, 0)
        for option in ("--app=", "--config=", "--listen=", "--state-dir=", "--workers="):
            self.assertIn(option, self.stdout.getvalue())


class RefusalTests(OptionsCase):
    def test_nothing_to_serve(self) -> None:
        self.assertEqual(
            self.refused(), "command line: nothing to serve; give --app game.py, --config sticky.toml or both"
        )

    def test_unknown_options_and_arguments(self) -> None:
        self.assertEqual(
            self.refused("--lisen", "x"), "command line: option --lisen not recognized; see twistd sticky --help"
        )
        self.assertEqual(
            self.refused("--config"), "command line: option --config requires argument; see twistd sticky --help"
        )
        self.assertEqual(
            self.refused("game.py"),
            "command line: unexpected argument 'game.py'; apps and files are given by --app and --config; "
            "see twistd sticky --help",
        )

    def test_wrong_values_of_options(self) -> None:
        config = ("--config", str(self.file))
        for text, expected in {
            "0": "--workers: 0 is not allowed; allowed: a whole number from 1 to 64",
            "two": '--workers: "two" is not allowed; allowed: a whole number from 1 to 64',
            "-1": '--workers: "-1" is not allowed; allowed: a whole number from 1 to 64',
        }.items():
            self.assertEqual(self.refused(*config, f"--workers={text}"), f"command line: {expected}")
        self.assertIn("command line: --listen: '80a' is not a port", self.refused(*config, "--listen=tcp:80a"))
        self.assertIn("command line: --state-dir: ", self.refused(*config, "--state-dir", str(self.file)))

    def test_a_wrong_file_names_key_value_and_what_is_allowed(self) -> None:
        self.file.write_text(f"{FILE}max_containers = 0")
        self.assertEqual(
            self.refused("--config", str(self.file)),
            f"{self.file}: servers.echo.max_containers: 0 is not allowed; allowed: a whole number from 1 to 10000",
        )
        self.assertEqual(
            self.refused("--config", f"{self.folder}/gone.toml"),
            f"{self.folder}/gone.toml: cannot be read: No such file or directory",
        )

    def test_names_from_a_file_cannot_break_the_line(self) -> None:
        self.file.write_text('"a\\nb\\u001b[31m" = 1')
        line = self.refused("--config", str(self.file))
        self.assertIn(": a b [31m: is not a setting; ", line)

    def test_an_app_that_is_not_there(self) -> None:
        line = self.refused("--app", f"{self.folder}/gone.py")
        self.assertIn("gone.py", line)


class MakeServiceTests(OptionsCase):
    def warnings(self, *arguments: str) -> list[str]:
        self.patch(wiring, "make_service", lambda *settings: Service())
        options = self.options("--config", str(self.file), *arguments)
        with capturedLogs() as events:
            tap.makeService(options)
        self.assertEqual(self.stderr.getvalue(), "")  # nothing is wrong
        return [str(event["what"]) for event in events]

    def test_containers_that_can_read_the_keys_are_warned_of(self) -> None:
        self.patch(os, "geteuid", lambda: 0)
        hidden = '[servers.hidden]\ncommand = ["true"]\nhosts = ["h.localhost"]\nisolation = { read_only = true }\n'
        other = '[servers.other]\ncommand = ["true"]\nhosts = ["o.localhost"]\nuser = "nobody"\n'
        self.file.write_text(f'{FILE}hosts = ["e.localhost"]\n{hidden}{other}')
        (warning,) = self.warnings()
        self.assertTrue(warning.startswith("containers of echo run as root: "), warning)

    def test_nobody_is_warned_of_a_program_that_is_only_tried_out(self) -> None:
        self.assertEqual(self.warnings("--ephemeral"), [])

    def test_the_settings_are_what_is_wired(self) -> None:
        options = self.options("--config", str(self.file))
        service = Service()
        wired: list[tuple[Settings, Sources]] = []

        def make_service(settings: Settings, sources: Sources, twistd: object) -> IService:
            wired.append((settings, sources))
            return service

        self.patch(wiring, "make_service", make_service)
        self.assertIs(tap.makeService(options), service)
        self.assertEqual(wired, [(options.settings, options.sources)])
        self.assertEqual((options.sources.file, options.sources.app), (self.file, None))

    def test_what_turns_out_wrong_while_wiring_is_refused_alike(self) -> None:
        options = self.options("--config", str(self.file))

        def damaged(*settings: object) -> None:
            raise errors.ConfigError("state/key", "", "is damaged")

        self.patch(wiring, "make_service", damaged)
        error = self.assertRaises(SystemExit, tap.makeService, options)
        self.assertEqual((error.code, self.stderr.getvalue()), (2, "sticky: state/key: is damaged\n"))

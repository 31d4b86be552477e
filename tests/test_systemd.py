"""The unit files that are shipped or shown: systemd takes them, the command takes their lines, and their times fit the daemon's."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from sticky.cli.restarting import STARTING
from sticky.config.table import DAEMON
from sticky.restarting import STARTS_WITHIN, TAKES_OVER_WITHIN
from tests.docs.pages import load
from tests.docs.test_commands import take

ROOT = Path(__file__).parents[1]
UNITS = ROOT / "contrib" / "systemd"

LATER = ("DelegateSubgroup",)  #: since systemd 254; an earlier one says so, and passes it over

#: Directives that our units use, with the manual page that says what they mean.
KNOWN = {
    "Unit": {
        "Description": "systemd.unit(5)",
        "After": "systemd.unit(5)",
        "Wants": "systemd.unit(5)",
        "StartLimitIntervalSec": "systemd.unit(5)",
    },
    "Service": {
        "Type": "systemd.service(5)",
        "NotifyAccess": "systemd.service(5)",
        "ExecStart": "systemd.service(5)",
        "ExecReload": "systemd.service(5)",
        "Restart": "systemd.service(5)",
        "RestartSec": "systemd.service(5)",
        "TimeoutStartSec": "systemd.service(5)",
        "TimeoutStopSec": "systemd.service(5)",
        "OOMPolicy": "systemd.service(5)",
        "KillMode": "systemd.kill(5)",
        "User": "systemd.exec(5)",
        "WorkingDirectory": "systemd.exec(5)",
        "StateDirectory": "systemd.exec(5)",
        "StateDirectoryMode": "systemd.exec(5)",
        "CacheDirectory": "systemd.exec(5)",
        "CacheDirectoryMode": "systemd.exec(5)",
        "LimitNOFILE": "systemd.exec(5)",
        "NoNewPrivileges": "systemd.exec(5)",
        "ProtectSystem": "systemd.exec(5)",
        "TasksMax": "systemd.resource-control(5)",
        "Delegate": "systemd.resource-control(5)",
        "DelegateSubgroup": "systemd.resource-control(5)",
    },
    "Socket": {"ListenStream": "systemd.socket(5)", "Backlog": "systemd.socket(5)"},
    "Install": {"WantedBy": "systemd.unit(5)"},
}


def parsed(text: str) -> configparser.RawConfigParser:
    """systemd.syntax(7), as far as our units go: no directive twice, no continued lines."""
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def units() -> dict[str, str]:
    """By name: those of the package, and those that pages show."""
    found = {path.name: path.read_text() for path in sorted(UNITS.iterdir())}
    for block in load("production.md").blocks:
        if block.title.endswith((".service", ".socket")):
            found[f"shown-{block.title}"] = block.text
    return found


class UnitTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.units = units()
        self.assertGreaterEqual(set(self.units), {"sticky.service", "sticky.socket", "shown-sticky.service"})

    def test_every_directive_is_one_that_systemd_has_there(self) -> None:
        for name, text in self.units.items():
            unit = parsed(text)
            for section in unit.sections():
                self.assertEqual(set(unit[section]) - set(KNOWN[section]), set(), f"{name} [{section}]")

    def test_systemd_itself_finds_nothing_wrong(self) -> None:
        analyze = shutil.which("systemd-analyze")
        if analyze is None:
            raise SkipTest("systemd-analyze is not installed")
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        here = Path(sys.executable).parent
        for name, text in self.units.items():
            # The programs are where the operator installed them; a verification wants them to be there.
            text = re.sub(r"/(?:opt|srv)/[\w/]*bin/(twistd|sticky)", lambda found: str(here / found[1]), text)
            (folder / name).write_text(text)
        for name in self.units:
            done = subprocess.run(
                [analyze, "verify", "--man=no", name], cwd=folder, capture_output=True, text=True, timeout=120
            )
            said = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
            said = [line for line in said if not any(f"'{one}'" in line and "Unknown key" in line for one in LATER)]
            self.assertEqual((done.returncode, said), (0, []), done.stdout + done.stderr)

    def test_the_command_takes_their_lines(self) -> None:
        reload = parsed(self.units["sticky.service"])["Service"]["ExecReload"]
        program, *words = shlex.split(reload)
        self.assertEqual(Path(program).name, "sticky")
        take(words)
        for name in ("sticky.service", "shown-sticky.service"):
            program, *words = shlex.split(parsed(self.units[name])["Service"]["ExecStart"])
            self.assertEqual((Path(program).name, words[:3]), ("twistd", ["-n", "--pidfile=", "sticky"]))
            options = words[3:]
            self.assertEqual(len(options) % 2, 0)
            known = {"--config", "--app", "--state-dir", "--listen", "--workers"}
            self.assertEqual(set(options[::2]) - known, set(), name)

    def test_a_stop_has_the_time_that_a_tidy_one_takes_and_a_reload_that_of_a_restart(self) -> None:
        service = parsed(self.units["sticky.service"])["Service"]
        shutdown = next(setting.default for setting in DAEMON if setting.name == "shutdown_timeout")
        assert isinstance(shutdown, int | float)
        self.assertGreater(float(service["TimeoutStopSec"]), shutdown + 5)
        # systemd.service(5): TimeoutStartSec holds for ExecReload, too.
        self.assertGreaterEqual(float(service["TimeoutStartSec"]), STARTS_WITHIN + TAKES_OVER_WITHIN)
        self.assertGreater(STARTING, STARTS_WITHIN + TAKES_OVER_WITHIN)

    def test_what_must_live_on_is_left_alone(self) -> None:
        for name in ("sticky.service", "shown-sticky.service"):
            service = parsed(self.units[name])["Service"]
            self.assertEqual(service["KillMode"], "process", name)
            # systemd.service(5): by default one process of the unit that is killed for want of memory is the unit's end.
            self.assertEqual(service["OOMPolicy"], "continue", name)
        self.assertEqual(parsed(self.units["sticky.service"])["Unit"]["StartLimitIntervalSec"], "0")
        service = parsed(self.units["sticky.service"])["Service"]
        self.assertEqual((service["Type"], service["NotifyAccess"], service["Restart"]), ("notify", "all", "always"))


class RecipeTests(SynchronousTestCase):
    def test_the_recipe_for_a_container_starts_what_the_unit_starts_and_is_stopped_as_tidily(self) -> None:
        (recipe,) = (block.text for block in load("operating.md").blocks if block.text.startswith("FROM "))
        said = dict(line.split(" ", 1) for line in recipe.splitlines())
        program, *words = json.loads(said["CMD"])
        self.assertEqual((program, words[:3]), ("twistd", ["-n", "--pidfile=", "sticky"]))
        options = dict(zip(words[3::2], words[4::2], strict=True))
        self.assertEqual(options, {"--config": "sticky.toml", "--state-dir": said["VOLUME"]})
        self.assertEqual(said["STOPSIGNAL"], "SIGTERM")
        (timeout,) = (
            int(found) for found in re.findall(r"--stop-timeout (\d+)", (ROOT / "docs/operating.md").read_text())
        )
        shutdown = next(setting.default for setting in DAEMON if setting.name == "shutdown_timeout")
        assert isinstance(shutdown, int | float)
        self.assertGreater(timeout, shutdown + 5)

"""`twistd sticky` in children of its own: exit status and stderr of wrong configurations, and where user code runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky import tap

ROOT = Path(__file__).parents[2]
DEADLINE = 60  #: seconds for a child that takes one

APP = """
import os
import sticky

with open({witness!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")

app = sticky.App("witness")

@app.server({arguments})
@sticky.sessioned()
class Server:
    @sticky.enter()
    def start(self):
        pass
"""


class CommandLineCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def app(self, arguments: str = "") -> Path:
        """An app that writes down which process imported it."""
        self.witness = self.folder / "witness"
        return self.write("app.py", APP.format(witness=str(self.witness), arguments=arguments))

    def twistd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", *arguments]
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=DEADLINE)

    def refused(self, *arguments: str) -> str:
        """The line on stderr."""
        ended = self.twistd(*arguments)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""), ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertTrue(ended.stderr.startswith("sticky: "), ended.stderr)
        return ended.stderr.removeprefix("sticky: ").removesuffix("\n")


class RefusalTests(CommandLineCase):
    def test_a_wrong_file_ends_before_daemonizing(self) -> None:
        self.write("sticky.toml", '[servers.echo]\ncommand = ["x"]\nmax_containers = 0')
        expected = "sticky.toml: servers.echo.max_containers: 0 is not allowed; allowed: a whole number from 1 to 10000"
        self.assertEqual(self.refused("sticky", "--config", "sticky.toml"), expected)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["sticky.toml"])

    def test_a_wrong_command_line(self) -> None:
        line = self.refused("-n", "sticky", "--lisen", "tcp:1")
        self.assertEqual(line, "command line: option --lisen not recognized; see twistd sticky --help")
        self.assertIn("nothing to serve", self.refused("-n", "sticky"))

    def test_a_wrong_decorator_argument_names_it(self) -> None:
        self.app("max_containers=0")
        line = self.refused("-n", "sticky", "--app", "app.py")
        self.assertIn("app.py", line)
        self.assertIn("max_containers", line)

    def test_an_app_that_cannot_be_imported(self) -> None:
        self.write("app.py", "import nothing_of_this_name")
        self.assertIn("nothing_of_this_name", self.refused("-n", "sticky", "--app", "app.py"))

    def test_a_server_that_the_app_does_not_have(self) -> None:
        self.app()
        line = self.refused("-n", "sticky", "--app", "app.py:Sever")
        self.assertIn("Sever", line)
        self.assertIn("Server", line)


class ReadmeTests(CommandLineCase):
    def test_its_file_is_a_configuration(self) -> None:
        (block,) = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        options = tap.Options()
        file = self.write("sticky.toml", block)
        options.parseOptions(["--config", str(file), "--state-dir", str(self.folder / "state")])
        (server,) = options.settings.servers
        self.assertEqual((server.name, server.policy.max_concurrency, server.policy.max_containers), ("files", 20, 4))


class UserCodeTests(CommandLineCase):
    def test_an_app_is_imported_by_a_child_only(self) -> None:
        path = self.app("max_containers=2")
        self.patch(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})
        options = tap.Options()
        options.parseOptions(["--app", str(path), "--state-dir", str(self.folder / "state")])
        (server,) = options.settings.servers
        self.assertEqual((server.name, server.app, server.policy.max_containers), ("Server", "witness", 2))
        self.assertTrue(server.reports_ready)
        importers = self.witness.read_text().split()
        self.assertNotEqual(importers, [])
        self.assertNotIn(str(os.getpid()), importers)

    def test_the_command_needs_no_reactor_of_its_own_until_it_runs(self) -> None:
        code = (
            "import pkgutil, sys, importlib, sticky\n"
            "names = [module.name for module in pkgutil.walk_packages(sticky.__path__, 'sticky.')]\n"
            "for name in [*names, 'twisted.plugins.sticky_plugins']:\n"
            "    importlib.import_module(name)\n"
            "assert len(names) > 20, names\n"
            "assert 'twisted.internet.reactor' not in sys.modules\n"
        )
        ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

"""`pip install .` into an empty environment gives `twistd sticky` and `sticky`, used from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky._version import __version__
from tests.integration.running_daemon import Running

ROOT = Path(__file__).parents[2]
SHIPPED = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "sticky", "twisted")
#: Another Python than the one that runs the tests, where there is one: users have Debian's as often as any.
PYTHON = "/usr/bin/python3"
SERVERS = """
[servers.game]
command = ["{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]
hosts = ["localhost"]

[servers.calls]
sandbox = { }
hosts = ["calls.localhost"]
"""
CALLS = """
import sticky

@sticky.remote(server="calls")
def add(numbers):
    global total
    total = globals().get("total", 0) + sum(numbers)
    return total

with sticky.Session(server="calls") as session:
    print([add.bind(session)([n]) for n in range(20)][-1])
print(sum(add([n]) for n in range(5)))
"""
INSTALLING = 300  #: seconds; Twisted and its friends come from the package index or pip's cache
DEADLINE = 60


class InstallTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.elsewhere = self.folder / "elsewhere"
        self.elsewhere.mkdir()

    def run_in(
        self, folder: Path, *command: str | Path, timeout: int = DEADLINE, env: dict[str, str] | None = None
    ) -> str:
        """What the command prints; it must succeed without a word on stderr that is a traceback."""
        environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environ |= env or {}
        ended = subprocess.run(
            [str(part) for part in command], cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout
        )
        self.assertEqual(ended.returncode, 0, f"{command}: {ended.stdout}{ended.stderr}")
        self.assertNotIn("Traceback", ended.stderr)
        return ended.stdout

    def test_an_empty_environment_gets_both_commands(self) -> None:
        # A copy, so that building leaves nothing behind in the tree.
        source = self.folder / "source"
        source.mkdir()
        for name in SHIPPED:
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(
                    path, source / name, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache", "*.so", "_spawn")
                )
            else:
                shutil.copy(path, source / name)
        self.run_in(self.folder, self.python(), "-m", "venv", "env")
        bin = self.folder / "env/bin"
        self.run_in(
            self.folder,
            bin / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            source,
            timeout=INSTALLING,
        )
        shutil.rmtree(source)

        self.assertIn("--config=", self.run_in(self.elsewhere, bin / "twistd", "sticky", "--help"))
        self.assertEqual(self.run_in(self.elsewhere, bin / "twistd", "sticky", "--version"), f"sticky {__version__}\n")
        self.assertIn(__version__, self.run_in(self.elsewhere, bin / "sticky", "version"))
        backends = "from sticky.containers.plugins import installed; print(installed()['process'].load().name)"
        self.assertEqual(self.run_in(self.elsewhere, bin / "python", "-c", backends), "process\n")
        self.assertEqual(self.shipped(bin), [])
        launcher = "from sticky.containers.launchers import compiled; print(compiled())"
        built = bool(shutil.which("cc"))
        self.assertEqual(self.run_in(self.elsewhere, bin / "python", "-c", launcher), f"{built}\n")

        self.does_its_job(bin)

    def python(self) -> str:
        suits = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
        try:
            found = subprocess.run([PYTHON, "-c", suits], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
        except OSError:
            found = False
        return PYTHON if found else sys.executable

    def does_its_job(self, bin: Path) -> None:
        """A session's requests and calls of functions, with what was installed."""
        (self.elsewhere / "sticky.toml").write_text(SERVERS.replace("{python}", str(bin / "python")))
        command = [str(bin / "twistd"), "-n", "--pidfile=", "sticky", "--config", "sticky.toml"]
        listen = "tcp:0:interface=127.0.0.1"
        clean = {"PYTHONPATH": ""}  # a parallel run of tests has its own in it
        daemon = Running([*command, "--listen", listen, "--state-dir", "state"], self.elsewhere / "log", clean)
        self.addCleanup(daemon.stop)
        # Whatever it imports is compiled now.
        daemon.wait_for("it listens", (self.elsewhere / "state/url").exists, within=INSTALLING)
        sticky = (bin / "sticky", "curl", "--state-dir", "state", "--server", "game")
        self.assertIn("sticky.toml", self.run_in(self.elsewhere, *sticky, "/"))
        (self.elsewhere / "calls.py").write_text(CALLS)
        env = {"STICKY_STATE_DIR": str(self.elsewhere / "state")}
        self.assertEqual(self.run_in(self.elsewhere, bin / "python", "calls.py", env=env), "190\n10\n")

    def shipped(self, bin: Path) -> list[str]:
        """Files of the package in the tree that the environment lacks."""
        where = self.run_in(self.elsewhere, bin / "python", "-c", "import sticky; print(sticky.__path__[0])").strip()
        ours = [
            path
            for path in (ROOT / "sticky").rglob("*")
            if path.is_file()
            and "__pycache__" not in path.parts
            and path.suffix not in (".so", ".c")
            and path.name != "_spawn"
        ]
        self.assertGreater(len(ours), 50)
        return [str(path) for path in ours if not Path(where, path.relative_to(ROOT / "sticky")).is_file()]

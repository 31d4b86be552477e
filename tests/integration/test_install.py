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

ROOT = Path(__file__).parents[2]
SHIPPED = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "sticky", "twisted")
INSTALLING = 300  #: seconds; Twisted and its friends come from the package index or pip's cache
DEADLINE = 60


class InstallTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.elsewhere = self.folder / "elsewhere"
        self.elsewhere.mkdir()

    def run_in(self, folder: Path, *command: str | Path, timeout: int = DEADLINE) -> str:
        """What the command prints; it must succeed without a word on stderr that is a traceback."""
        environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
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
        self.run_in(self.folder, sys.executable, "-m", "venv", "env")
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

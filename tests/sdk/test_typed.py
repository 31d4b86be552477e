"""Users' type checkers see the SDK: a program of theirs passes mypy --strict, and its mistakes are found."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import sticky

PROGRAM = Path(__file__).parent / "typed" / "program.py"
PROJECT = PROGRAM.parent / "project"


class TypedTests(SynchronousTestCase):
    def mypy(self, *programs: Path) -> tuple[int, str]:
        """Checked as an installed package is: our own settings and plugins are not the user's."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "mypy.ini").write_text("[mypy]\nplugins = sticky.sdk.mypy\n")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--config-file=mypy.ini",
                "--cache-dir=cache",
                *map(str, programs),
            ],
            cwd=folder,
            env={**os.environ, "MYPYPATH": str(Path(sticky.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def test_a_program_and_a_project_of_several_files_pass_and_their_mistakes_are_found(self) -> None:
        # Under --strict an ignore that hides nothing is an error, so that each mistake in the programs is one for mypy.
        self.assertEqual((0, "Success: no issues found in 6 source files\n"), self.mypy(PROGRAM, PROJECT))

    def test_an_error_is_one(self) -> None:
        wrong = Path(self.mktemp()).absolute().with_suffix(".py")
        wrong.write_text(PROGRAM.read_text().replace("  # type: ignore[arg-type]", "", 1))
        status, text = self.mypy(wrong)
        self.assertEqual(1, status)
        self.assertIn('Argument 1 to "__call__" of "Call" has incompatible type "str"; expected "int"', text)

    def test_the_package_says_that_it_is_typed(self) -> None:
        self.assertTrue((Path(sticky.__file__).parent / "py.typed").is_file())
        self.assertIsNotNone(files("sticky-sessions"))

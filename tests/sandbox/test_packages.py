"""Packages of a sandbox: installed once, never half."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox.packages import NotInstalled, ensure
from tests.sandbox.wheels import ANSWER, MODULE, NAME, VERSION, make_wheel, settings


class PackageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(sys, "stderr", io.StringIO())  # what it says is the container's output
        self.root = Path(self.mktemp())
        self.runs: list[Sequence[str]] = []
        self.status = 0

    def pip(self, command: Sequence[str]) -> tuple[int, str]:
        self.runs.append(command)
        target = Path(command[command.index("--target") + 1])
        target.mkdir(parents=True)
        (target / "half.py").write_text("")
        return self.status, "noise\nno such package"

    def test_the_second_time_nothing_is_installed(self) -> None:
        first = ensure(self.root, ["b", "a"], self.pip)
        self.assertEqual(ensure(self.root, ["a", "b"], self.pip), first)
        self.assertEqual(len(self.runs), 1)
        self.assertEqual(list(self.runs[0][-3:]), ["--", "b", "a"])
        self.assertNotEqual(ensure(self.root, ["a"], self.pip), first)

    def test_a_reader_of_its_output_is_told_how_long_it_took(self) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            ensure(self.root, ["a", "b==2"], self.pip)
        self.assertRegex(printed.getvalue(), r"\Asticky: installing a b==2\nsticky: installed in \d+\.\d s\n\Z")

    def test_what_pip_would_not_install_leaves_nothing_and_is_tried_again(self) -> None:
        self.status = 1
        error = self.assertRaises(NotInstalled, ensure, self.root, ["a"], self.pip)
        self.assertIn("no such package", str(error))
        self.status = 0
        self.assertTrue((ensure(self.root, ["a"], self.pip) / "half.py").exists())
        self.assertEqual(len(self.runs), 2)


class InstallerTests(SynchronousTestCase):
    """The programs themselves, without a network."""

    def setUp(self) -> None:
        self.patch(sys, "stderr", io.StringIO())
        self.root = Path(self.mktemp()).absolute()
        self.wheels = Path(self.mktemp()).absolute()
        make_wheel(self.wheels)
        self.set(**settings(self.wheels))

    def set(self, **variables: str) -> None:
        """Of this very process: that is what is handed on."""
        before = dict(os.environ)
        self.addCleanup(os.environ.update, before)
        self.addCleanup(os.environ.clear)
        os.environ.update(variables)

    def without_pip(self) -> None:
        found = importlib.util.find_spec
        self.patch(importlib.util, "find_spec", lambda name, *more: None if name == "pip" else found(name, *more))

    def installs(self) -> None:
        folder = ensure(self.root, [f"{NAME}=={VERSION}"])
        self.assertEqual(runpy.run_path(str(folder / f"{MODULE}.py"))["answer"](), ANSWER)
        error = self.assertRaises(NotInstalled, ensure, self.root, [f"{NAME}==9"])
        self.assertIn(NAME, str(error))
        shutil.rmtree(self.wheels)
        self.assertEqual(ensure(self.root, [f"{NAME}=={VERSION}"]), folder)  # nobody is asked any more

    def test_pip(self) -> None:
        self.installs()

    def test_uv_where_there_is_no_pip(self) -> None:
        uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        if uv is None:
            raise SkipTest("uv is not installed")
        self.without_pip()
        self.set(PATH=str(Path(uv).parent))
        self.installs()

    def test_neither_is_said_with_what_to_do(self) -> None:
        self.without_pip()
        self.set(PATH=str(self.root))
        error = self.assertRaises(NotInstalled, ensure, self.root, [NAME])
        self.assertIn("-m ensurepip", str(error))
        self.assertIn("no uv", str(error))

"""Packages of a sandbox: installed once, never half."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox.packages import NotInstalled, ensure


class PackageTests(SynchronousTestCase):
    def setUp(self) -> None:
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

    def test_what_pip_would_not_install_leaves_nothing_and_is_tried_again(self) -> None:
        self.status = 1
        error = self.assertRaises(NotInstalled, ensure, self.root, ["a"], self.pip)
        self.assertIn("no such package", str(error))
        self.status = 0
        self.assertTrue((ensure(self.root, ["a"], self.pip) / "half.py").exists())
        self.assertEqual(len(self.runs), 2)

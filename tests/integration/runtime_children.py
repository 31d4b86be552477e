"""What tests of real runtime processes share: a folder for the app, and processes that do not outlive their test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import TestCase

import sticky

ROOT = Path(sticky.__file__).parents[1]
LIMIT = 60.0  #: seconds for anything that is waited for


def alive(pid: int) -> bool:
    """Whether it runs and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


class ChildTests(TestCase):
    """Base: a folder for the app, and processes that do not outlive their test."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.patch(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})

    def app(self, text: str, name: str = "game.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not true():
            if time.monotonic() > deadline:
                self.fail(f"not within {LIMIT} s: {what}; log: {self.text()}")
            time.sleep(0.02)

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def written_pid(self, name: str) -> int:
        path = self.folder / name
        self.until(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} is written")
        return int(path.read_text())

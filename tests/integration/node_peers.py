"""Node with `ws` and Socket.IO for tests: installed by npm into a folder beside the interpreter, once. Knows no test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.sharing import only_one

SCRIPTS = Path(__file__).parent / "node"
INTO = Path(sys.prefix) / "node-peers"
INSTALLS_WITHIN = 120.0  #: seconds
TALKS_WITHIN = 60.0  #: seconds


def missing() -> str | None:
    """Why Node's peers cannot be had; None where they are there. Installs them the first time."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node or npm is not installed"
    INTO.mkdir(parents=True, exist_ok=True)
    with only_one(INTO):
        return _installed()


def _installed() -> str | None:
    wanted = (SCRIPTS / "package.json").read_text()
    stamp = INTO / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    (INTO / "package.json").write_text(wanted)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    try:
        subprocess.run(command, cwd=INTO, check=True, capture_output=True, timeout=INSTALLS_WITHIN)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return "npm could not install ws and Socket.IO (no network?)"
    stamp.write_text(wanted)
    return None


def environment() -> dict[str, str]:
    """For a node that runs one of the scripts."""
    return {**os.environ, "NODE_PATH": str(INTO / "node_modules")}


class Script:
    """One of the scripts as a child: wait for the line that says it holds, and for its result."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(SCRIPTS / name), *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def holds(self) -> None:
        """Wait until it says so. Raises `AssertionError` with what it says instead."""
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        if line.strip() != "holding":
            raise AssertionError(line + self._process.stderr.read())

    def result(self) -> Any:
        """What it printed. Raises `AssertionError` with its errors."""
        out, problems = self._process.communicate(timeout=TALKS_WITHIN)
        if self._process.returncode:
            raise AssertionError(problems)
        return json.loads(out)

    def stop(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

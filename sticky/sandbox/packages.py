"""Packages that a sandbox's functions need: installed once, kept, shared. Runs INSIDE a container, before the first call.

By pip, as the operator has configured that; by uv where the interpreter has no pip, as one in an environment that uv made.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_DONE = ".complete"


class NotInstalled(Exception):
    """pip or uv would not; the text has its last lines."""


def folder_of(root: Path, packages: Sequence[str]) -> Path:
    """Where these packages are, for this interpreter."""
    what = "\n".join([sys.implementation.cache_tag or "", *sorted(packages)])
    return root / hashlib.sha256(what.encode()).hexdigest()[:24]


def _command(folder: Path, packages: Sequence[str]) -> list[str]:
    """What installs these there. Raises `NotInstalled` where nothing can."""
    if importlib.util.find_spec("pip") is not None:
        program = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    elif (uv := shutil.which("uv")) is not None:
        program = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise NotInstalled(f"{sys.executable} has no pip (-m ensurepip gives it one), and there is no uv on its PATH")
    return [*program, "--quiet", "--target", str(folder), "--", *packages]


def _run(command: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout + done.stderr


def ensure(root: Path, packages: Sequence[str], run: Callable[[Sequence[str]], tuple[int, str]] = _run) -> Path:
    """The folder with these packages, made if it is not there. Several at once: one installs, the others wait.

    Raises `NotInstalled`; nothing half is ever found.
    """
    folder = folder_of(root, packages)
    if (folder / _DONE).exists():
        return folder
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(root / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _DONE).exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        print(f"sticky: installing {' '.join(packages)}", file=sys.stderr, flush=True)
        since = time.monotonic()
        status, output = run(_command(folder, packages))
        if status:
            shutil.rmtree(folder, ignore_errors=True)
            raise NotInstalled("\n".join(output.strip().splitlines()[-10:]))
        os.close(os.open(folder / _DONE, os.O_WRONLY | os.O_CREAT, 0o600))
        print(f"sticky: installed in {time.monotonic() - since:.1f} s", file=sys.stderr, flush=True)
    return folder

"""What becomes a container's program: the compiled launcher where there is one, `spawn.py` elsewhere and where more is asked for.

Both have the same command line and do the same (`spawn.c` says what it leaves to the other). Must not start a container.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sticky.containers.spawn import DROPPED, KEEP_REPORT

PURE = "STICKY_PURE"  #: an environment variable that, set to 1, leaves compiled code out
COMPILED = Path(__file__).with_name("_spawn")
_SCRIPT = str(Path(__file__).with_name("spawn.py"))
_WORDS = ("cgroup ", "subreaper ")  #: the lines of confinement that the compiled one knows
_NOT_MINE = 64  # its exit status where it is not asked for something that it knows


def command_line(
    parent: int, keep_report: bool, env: Mapping[str, str], directory: Path, confined: str, command: Sequence[str]
) -> list[str]:
    """The arguments, from the program's path on, of a process that is to become this command; see `spawn.become`."""
    plain = all(line.startswith(_WORDS) for line in confined.splitlines())
    program = [str(COMPILED)] if plain and compiled() else [sys.executable, "-I", "-S", _SCRIPT]
    report = KEEP_REPORT if keep_report else ""
    return [*program, str(parent), report, env.get("LC_CTYPE", DROPPED), str(directory), confined, *command]


@functools.cache
def compiled() -> bool:
    """Whether the compiled launcher is there, and runs: it may have been built for another machine. Runs it once, without effect."""
    if os.environ.get(PURE) == "1" or not os.access(COMPILED, os.X_OK):
        return False
    try:
        return subprocess.run([COMPILED], stdin=subprocess.DEVNULL, capture_output=True).returncode == _NOT_MINE
    except OSError:
        return False

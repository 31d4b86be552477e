"""How a daemon that cannot start says so: one line on stderr and an exit status. Knows none of the reasons."""

from __future__ import annotations

import sys
from typing import NoReturn

WRONG_CONFIGURATION = 2  #: the operator's words are wrong: as for a wrong command line everywhere else
CANNOT_START = 1  #: they are right, but something is in the way: a port that is taken, a state directory in use


def give_up(problem: str, status: int) -> NoReturn:
    """Say it and end the process.

    To the descriptor that the process was started with, not to `sys.stderr`: twistd has made a log of that by the time that
    services start.
    """
    (sys.__stderr__ or sys.stderr).write(f"sticky: {one_line(problem)}\n")
    raise SystemExit(status)


def one_line(text: str) -> str:
    """On one line and without control characters: names come from files and may hold anything."""
    return "".join(character if character.isprintable() else " " for character in text)

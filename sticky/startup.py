"""How a daemon that cannot start says so: one line on stderr and an exit status. Knows none of the reasons."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def possible() -> Iterator[None]:
    """What the system refuses meanwhile ends the process with a line; twistd would log a traceback, or end without a word."""
    try:
        yield
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        give_up(f"cannot start: {where}{error.strerror or error}", CANNOT_START)


def one_line(text: str) -> str:
    """On one line and without control characters: names come from files and may hold anything."""
    return "".join(character if character.isprintable() else " " for character in text)

"""What a look at something says, and to what one comes by asking. No check is here."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterator
from enum import Enum

import attrs


class Grade(Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    found: str
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def user_name(uid: int) -> str:
    """For people."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

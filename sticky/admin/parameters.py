"""What an admin call was given, read and checked. Each reader raises `errors.BadRequest`, or a kind of it; none asks anybody.

Must not know which calls there are.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from sticky import errors

LONGEST_NAME: Final = 128  #: characters


@attrs.frozen
class Call:
    """One call. `arguments` are the parts of the path that are names."""

    arguments: tuple[str, ...]
    query: Mapping[str, str]
    body: Mapping[str, object] = attrs.field(repr=False)


def sources(call: Call) -> tuple[Path | None, str | None, Path | None]:
    """(file, app, folder that they are relative to), of which any may be missing; there is a folder if one of them is there."""
    file, app, cwd = (call.body.get(name) for name in ("file", "app", "cwd"))
    if not isinstance(file, str | None) or not isinstance(app, str | None):
        raise errors.BadRequest("The body names a configuration file, an app, or both.")
    if file is None and app is None:
        return None, None, None
    folder = Path(cwd) if isinstance(cwd, str) else None
    if folder is None or not folder.is_absolute():
        raise errors.BadRequest("The body says from which folder relative paths are meant (cwd).")
    return None if file is None else Path(file), app, folder


def flag(call: Call, name: str) -> bool:
    """True or false; left out it is false."""
    value = call.body.get(name, False)
    if not isinstance(value, bool):
        raise errors.BadRequest(f"{name} must be true or false.")
    return value


def grace(call: Call) -> float | None:
    """Seconds until what is in flight is cut, at most an hour; None: it completes."""
    given = seconds(call.body.get("grace"), errors.BadGrace)
    if given is not None and given > 3600:
        raise errors.BadGrace
    return given


def session_name(value: object) -> str | None:
    """As control calls take it. The error does not repeat it."""
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= LONGEST_NAME
        or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value)
    ):
        raise errors.BadSessionName
    return value


def whole(text: str | None, name: str, low: int, high: int, default: int) -> int:
    """A number of a query, within bounds."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise errors.BadRequest(f"{name} must be a whole number from {low} to {high}.")
    return int(text)


def seconds(value: object, wrong: type[errors.BadRequest]) -> float | None:
    """A time of a body. Raises `wrong`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise wrong
    return float(value)

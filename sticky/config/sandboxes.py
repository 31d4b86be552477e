"""A Server whose containers run function calls: what its table may hold, and what follows for the Server's other settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from sticky.config.kinds import Place

#: PEP 508 names and extras with PEP 440 versions; no options, paths or URLs, which pip would take too.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?(\[[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*\])?"
    r"((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!]{1,40}(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!]{1,40})*)?"
)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
INSTALL_TIME = 600.0  #: seconds that a container with packages may take to start, where no other time is set

#: Settings that a sandbox decides itself: one session, one call at a time, nothing left for the next one.
DECIDED = (
    "command",
    "max_concurrency",
    "target_concurrency",
    "serial",
    "port",
    "ready",
    "idle_timeout",
    "docker",
    "preimport",
    "snapshot",
)


def requirement(text: str, place: Place) -> str:
    """A package as pip is to install it. Raises ValueError."""
    plain = re.sub(
        r" *([=<>~!]+|,) *", r"\1", text
    )  # blanks around operators mean nothing; others would join two names
    if len(text) > 200 or _REQUIREMENT.fullmatch(plain) is None:
        raise ValueError(text)
    return plain


def module(text: str, place: Place) -> str:
    """A module's dotted name. Raises ValueError."""
    if len(text) > 200 or _MODULE.fullmatch(text) is None:
        raise ValueError(text)
    return text


def apply(table: Mapping[str, Any], values: dict[str, Any], given: Mapping[str, bool]) -> None:
    """Set what follows from the table."""
    command = [table.get("python") or sys.executable, "-m", "sticky.sandbox", "{socket}"]
    command += [f"--preimport={name}" for name in table["preimport"]]
    command += [f"--package={name}" for name in table["packages"]]
    values["command"] = tuple(command)
    values.update(max_concurrency=1, target_concurrency=None, serial=True)
    if table["packages"] and not given["startup_timeout"]:
        values["startup_timeout"] = INSTALL_TIME
    longest = values["max_idle_timeout"] or values["container_max_age"] / 2
    values["idle_timeout"] = table["idle_ttl"] or longest

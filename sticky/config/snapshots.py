"""When containers of an app's class are forked from a process that prepares them once, and which settings forbid that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sticky.config.layers import Reading

_WHY = "takes a process of its own from its beginning, and containers of this Server are forked from one that has run"
_UNFORKABLE = ("network", "read_only", "private_tmp")


class Preparing(Protocol):
    """What an app says of itself."""

    @property
    def reports_ready(self) -> bool:
        """It is a class with hooks."""

    @property
    def snap(self) -> bool:
        """It has hooks that run once for all containers."""

    @property
    def zygote(self) -> tuple[str, ...]:
        """What runs them, and forks containers. Empty where it is no class with hooks."""


def of_an_app(
    declared: Preparing, values: Mapping[str, Any], reading: Reading
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the commands of its containers, and of what forks them, end with; the latter is empty where nothing does.

    Raises `ConfigError`.
    """
    if values["preimport"] and not declared.reports_ready:
        raise reading.wrong("preimport", "is for an app's class with enter hooks, and this one is a command")
    flags = tuple(f"--preimport={name}" for name in values["preimport"])
    if not values["snapshot"] or not (declared.snap or flags):
        return flags, ()
    _check(values, reading, "enter(snap=True) hooks" if declared.snap else "its preimport")
    return flags, (*declared.zygote, *flags)


def of_a_command(reading: Reading) -> None:
    """Raises `ConfigError` for what is for an app's class alone."""
    for key in ("preimport", "snapshot"):
        if reading.given(key):
            raise reading.wrong(key, "is for an app's class, and this Server is of the file alone")


def _check(values: Mapping[str, Any], reading: Reading, what: str) -> None:
    remedy = "set snapshot = false to have each container do that itself"
    if values["backend"] != "process":
        problem = (
            f'containers of this Server are forked from a process that has run {what}, which backend = "process" can do'
        )
        raise reading.wrong("backend", f"{problem}; {remedy}")
    isolation = values["isolation"] or {}
    for name in _UNFORKABLE:
        if isolation.get(name):
            raise reading.wrong("isolation", f"{name} {_WHY} {what}; {remedy}")
    if isolation.get("descendants") == "pid_namespace":
        raise reading.wrong("isolation", f'descendants = "pid_namespace" {_WHY} {what}; {remedy}')

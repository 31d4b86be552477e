"""What the Engine's words about an ended container mean to us: an `Exit`. Pure; must not ask anybody.

An Engine tells a death by a signal as the exit status 128 + signal, as shells do, and so do programs that catch a signal and
want to look like it. It cannot be told apart, so it is told as the signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sticky.containers import endings
from sticky.isticky import ContainerSpec, Exit

_SIGNALS = range(129, 193)
_NOT_FOUND = "no such file or directory"
_INITS = ("[FATAL tini", "ERROR (catatonit")  # what an Engine's init says when it cannot become the program
_SIGKILL = 9


@attrs.frozen
class End:
    """An ended container, as its Engine saw it."""

    status: int
    out_of_memory: bool = False
    error: str = ""  #: the Engine's own, where the program could not be run

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> End:
        """From the State of an inspection."""
        status = state.get("ExitCode")
        return cls(
            status=status if isinstance(status, int) else 0,
            out_of_memory=state.get("OOMKilled") is True,
            error=str(state.get("Error") or ""),
        )


def running(state: Mapping[str, Any]) -> bool:
    """Whether an inspection's State is of a container that lives (paused and restarting ones do)."""
    return bool(state.get("Running")) or state.get("Status") in ("running", "paused", "restarting")


def paused(state: Mapping[str, Any]) -> bool:
    """Whether an inspection's State is of a container that lives and is kept from running (`docker pause`)."""
    return state.get("Paused") is True or state.get("Status") == "paused"


def verdict(spec: ContainerSpec, end: End, was_ready: bool, lines: Sequence[str], memory: int | None) -> Exit:
    """How it ended, for the listener."""
    tail = tuple(lines)
    if end.out_of_memory and end.status != 0:
        bound = "the machine's memory ran out" if memory is None else f"it used more than its {memory} bytes of memory"
        return Exit("out_of_memory", None, _SIGKILL, tail, f"ended by SIGKILL: {bound}")
    said = next((line for line in tail if line.startswith(_INITS)), None)
    if said is not None and not was_ready:
        return Exit("failed", None, None, tail, not_run(spec, _NOT_FOUND in said.lower(), said))
    if end.error and not was_ready:
        return Exit("failed", None, None, tail, f"the container engine could not run it: {end.error}")
    number = end.status - 128 if end.status in _SIGNALS else None
    if number is not None:
        return Exit("killed", None, number, tail, endings.ended(None, number, was_ready))
    return Exit("exited", end.status, None, tail, endings.ended(end.status, None, was_ready))


def not_run(spec: ContainerSpec, missing: bool, said: str) -> str:
    """The program is not in the image, or cannot be executed there."""
    program = spec.command[0] if spec.command else "the image's own"
    problem = "command not found" if missing else "command is not executable"
    return f"{problem} in the image: {program} ({said})"

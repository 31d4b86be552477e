"""Ends what the hooks of a container started: the rest of its process group, and its descendants.

Runs inside the container. Reads /proc; where there is none it finds nothing, and the backend's own kill of the group remains.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import attrs

GRACE = 5.0  #: seconds between SIGTERM and SIGKILL
_POLL = 0.02  #: seconds


@attrs.frozen
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    group: int


def process_table(proc: Path = Path("/proc")) -> Mapping[int, Process]:
    """Everything that runs, zombies left out."""
    table = {}
    for entry in proc.iterdir() if proc.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text("utf-8", "replace")
        except OSError:
            continue  # it ended meanwhile
        # proc(5): the name in parentheses may hold anything, so count from its end.
        state, parent, group = stat[stat.rindex(")") + 1 :].split()[:3]
        if state not in "ZX":
            table[int(entry.name)] = Process(int(entry.name), int(parent), int(group))
    return table


def leftovers(table: Mapping[int, Process], own: int, leads_group: bool) -> frozenset[int]:
    """The descendants of `own`, and the rest of its group if it leads one (a foreign group is not ours to end)."""
    found = {pid for pid, process in table.items() if leads_group and process.group == own}
    while more := {pid for pid, process in table.items() if process.parent in found | {own}} - found:
        found |= more
    return frozenset(found - {own})


def running() -> frozenset[int]:
    """What this process has started, directly or not."""
    return leftovers(process_table(), os.getpid(), os.getpgrp() == os.getpid())


def end(
    grace: float = GRACE,
    *,
    find: Callable[[], Iterable[int]] = running,
    kill: Callable[[int, int], object] = os.kill,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """SIGTERM to each, SIGKILL to those that are left after `grace` seconds; gives up on what survives that for as long."""
    started = now()
    told: set[int] = set()
    while remaining := set(find()):
        late = now() - started
        if late >= 2 * grace:
            return
        for pid in remaining if late >= grace else remaining - told:
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL if late >= grace else signal.SIGTERM)
        told |= remaining
        sleep(_POLL)

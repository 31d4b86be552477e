"""Ends processes that no container of ours stands for. Must not know how they were found."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

_ROUNDS = 20  # a look at every process each; what outlives them is left to the next daemon


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """A signal to each that is still there and that we may signal."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it went by itself, or it is another user's (a setuid program)


def kill_all(find: Callable[[], Iterable[int]]) -> frozenset[int]:
    """SIGKILL to what is found until nothing new is: who got it cannot fork any more, so this ends. Returns who got it."""
    done: set[int] = set()
    for _ in range(_ROUNDS):
        new = set(find()) - done
        if not new:
            break
        kill(new)
        done |= new
    return frozenset(done)

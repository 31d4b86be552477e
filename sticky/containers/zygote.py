"""A process that has prepared a Python Server, its `enter(snap=True)` hooks included, and is forked for each of its containers.

Runs beside the daemon, never as a container itself; imports user code. How it is asked for forks: `forking.serving`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from sticky.containers import leftovers
from sticky.containers.preparing import HookFailed, explain
from sticky.containers.runtime import leave, serve
from sticky.forking.fitness import Unfit
from sticky.forking.serving import Control
from sticky.sdk.loading import LoadError
from sticky.sdk.server import Server


def run(prepare: Callable[[], tuple[Server, object]], exit_limit: float) -> int:
    """Until the daemon is gone; 1 where nothing can be forked, which is said to the daemon and, with tracebacks, in the log."""
    prepared: list[tuple[Server, object]] = []

    def begin(given: Mapping[str, int]) -> NoReturn:
        status = serve(lambda: prepared[0], exit_limit)
        leftovers.end()
        leave(status)

    return Control().serve(lambda: prepared.append(_told(prepare)), begin)


def _told(prepare: Callable[[], tuple[Server, object]]) -> tuple[Server, object]:
    """Raises `Unfit` for what `prepare` raises."""
    try:
        return prepare()
    except LoadError as problem:
        explain(problem)
        raise Unfit(str(problem)) from None
    except HookFailed as problem:
        explain(problem)
        raise Unfit(f"{problem} failed: {type(problem.error).__name__}: {problem.error}") from None

"""Runs hooks inside a container: sync ones on the main thread, async ones on one event loop that outlives them.

The main thread is for sync hooks because programs expect it (signal handlers, some GUI and GPU libraries), and because a signal
can interrupt them there. Must not know signals, nor which hooks there are.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parent)


class StopRequested(KeyboardInterrupt):
    """Raised in the main thread where a stop signal interrupts an import or a hook, which is what Ctrl-C does to a program."""


class HookRunner:
    """Runs one hook at a time. The loop's thread starts with the first async hook and lives as long as the process."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, hook: Callable[[], object]) -> BaseException | None:
        """Run one hook to its end. Returns what it raised, SystemExit included; only `StopRequested` passes."""
        try:
            result = hook()
            return self._wait(result) if inspect.isawaitable(result) else None
        except StopRequested:
            raise
        except BaseException as error:
            return error

    def _wait(self, awaitable: Awaitable[object]) -> BaseException | None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="sticky-hooks", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._loop).result()


def run_alone(hook: Callable[[], object]) -> BaseException | None:
    """As `HookRunner.run`; an async one on a loop that ends with it, so that no thread and no loop is left behind."""
    try:
        result = hook()
        return asyncio.run(_outcome(result)) if inspect.isawaitable(result) else None
    except StopRequested:
        raise
    except BaseException as error:
        return error


async def _outcome(awaitable: Awaitable[object]) -> BaseException | None:
    # A SystemExit that leaves a task ends run_forever, and whoever waits for the task's result waits for ever.
    try:
        await awaitable
    except BaseException as error:
        return error
    return None


def print_failure(what: str, error: BaseException) -> None:
    """A line and the traceback to the log, from the user's first line on."""
    trace = "".join(traceback.format_exception(type(error), error, _users(error.__traceback__)))
    log(f"sticky: {what} failed\n{trace}")


def log(text: str) -> None:
    """To stderr, which is the container's log, whatever user code made of the stream."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def _users(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace

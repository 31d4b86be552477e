"""Why the containers of one Server have to go: for whoever is told of their ends, and of starts that fail for it. Ends none."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable

from sticky import errors
from sticky.containers.docker.faults import in_short
from sticky.core.effects import Effect, TerminateContainer
from sticky.core.records import Record
from sticky.core.values import ContainerId, StopCause
from sticky.running import Running

_WHERE = "sticky status has the reason"


class Causes:
    """`call_end`: see `witness.Endings.call`."""

    def __init__(self, containers: Running, call_end: Callable[[ContainerId, str, str], None]) -> None:
        self._containers = containers
        self._call_end = call_end
        self._lacking = ""  # what the last one lacked that was not ready in time

    def foretell(self, effects: Iterable[Effect | Record]) -> None:
        """These are about to be carried out: containers can still be asked, and nobody is refused for them yet."""
        for effect in effects:
            if isinstance(effect, TerminateContainer):
                lacks = ""
                if effect.cause is StopCause.STARTUP_TIMEOUT:
                    self._lacking = lacks = self._containers.lacks(effect.container)
                self.call(effect.container, effect.cause.value, lacks)

    def call(self, container: ContainerId, cause: str, more: str = "") -> None:
        """It has to go for this. A no-op for one that does not run: nobody would hear of its end."""
        if self._containers.has(container):
            self._call_end(container, cause, more)

    def explained(self, refusal: errors.Refusal) -> errors.Refusal:
        """With how the last container ended or what it lacked, where a start is refused for that, and when another one is tried.

        Clients read it, so nothing is in it that the container wrote, and no path.
        """
        if not isinstance(refusal, errors.ContainersFailing | errors.QueueTimedOut):
            return refusal
        cause = refusal.cause
        more = self._lacking if cause == StopCause.STARTUP_TIMEOUT.value else self._ended(cause)
        told = type(refusal)(cause, more=more, retry_after=refusal.retry_after)
        if isinstance(told, errors.ContainersFailing) and told.retry_after is not None:
            # Whoever has just mended it reads the reason of the attempt before, and would believe that it is still so.
            told.message = f"{told.message} {_next_attempt(told.retry_after)}"
            told.args = (told.message,)
        return told

    def _ended(self, cause: str) -> str:
        end = self._containers.last_failure
        if end is None or end.detail != cause:
            return ""
        if end.signal is not None:
            known = end.signal in signal.valid_signals() and end.signal < signal.SIGRTMIN
            return f"by {signal.Signals(end.signal).name}" if known else f"by signal {end.signal}"
        if end.status is not None:
            return f"with status {end.status}"
        if cause != "failed":
            return ""
        short = in_short(end.message)
        return f"{short}; {_WHERE}" if short else _WHERE


def _next_attempt(seconds: float) -> str:
    """`seconds`: as in Retry-After, where less than one is one."""
    if seconds <= 1.0:
        return "The next attempt is under way or begins within a second."
    return f"The next attempt is in {math.ceil(seconds)} seconds."

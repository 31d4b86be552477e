"""Why the containers of one Server have to go: for whoever is told of their ends, and of starts that fail for it. Ends none."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable

from sticky import errors
from sticky.core.effects import Effect, TerminateContainer
from sticky.core.records import Record
from sticky.core.values import ContainerId, StopCause
from sticky.running import Running


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
        """With how the last container ended or what it lacked, where a start is refused for that.

        Clients read it, so nothing is in it that the container wrote, and no path.
        """
        if not isinstance(refusal, errors.ContainersFailing | errors.QueueTimedOut) or not refusal.cause:
            return refusal
        more = self._lacking if refusal.cause == StopCause.STARTUP_TIMEOUT.value else self._ended(refusal.cause)
        return type(refusal)(refusal.cause, more=more, retry_after=refusal.retry_after) if more else refusal

    def _ended(self, cause: str) -> str:
        end = self._containers.last_failure
        if end is None or end.detail != cause:
            return ""
        if end.signal is not None:
            known = end.signal in signal.valid_signals() and end.signal < signal.SIGRTMIN
            return f"by {signal.Signals(end.signal).name}" if known else f"by signal {end.signal}"
        if end.status is not None:
            return f"with status {end.status}"
        return "sticky status has the reason" if cause == "failed" else ""

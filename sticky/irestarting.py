"""The seam to whoever can replace the daemon by a new one. No behaviour but that there may be nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from twisted.internet.defer import Deferred

from sticky import errors


class IRestarting(Protocol):
    """Replaces the daemon."""

    def restart(self) -> Deferred[Mapping[str, object]]:
        """Start a new daemon from the same command line and hand over to it: its pid and version.

        Raises, or fails with, `errors.BadRequest` (it cannot be done), `errors.RestartUnderWay` (retry) or
        `errors.BadConfiguration` (the new one did not start; the message says why, and this one goes on).
        """

    def may_change(self) -> None:
        """Raises `errors.RestartUnderWay` (retry) while a new daemon is about to take over: what it has read already (keys, proxy
        tokens, definitions) must not become another one here, or the change would be lost.
        """


class Restarts:
    """Whoever it is, once it is known."""

    def __init__(self) -> None:
        self.by: IRestarting | None = None

    def restart(self) -> Deferred[Mapping[str, object]]:
        """See `IRestarting`."""
        if self.by is None:
            raise errors.NotFound
        return self.by.restart()

    def may_change(self) -> None:
        """See `IRestarting`."""
        if self.by is not None:
            self.by.may_change()

"""Proxies of an earlier daemon that are on their way here: how many, and whoever waits for them. Must not know who they are."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from sticky.workers import messages


class Coming:
    """See the module. One that is not in within `messages.TRY_FOR` has ended."""

    def __init__(self, clock: IReactorTime) -> None:
        self.count = 0  #: of those that are not in yet
        self._clock = clock
        self._patience: IDelayedCall | None = None
        self._waiting: list[Deferred[None]] = []

    def expect(self, count: int) -> None:
        """So many are on their way."""
        self.count = count
        self.hear()

    def wait(self) -> Deferred[None] | None:
        """Fires when all are in, or have ended. None: nobody is on the way."""
        if not self.count:
            return None
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def one_is_in(self) -> None:
        """A no-op where it was given up: it is late."""
        if self.count:
            self.count -= 1
            if not self.count:
                self.all_are_in()

    def all_are_in(self) -> None:
        """Or have ended, or it does not matter any more."""
        self.count = 0
        self.rest()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.called:
                one.callback(None)

    def rest(self) -> None:
        """Nobody is given up while nobody is heard."""
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        self._patience = None

    def hear(self) -> None:
        """They can be heard from now on, and have their time."""
        if self.count and self._patience is None:
            self._patience = self._clock.callLater(messages.TRY_FOR, self.all_are_in)

"""Looks now and then whom containers have started, where nothing else will say so when they have ended. Must not end any.

Once the first process has ended by itself, whoever hides from all the rest has another parent: whom one has seen before is found.
"""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from sticky.containers.child import Child

EVERY = 5.0  #: seconds between two looks: 0.1 ms for each container


class Families:
    """One timer for all, none while there are none. `every`: seconds."""

    def __init__(self, clock: IReactorTime, every: float = EVERY) -> None:
        self._clock = clock
        self._every = every
        self._children: set[Child] = set()
        self._timer: IDelayedCall | None = None

    def add(self, child: Child) -> None:
        """It runs from now on."""
        self._children.add(child)
        if self._timer is None:
            self._timer = self._clock.callLater(self._every, self._look)

    def remove(self, child: Child) -> None:
        """It has gone. A no-op for one that is not known."""
        self._children.discard(child)
        if not self._children:
            self.stop()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._clock.callLater(self._every, self._look)
        for child in self._children:
            child.look_around()

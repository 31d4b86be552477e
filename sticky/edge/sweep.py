"""One timer for all of the edge's time-outs: whoever has a deadline is looked at twice a second. Knows nothing of what is late.

Setting a deadline is a store into an attribute; a DelayedCall for each request would cost about 10 microseconds to make and cancel.

A process that got no processor for a while (it was stopped, or the machine was) comes back to hundreds of deadlines that have passed
meanwhile, and a reactor calls what is due before it reads what has come. So time in which this process stood still is nobody's: all
deadlines are put off by as much.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky.observe.safely import safely

INTERVAL = 0.5  #: seconds; a time-out is noticed at most this late, never early
STANDSTILL = 1.0  #: seconds that a look comes late where this process got no processor
AFTER_A_FAULT = 60.0  #: seconds until an entry that raised is looked at again: its fault must not fill the log
NEVER = float("inf")

_log = Logger(namespace="sticky.edge")


class Mortal(Protocol):
    """Something with a deadline on the sweep's clock; `NEVER` for none."""

    deadline: float

    def overdue(self, now: float) -> None:
        """The deadline has passed. Called again at each sweep until the deadline moves or the entry is gone."""

    def put_off(self, seconds: float) -> None:
        """This process stood still for so long: the deadline, and whatever it is made of, is as much later."""


class Sweep:
    """The entries and the timer, which runs only while there are entries."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._entries: set[Mortal] = set()
        self._call: IDelayedCall | None = None
        self._expected = 0.0  # when it is to come

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Mortal) -> None:
        """Look at this entry from now on."""
        self._entries.add(entry)
        if self._call is None:
            self._look_again(self._clock.seconds())

    def discard(self, entry: Mortal) -> None:
        """Look no more; an entry that is not there is a no-op."""
        self._entries.discard(entry)

    def entries(self) -> list[Mortal]:
        """All entries there are."""
        return list(self._entries)

    def stop(self) -> None:
        """Forget all entries and the timer."""
        self._entries.clear()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        now = self._clock.seconds()
        late = now - self._expected
        if late >= STANDSTILL:
            for entry in self._entries:
                safely(_log, entry.put_off, late)
            self._look_again(now)  # what has come meanwhile is read before that
            return
        for entry in [entry for entry in self._entries if entry.deadline <= now]:
            # An earlier one's end may have taken it along.
            if entry in self._entries and not safely(_log, entry.overdue, now):
                entry.deadline = now + AFTER_A_FAULT
        if self._entries and self._call is None:
            self._look_again(now)

    def _look_again(self, now: float) -> None:
        self._expected = now + INTERVAL
        self._call = self._clock.callLater(INTERVAL, self._look)

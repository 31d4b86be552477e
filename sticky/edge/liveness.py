"""The relays' clock: one timer for all pings and deadlines, and what tells our pings from others'. Must not know what a turn
or a deadline is for.

A DelayedCall for each connection would cost more than the connections themselves; this is two stores a deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky.observe.safely import safely

_log = Logger()

LONGEST_STEP = 1.0  #: seconds; a deadline is noticed at most this late
STANDSTILL = 1.0  #: seconds that a turn comes late where this process got no processor


class Member(Protocol):
    """Somebody with a regular turn."""

    slot: int  #: ours

    def turn(self) -> None:
        """An interval has passed."""


M = TypeVar("M")


class Deadlines:
    """Who waits for one thing, each as long as the others: so they are due in the order in which they came."""

    def __init__(self, liveness: Liveness, delay: float, due: Callable[[Any], None]) -> None:
        self._liveness = liveness
        self._delay = delay
        self._call = due
        self._due: dict[object, float] = {}

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._due

    def __len__(self) -> int:
        return len(self._due)

    def add(self, waiter: object) -> None:
        """Wait from now on, also where it waits already. With a delay of 0 nobody ever waits."""
        if self._delay > 0:
            self._due.pop(waiter, None)
            self._due[waiter] = self._liveness.now() + self._delay
            self._liveness.wake()

    def discard(self, waiter: object) -> None:
        """Wait no more; a no-op where it does not."""
        self._due.pop(waiter, None)

    def expire(self, now: float) -> None:
        """Tell whom it is due."""
        while self._due:
            waiter = next(iter(self._due))
            if self._due[waiter] > now:
                return
            del self._due[waiter]
            safely(_log, self._call, waiter)


class Marks:
    """The payloads of our pings."""

    def __init__(self) -> None:
        self._prefix = os.urandom(4)
        self.count = 0  #: so far

    def next(self) -> bytes:
        """8 bytes that nobody else's ping has."""
        self.count += 1
        return self._prefix + (self.count & 0xFFFFFFFF).to_bytes(4, "big")

    def __contains__(self, payload: bytes) -> bool:
        return len(payload) == 8 and payload.startswith(self._prefix)


class Liveness:
    """The timer, the turns and the deadlines. It runs only while there is somebody."""

    def __init__(self, clock: IReactorTime, interval: float, *delays: float) -> None:
        """`interval` between two turns of one member, 0 for none; `delays`: the deadlines that will be added."""
        self._clock = clock
        waits = [wait for wait in (interval, *delays) if wait > 0]
        self._step = min([LONGEST_STEP, *(wait / 10 for wait in waits)])
        self._turns = interval > 0
        # Members are spread over the interval by the moment at which they joined: no burst of pings.
        self._slots: list[set[Member]] = [set() for _ in range(max(1, round(interval / self._step)))]
        self._at = 0
        self._members = 0
        self._deadlines: list[Deadlines] = []
        self._call: IDelayedCall | None = None
        self._expected = 0.0  # when it is to come

    def __len__(self) -> int:
        return self._members

    def __iter__(self) -> Iterator[Member]:
        for slot in self._slots:
            yield from list(slot)

    def now(self) -> float:
        """Seconds on the clock."""
        return float(self._clock.seconds())

    def deadlines(self, delay: float, due: Callable[[Any], None]) -> Deadlines:
        """A new kind of deadline, `delay` seconds from each `add`."""
        made = Deadlines(self, delay, due)
        self._deadlines.append(made)
        return made

    def join(self, member: Member) -> None:
        """From now on; the first turn comes an interval from now, up to a step earlier."""
        member.slot = self._at
        self._slots[self._at].add(member)
        self._members += 1
        self.wake()

    def leave(self, member: Member) -> None:
        """No more turns. A no-op where it has left."""
        if member in self._slots[member.slot]:
            self._slots[member.slot].remove(member)
            self._members -= 1

    def wake(self) -> None:
        """There is something to wait for."""
        if self._call is None:
            self._expected = self.now() + self._step
            self._call = self._clock.callLater(self._step, self._tick)

    def stop(self) -> None:
        """Nobody is left to wait for."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _tick(self) -> None:
        self._call = None
        now = self.now()
        if now - self._expected >= STANDSTILL:
            # A reactor calls what is due before it reads: the answers that are waited for may be there, and are read first.
            self._expected = now
            self._call = self._clock.callLater(0, self._tick)
            return
        for deadlines in self._deadlines:
            deadlines.expire(now)
        self._at = (self._at + 1) % len(self._slots)
        if self._turns:
            for member in list(self._slots[self._at]):
                if member in self._slots[self._at]:  # an earlier one's turn may have taken it along
                    safely(_log, type(member).turn, member)
        if self._members or any(self._deadlines):
            self.wake()

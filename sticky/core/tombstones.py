"""Why sessions ended, for as long as their tokens could be presented. Bounded; knows nothing but ids, reasons and times."""

from __future__ import annotations

from collections import OrderedDict

import attrs

from sticky.core.values import EndReason, SessionId

CAPACITY = 100_000


@attrs.frozen
class Tombstone:
    """One ended session."""

    reason: EndReason
    detail: str | None
    forget_at: float  #: when its token has expired for certain


class Tombstones:
    """Ended sessions, oldest first. Beyond `capacity` the oldest are forgotten (their tokens then get reason `ended`)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        # A plain dict would look at every place that was emptied before it finds the first that is not: 45 µs a step at 100,000.
        self._stones: OrderedDict[SessionId, Tombstone] = OrderedDict()

    def add(self, session: SessionId, stone: Tombstone) -> None:
        """Remember; the oldest is dropped where that is one too many."""
        self._stones[session] = stone
        if len(self._stones) > self.capacity:
            self._stones.popitem(last=False)

    def forget(self, now: float) -> None:
        """Drop those at the old end whose tokens have expired."""
        while self._stones:
            oldest = next(iter(self._stones))
            if self._stones[oldest].forget_at > now:
                return
            del self._stones[oldest]

    def get(self, session: SessionId) -> Tombstone | None:
        """The stone, or None."""
        return self._stones.get(session)

    def __len__(self) -> int:
        return len(self._stones)

    def items(self) -> list[tuple[SessionId, Tombstone]]:
        """All, oldest first."""
        return list(self._stones.items())

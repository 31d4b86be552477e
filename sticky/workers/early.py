"""Workers that have imported all that they need before they may serve anybody: connected, and not heard yet.

So a daemon that takes over from another one does not keep newcomers waiting for its interpreters. Must not know who is let in.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from sticky.workers.frames import Link


class Early:
    """See the module."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._is_one: Callable[[int], bool] = _nobody
        self._links: set[Link] = set()
        self._wanted = 0
        self._ready: Deferred[None] | None = None  # fires when so many are here

    def __contains__(self, link: Link) -> bool:
        return link in self._links

    def expect(self, is_one: Callable[[int], bool]) -> None:
        """From now on those for whose pid this is true are kept here."""
        self._is_one = is_one

    def keep(self, link: Link, pid: int) -> bool:
        """Keep this one here if it is one of them: it rests."""
        if not self._is_one(pid):
            return False
        link.rest()
        self._links.add(link)
        self._tell()
        return True

    def lose(self, link: Link) -> None:
        """It is gone, if it was here."""
        self._links.discard(link)

    def ready(self, count: int, within: float) -> Deferred[None]:
        """Fires when so many are here, or so many seconds have passed. Never fails."""
        self._wanted, self._ready = count, Deferred()
        ready = self._ready.addTimeout(within, self._clock).addErrback(lambda _: None)
        self._tell()
        return ready

    def release(self) -> set[Link]:
        """Keep nobody any more. Returns those that were here; to wake them is the caller's."""
        self._is_one = _nobody
        links, self._links = self._links, set()
        return links

    def _tell(self) -> None:
        if self._ready is not None and not self._ready.called and len(self._links) >= self._wanted:
            self._ready.callback(None)


def _nobody(pid: int) -> bool:
    return False

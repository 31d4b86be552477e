"""Two ends of a link in memory: what one writes waits until the test delivers it, in pieces of any size."""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from sticky.workers.frames import Link


class End:
    """The transport of one end."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.sent += data

    def abortConnection(self) -> None:
        self.closed = True

    loseConnection = abortConnection


class Wire:
    """A link's two ends, `near` the daemon's and `far` the proxy's."""

    def __init__(self, clock: Clock) -> None:
        self.near, self.far = Link(clock), Link(clock)
        self._ends = {self.near: End(), self.far: End()}
        for link, end in self._ends.items():
            link.makeConnection(end)

    def _other(self, link: Link) -> Link:
        return self.far if link is self.near else self.near

    def waits(self, link: Link) -> bool:
        """Whether something is on its way to this end."""
        return bool(self._ends[self._other(link)].sent)

    def deliver(self, link: Link, size: int | None = None) -> None:
        """What is on its way to this end arrives, or the first so many bytes of it."""
        end = self._ends[self._other(link)]
        if self._ends[link].paused:
            return
        size = len(end.sent) if size is None else size
        data, end.sent = end.sent[:size], end.sent[size:]
        if data and not self._ends[link].closed:
            link.dataReceived(data)

    def run(self) -> None:
        """Deliver until nothing is on its way."""
        for _ in range(1000):
            if not (self.waits(self.near) or self.waits(self.far)):
                break
            self.deliver(self.near)
            self.deliver(self.far)
        self.lose_if_closed()

    def lose_if_closed(self) -> None:
        """Where one end has closed, both hear of it."""
        if any(end.closed for end in self._ends.values()):
            self.lose()

    def lose(self) -> None:
        """The connection breaks."""
        for link, end in self._ends.items():
            end.closed = True
            if link.state.value == "open":
                link.connectionLost(Failure(ConnectionDone()))

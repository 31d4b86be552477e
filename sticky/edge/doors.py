"""How many clients are in, in all and from one address, and when listeners accept. Knows nothing of what clients do inside."""

from __future__ import annotations

import resource
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from sticky.edge.limits import EdgeLimits

RESERVED_FILES = 128  #: descriptors kept for everything but clients and their containers
LOG_EVERY = 60.0  #: seconds between two log lines about full doors


class Listener(Protocol):
    """A listening port whose accepting can pause (`twisted.internet.tcp.Port`, `unix.Port`)."""

    def stopReading(self) -> None: ...

    def startReading(self) -> None: ...


def connections_possible() -> int:
    """How many clients the limit of open files allows, each with a connection to its container."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(1, (soft - RESERVED_FILES) // 2)


class Doors:
    """Counts clients. At the limit the listeners stop accepting: newcomers wait in the kernel's backlog, and nothing spins.

    They also stop while the doors are `shut`, whatever room there is: both are decided here, so that neither undoes the other.
    The limit keeps clear of the limit of open files, because an `accept` that fails for want of a descriptor makes a
    level-triggered listener report the same newcomer for ever.
    """

    def __init__(self, limits: EdgeLimits, clock: IReactorTime, log: Logger | None = None) -> None:
        self.limit = connections_possible() if limits.connections is None else limits.connections
        per_client = limits.connections_per_client
        self.limit_per_client = max(1, self.limit // 2) if per_client is None else per_client
        self.inside = 0
        self._by_address: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._full = False
        self._shut = False
        self._clock = clock
        self._logged_at = -LOG_EVERY
        self._log = Logger(namespace="sticky.edge") if log is None else log

    def add_listener(self, listener: Listener) -> None:
        """Pause this port when the doors are full, or shut."""
        self._listeners.append(listener)
        if self._full or self._shut:
            listener.stopReading()

    def shut(self) -> None:
        """Let newcomers wait in the kernel's backlog until `open`. Doubled: a no-op."""
        self._shut = True
        self._pause()

    def open(self) -> None:
        """Let in as many as there is room for. Doubled: a no-op."""
        self._shut = False
        self._go_on()

    def enter(self, address: str) -> bool:
        """A client has connected. False: it is one too many from its address and was not counted."""
        count = self._by_address.get(address, 0)
        if address and count >= self.limit_per_client:
            self.say("{address} has {count} connections, which is its limit", address=address, count=count)
            return False
        self.count(address)
        if self.inside >= self.limit and not self._full:
            self._full = True
            self._pause()
            self.say("{count} clients are connected, which is the limit: accepting pauses", count=self.inside)
        return True

    def count(self, address: str) -> None:
        """A client is in, whatever the limits say."""
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self.inside += 1

    def left(self, address: str) -> None:
        """A client that was counted has disconnected."""
        self.inside -= 1
        count = self._by_address[address] - 1
        if count:
            self._by_address[address] = count
        else:
            del self._by_address[address]
        if self._full and self.inside < self.limit:
            self._full = False
            self._go_on()

    def _pause(self) -> None:
        for listener in self._listeners:
            listener.stopReading()

    def _go_on(self) -> None:
        if not self._full and not self._shut:
            for listener in self._listeners:
                listener.startReading()

    def say(self, text: str, **fields: object) -> None:
        """An error line, unless there was one within the last minute: who is turned away comes back at once."""
        now = self._clock.seconds()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            self._log.error(text, **fields)

"""Which TCP port a container gets: free, outside the ephemeral range, never handed out twice. Must not know containers."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable
from pathlib import Path

from sticky.errors import StickyError

FIRST, LAST = 20_000, 29_999


class NoFreePort(StickyError):
    """Every port of the range is in use. A later try can succeed."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"no free port between {first} and {last}")


def ephemeral_range(source: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """The ports that the kernel gives to outgoing connections; empty where it cannot be read."""
    try:
        low, high = source.read_text().split()
        return range(int(low), int(high) + 1)
    except (OSError, ValueError):
        return range(0)


def bindable(port: int) -> bool:
    """Whether a server could listen on this port on every address of the machine just now."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As servers do: connections in TIME_WAIT do not matter, a listener does. On Linux `::` covers IPv4 too.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                return True
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return False


class Ports:
    """Hands out ports of a range, `first` to `last` inclusive.

    In turn and not lowest first: a port that just became free is the last to be used again, so that whoever still
    connects to its former owner meets nobody. Starts anywhere, so that two daemons seldom meet.
    """

    def __init__(
        self,
        first: int = FIRST,
        last: int = LAST,
        *,
        ephemeral: range | None = None,
        bindable: Callable[[int], bool] = bindable,
        start: int | None = None,
    ) -> None:
        avoid = ephemeral_range() if ephemeral is None else ephemeral
        whole = range(first, last + 1)
        # Where the kernel's range covers all of ours we have no choice; a port lost to an outgoing connection then
        # fails that one container, which is started again on another port.
        self._ports = [port for port in whole if port not in avoid] or list(whole)
        self._next = random.randrange(len(self._ports)) if start is None else self._ports.index(start)
        self._used: set[int] = set()
        self._bindable = bindable
        self._first, self._last = first, last

    @property
    def in_use(self) -> frozenset[int]:
        """The ports that were handed out and not released."""
        return frozenset(self._used)

    def acquire(self) -> int:
        """A port that is free now; nobody can promise that it still is when the container binds it. Raises `NoFreePort`."""
        for _ in self._ports:
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            if port not in self._used and self._bindable(port):
                self._used.add(port)
                return port
        raise NoFreePort(self._first, self._last)

    def reserve(self, port: int) -> None:
        """A container that an earlier daemon started has this port, in or outside of the range: it is not handed out."""
        self._used.add(port)

    def release(self, port: int) -> None:
        """The port's container is gone. Releasing a port that is not handed out does nothing."""
        self._used.discard(port)

"""Tells when a transport has handed everything to the kernel: a request is in flight until then. Knows no HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sticky.edge.client import Client


class FlushWatch:
    """A pull producer that has nothing to give: a transport asks it for more at the moment when its buffer is empty.

    A transport that writes at once, and knows, says so with an attribute `buffered`: the number of bytes that the kernel has
    not taken yet. On TLS the transport below is watched: its buffer is the last one before the kernel.
    """

    __slots__ = ("_asked", "_front", "_linger", "_reset", "_watching", "transport")

    def __init__(self, front: Client) -> None:
        self._front: Any = front
        self._asked = False
        self._linger = False
        self._reset = False
        self._watching = False
        self.transport: Any = None

    def watch(self, linger: bool, wrote: bool, reset: bool = False) -> None:
        """Call the front's `flushed` when all is out."""
        self._linger = linger
        self._reset = reset
        self._watching = True
        transport = self.transport
        if getattr(transport, "buffered", 1) == 0:
            self._watching = False
            self._front.flushed(linger, reset)
            return
        self._asked = False
        transport.registerProducer(self, False)
        if not wrote and self._watching:  # an empty buffer asks nobody
            transport.startWriting()

    def stop(self) -> None:
        """Watch no more; not watching is a no-op."""
        if self._watching:
            self._watching = False
            self.transport.unregisterProducer()

    def forget(self) -> None:
        """The connection is over, or somebody else's. Its front knows this object: a cycle for the garbage collector."""
        self._watching = False
        self._front = self.transport = None

    def resumeProducing(self) -> None:
        if not self._asked:  # from registerProducer itself: says nothing about the buffer
            self._asked = True
        elif self._watching:
            self.stop()
            self._front.flushed(self._linger, self._reset)

    def stopProducing(self) -> None:
        self._watching = False

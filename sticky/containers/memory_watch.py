"""Hears when a limited container was short of memory, where the kernel kills only one process of it: cgroup version 1.

By an eventfd that the kernel counts up (memory.oom_control). It does so before it kills, so the counter of kills is looked at a
few times after. Version 2 kills the whole group by itself, and the end of the main process says the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from twisted.internet.interfaces import IDelayedCall, IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers.adopted import IWatchingReactor
from sticky.containers.memory_limit import count

_LOOKS = 40
_EVERY = 0.025  # seconds


@implementer(IReadDescriptor)
class MemoryWatch:
    """Calls `exceeded` once, when the kernel has killed something in the group for want of memory."""

    def __init__(self, reactor: IWatchingReactor, counter: Path, exceeded: Callable[[], None]) -> None:
        self._reactor = reactor
        self._counter = counter
        self._exceeded: Callable[[], None] | None = exceeded
        self._descriptor = -1
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """From now on; what was counted before is heard of in the next turn. Raises OSError where the kernel does not tell."""
        if self._counter.name == "memory.oom_control":
            self._descriptor = _notified(self._counter)
            self._reactor.addReader(self)
        self._look(1)

    def stop(self) -> None:
        """No more. Again: nothing happens."""
        self._exceeded = None
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._reactor.removeReader(self)
            os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def doRead(self) -> None:
        """It happened, or the group is gone."""
        os.eventfd_read(self._descriptor)
        if self._timer is None:
            self._look(_LOOKS)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""
        self.stop()

    def logPrefix(self) -> str:
        return "memory watch"

    def _look(self, times: int) -> None:
        self._timer = self._reactor.callLater(0 if times in (1, _LOOKS) else _EVERY, self._looked, times - 1)

    def _looked(self, left: int) -> None:
        self._timer = None
        exceeded = self._exceeded
        if exceeded is not None and count(self._counter):
            self.stop()
            exceeded()
        elif left:
            self._look(left)


def _notified(counter: Path) -> int:
    """An eventfd (cgroup version 1, cgroup.event_control)."""
    event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(counter, os.O_RDONLY | os.O_CLOEXEC)
        try:
            register = os.open(counter.with_name("cgroup.event_control"), os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(register, b"%d %d" % (event, control))
            finally:
                os.close(register)
        finally:
            os.close(control)
    except OSError:
        os.close(event)
        raise
    return event

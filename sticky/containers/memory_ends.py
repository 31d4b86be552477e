"""Which containers end for want of memory: by the counter of their own cgroup, or of one that they share. Must not end any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.logger import Logger

from sticky.containers.adopted import IWatchingReactor
from sticky.containers.cgroups import Group
from sticky.containers.memory_limit import MemoryKills
from sticky.containers.memory_watch import MemoryWatch
from sticky.core.values import ContainerId


class MemoryEnds:
    """For one backend's containers. `kills`: what the kernel counts."""

    def __init__(self, reactor: IWatchingReactor, kills: MemoryKills) -> None:
        self._reactor = reactor
        self._kills = kills
        self._counters: dict[ContainerId, Path] = {}
        self._watches: dict[ContainerId, MemoryWatch] = {}
        self._log = Logger(namespace="sticky.containers")

    def share(self, container: ContainerId, pid: int, group: Group | None) -> None:
        """It has no limit of its own; whatever limits it, limits others too."""
        counter = self._kills.cgroup(pid, None if group is None else group.unified)
        if counter is not None:
            self._counters[container] = counter

    def own(self, container: ContainerId, counter: Path, exceeded: Callable[[], None]) -> None:
        """It has a limit of its own. `exceeded` is called, never from within, when a part of it was killed."""
        self._counters[container] = counter
        self._kills.expect(counter)
        self._watches[container] = watch = MemoryWatch(self._reactor, counter, exceeded)
        try:
            watch.start()
        except OSError as error:
            self._log.warn(
                "That container {container} runs out of memory is only seen at its end: {reason}",
                container=container,
                reason=str(error),
            )

    def explain(self, container: ContainerId) -> bool:
        """Whether a death by SIGKILL, by nobody's wish, was the kernel's for want of memory."""
        return self._kills.explain(self._counters.get(container))

    def forget(self, container: ContainerId) -> None:
        """It is gone. A no-op on one that is not known."""
        watch = self._watches.pop(container, None)
        counter = self._counters.pop(container, None)
        if watch is not None:
            watch.stop()
            if counter is not None:
                self._kills.forget(counter)

    def stop(self) -> None:
        """Watch nothing any more."""
        for container in list(self._watches):
            self._watches.pop(container).stop()

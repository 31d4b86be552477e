"""Keeps the logs of containers that run within their bound: how often to look. Must not know what is in a log.

A container writes straight into its file, so nothing can hold it up: between two looks it may write as fast as the disk (or
the kernel's memory) takes it, 1 to 2 GB/s. The bound on disk is therefore `limit` and what fits between two looks.
"""

from __future__ import annotations

from pathlib import Path

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky.containers import logs
from sticky.core.values import ContainerId

EVERY = 0.25  #: seconds between two looks: 1.5 us for each log, so 0.1 % of a core for 200 containers
CLOSELY = 0.02  #: the same while some log grows so fast that it would pass its bound within a few looks
SAY_EVERY = 60.0  #: seconds between two warnings about one container


@attrs.define(eq=False)
class _Watched:
    path: Path
    size: int = 0  #: at the last look
    said_at: float | None = None


class LogWatch:
    """One timer for all logs, none while there are none. `limit`: bytes a log may hold; `every`: seconds."""

    def __init__(self, clock: IReactorTime, limit: int, every: float = EVERY) -> None:
        self._clock = clock
        self._limit = limit
        self._every = every
        self._watched: dict[ContainerId, _Watched] = {}
        self._timer: IDelayedCall | None = None
        self._log = Logger(namespace="sticky.containers")

    def add(self, container: ContainerId, path: Path) -> None:
        """It writes from now on."""
        self._watched[container] = _Watched(path)
        if self._timer is None:
            self._timer = self._clock.callLater(self._every, self._look)

    def remove(self, container: ContainerId) -> None:
        """It has ended: its log is bounded for the last time."""
        watched = self._watched.pop(container, None)
        if watched is not None:
            logs.bound(watched.path, self._limit)
        if not self._watched:
            self.stop()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        flood = False
        for container, watched in self._watched.items():
            grown = self._bound(container, watched)
            flood = flood or grown > self._limit // 8
        self._timer = self._clock.callLater(min(CLOSELY, self._every) if flood else self._every, self._look)

    def _bound(self, container: ContainerId, watched: _Watched) -> int:
        """By how many bytes the log has grown since the last look."""
        size = logs.size_of(watched.path)
        grown = size - watched.size
        watched.size = size
        if size > self._limit and logs.bound(watched.path, self._limit):
            watched.size = logs.size_of(watched.path)
            now = self._clock.seconds()
            if watched.said_at is None or now - watched.said_at >= SAY_EVERY:
                watched.said_at = now
                self._log.warn(
                    "The log of container {container} passed {limit} bytes; its older part was dropped",
                    container=container,
                    limit=self._limit,
                )
        return grown

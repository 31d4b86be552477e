"""Processes at the other end of a Unix socket: how old they are, whether they get on, and those that have no business here.

Must not know what is spoken.
"""

from __future__ import annotations

import os
import time
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

SAY_EVERY: Final = 60.0  #: seconds between two lines about strangers: any user can knock as fast as it likes


class Strangers:
    """Says in the log that processes of other users have connected, once in `SAY_EVERY` and how many it were."""

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._said_at: float | None = None
        self._since = 0

    def refused(self, uid: int) -> None:
        """One was turned away."""
        self._since += 1
        now = self._clock.seconds()
        if self._said_at is not None and now - self._said_at < SAY_EVERY:
            return
        self.log.error(
            "a process of another user, {uid}, has tried to be a proxy ({count} such attempts since this was said last)",
            uid=uid,
            count=self._since,
        )
        self._said_at, self._since = now, 0


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/pid/stat (proc(5)) from the third on, its state; none of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def age_of(pid: int) -> float | None:
    """Seconds since a process was started; None: it is gone."""
    fields = _stat(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK") if fields else None


class Progress:
    """Whether a process gets on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks = 0

    def made(self) -> bool:
        """Whether it has used the processor since this was asked last, or waits for it. One that is stopped or hangs does not."""
        fields = _stat(self._pid)
        if not fields:
            return False
        before, self._ticks = self._ticks, int(fields[11]) + int(fields[12])
        return fields[0] == b"R" or self._ticks > before

"""What a process has used so far: asked of the kernel. Knows no benchmark."""

from __future__ import annotations

import time
from pathlib import Path

_OF_A_PROCESS = 2  # CPUCLOCK_SCHED without CPUCLOCK_PERTHREAD_MASK (linux/posix-timers.h)


def worked(process: int) -> int:
    """Nanoseconds of a processor that a process has had, with its threads that have ended. Raises OSError for one that is gone.

    The clock that clock_getcpuclockid(3) names: /proc/PID/task has living threads alone, and these end while one reads there.
    """
    return time.clock_gettime_ns(~process << 3 | _OF_A_PROCESS)


def private(process: int) -> int:
    """Bytes that this process shares with nobody. Raises OSError for one that is gone."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))

"""Found by the Python of daemons and workers that run with libfaketime: `time.sleep` is one that works there.

Python sleeps up to a point in monotonic time (clock_nanosleep(2) with TIMER_ABSTIME), which libfaketime makes one of the other clock
even where it is told to leave this one alone: EINVAL.
"""

from __future__ import annotations

import select
import time


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = _sleep  # type: ignore[assignment]

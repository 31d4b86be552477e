"""How a sandbox ends by its own doing, and what the daemon is to call it. Shared with the daemon; must not do anything."""

from __future__ import annotations

import signal
from collections.abc import Mapping

TIMED_OUT = 75  #: exit status: a call took longer than its time limit
WOULD_NOT_STOP = 76  #: exit status: a call was cancelled and did not give in
DEAF = 77  #: exit status: a function has closed what calls come in by
OVERDUE = int(signal.SIGRTMAX)  #: the signal that ends one whose function never gave the interpreter's lock back

#: Exit status, or the negative number of a signal -> what the session's end is called in detail.
DETAILS: Mapping[int, str] = {
    TIMED_OUT: "call_timeout",
    -OVERDUE: "call_timeout",
    WOULD_NOT_STOP: "call_not_interrupted",
    DEAF: "door_closed",
}

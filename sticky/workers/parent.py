"""A process that dies with the one that started it. Imports next to nothing: whoever uses it does so before its own imports.

A worker has its daemon's listening sockets from its first moment on. One whose daemon is killed while it still imports would hold the
port until it comes to look, seconds later on a busy machine, and the next daemon could not listen.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with(parent: int | None) -> None:
    """SIGKILL when the process that started us ends (prctl(2)); at once if it has ended already. None: not any more."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, 0 if parent is None else signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)

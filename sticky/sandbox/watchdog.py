"""Ends the process when a call is overdue and nothing in Python can: a function that never gives the interpreter's lock back.

By a timer of the kernel (timer_create(2)) whose signal nobody handles, so that the daemon can tell this end from others.
faulthandler writes to the log where the function was, a moment before, on a thread of C. Runs INSIDE the interpreter.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os

from sticky.sandbox.endings import OVERDUE

_CLOCK_MONOTONIC, _SIGEV_SIGNAL = 1, 0
_TIME_TO_WRITE = 0.25  # seconds


class _Event(ctypes.Structure):
    """struct sigevent, which has 64 bytes (sigevent(3type))."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * (64 - ctypes.sizeof(ctypes.c_void_p) - 8)),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: the interval, and the time until the first expiry."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every", "every_ns", "first", "first_ns"))


class Watchdog:
    """One for each process: a timer does not outlive a fork. `log`: the descriptor of the container's output."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._timer: ctypes.c_void_p | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)

    def arm(self, seconds: float) -> None:
        """End the process in so many seconds. Raises OSError where the kernel gives no timer."""
        if self._timer is None:
            timer, event = ctypes.c_void_p(), _Event(None, OVERDUE, _SIGEV_SIGNAL, b"")
            self._check(self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)))
            self._timer = timer
        self._set(seconds)
        faulthandler.dump_traceback_later(max(seconds - _TIME_TO_WRITE, 0.001), file=self._log)

    def disarm(self) -> None:
        """Not any more."""
        faulthandler.cancel_dump_traceback_later()
        if self._timer is not None:
            self._set(0.0)

    def _set(self, seconds: float) -> None:
        whole = int(seconds)
        setting = _Setting(0, 0, whole, int((seconds - whole) * 1e9))
        self._check(self._libc.timer_settime(self._timer, 0, ctypes.byref(setting), None))

    def _check(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

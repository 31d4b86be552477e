"""SIGHUP: without a controlling terminal it asks for the definition to be read again; with one, it ended, and so do we."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def on_hangup(reload: Callable[[], None], reactor: Any) -> None:
    """From now on: when twistd has forked, for until then there is a terminal. One that is ignored (nohup) there stays so.

    What is asked for before the reactor runs happens when it does.
    """

    def reloading(*_: object) -> None:
        reactor.callFromThread(reload)

    def stopping(*_: object) -> None:
        reactor.callFromThread(reactor.stop)

    if not has_terminal():
        signal.signal(signal.SIGHUP, reloading)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stopping)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal (tty(4): else /dev/tty cannot be opened)."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True

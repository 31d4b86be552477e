"""A daemon as a child of this process, for `sticky run` and `sticky serve`: its command line, its end, and that it never outlives us.

Must not know what is served, nor what anybody asks of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NoReturn

STOP_LIMIT = 60.0  #: seconds for a daemon to stop; its own shutdown_timeout is 45
_PR_SET_PDEATHSIG = 1  # prctl(2)


def command(options: Sequence[str]) -> list[str]:
    """`twistd -n sticky` with these options, by this interpreter. For a child of this very process only."""
    # -P: what lies in the folder where somebody works is no part of the daemon, whatever it is called.
    words = [sys.executable, "-P", "-c", f"from sticky.sdk.child import become; become({os.getpid()})"]
    return [*words, "-n", "--pidfile=", "sticky", *options]


def become(parent: int) -> NoReturn:
    """In the child: be the daemon, and stop as on SIGTERM when the parent ends, however that ends.

    Not by SIGKILL as containers do: a daemon that is killed cannot end what its containers started.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # it had ended before the line above, so no signal will come
    from twisted.scripts.twistd import run

    run()
    sys.exit(0)


@contextmanager
def running(words: Sequence[str], output: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon, for the length of the block. `output`: for what it says; None: where we say ours.

    It is stopped in an orderly way, and by force if that takes too long. A second Ctrl-C while it stops is force too.
    """
    # In a session of its own: a Ctrl-C on the terminal is ours, the daemon hears of it once, from us.
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        yield child
    finally:
        try:
            child.terminate()
            child.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            child.kill()  # a no-op on one that has ended
            child.wait()

"""A process that has imported what `twistd sticky` and `sticky` import, and forks into them: run by `preloaded`, never imported.

To import is nine tenths of what a daemon that a test starts costs. Nothing is done here but that: no reactor, thread, file or
signal handler is there before the fork, so that what comes after it is what comes after the imports of a fresh process.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PRELOADED = (
    "sticky.cli.once",
    "sticky.tap",
    "sticky.wiring",
    "sticky.containers.process",
    "tests.integration.earlier_daemon",
    "twisted.scripts.twistd",
)
MOST = 1 << 20  #: bytes of a request, which has an environment in it
#: The descriptors of a request: these, that which its end is written to, and those that keep their numbers.
STANDARD = 3


def preload() -> None:
    """Raises AssertionError for a module that does more than be there."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "a reactor must not be shared"
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be there after the fork"
    # What is not looked at by the collector is not written to, so it stays shared.
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> Callable[[], object]:
    """Fork for each request until nobody can send one any more. Returns, in each child, what it has to run."""
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.data is not None:
                pid, told = key.data
                waiting.unregister(key.fd)
                os.close(key.fd)
                os.write(told, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)
                continue
            fds = array.array("i")
            text, control, _flags, _address = requests.recvmsg(MOST, socket.CMSG_SPACE(64 * fds.itemsize))
            for _level, _kind, data in control:
                fds.frombytes(data)
            if not text:
                os._exit(0)
            wanted = json.loads(text)
            pid = os.fork()
            if not pid:
                waiting.close()
                requests.close()
                kept = {0, 1, 2, *fds[:STANDARD], *fds[STANDARD + 1 :]}
                for name in os.listdir("/proc/self/fd"):
                    if int(name) not in kept:
                        with contextlib.suppress(OSError):  # that of the list itself
                            os.close(int(name))
                return become(wanted, fds)
            requests.send(b"%d" % pid)
            for fd in [*fds[:STANDARD], *fds[STANDARD + 1 :]]:
                os.close(fd)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[STANDARD]))


def become(wanted: Mapping[str, Any], fds: array.array[int]) -> Callable[[], object]:
    """What a fresh process has from its parent and its interpreter's start."""
    if wanted["session"]:
        os.setsid()
    for number, fd in enumerate(fds[:STANDARD]):
        os.dup2(fd, number)
        os.close(fd)
    for number, fd in zip(wanted["passed"], fds[STANDARD + 1 :], strict=True):
        if fd != number:
            os.dup2(fd, number)
            os.close(fd)
        os.set_inheritable(number, True)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environ"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.argv = wanted["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[0] = os.path.dirname(sys.argv[0])
    if os.path.basename(sys.argv[0]) == "earlier_daemon.py":
        from tests.integration.earlier_daemon import main as earlier

        return earlier
    if "twistd" in os.path.basename(sys.argv[0]):
        from twisted.scripts.twistd import run

        return run
    from sticky.cli import main

    return main


if __name__ == "__main__":
    sys.path.insert(0, ROOT)
    preload()
    sys.path.remove(ROOT)
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        run = serve(ours)
    sys.exit(run())  # type: ignore[arg-type]

"""Whether a process can be forked: nothing may run or be open in it that a fork would copy half. Must not know what it is for.

Threads are not in a fork, and what they held locked stays locked there. Connections, event loops and files' positions would be
shared by all forks. Looked at by /proc, after everything was imported and run, so that the answer is about what is, not what
might be.
"""

from __future__ import annotations

import _thread
import os
import socket
import stat
import sys
import threading
from collections.abc import Collection, Iterator

_HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/")


class Unfit(Exception):
    """This process cannot be forked safely; the text says what is in the way."""


def check(kept: Collection[int] = (0, 1, 2)) -> None:
    """Raises `Unfit` with all that is in the way. `kept`: descriptors that are known. Forks once, for a moment."""
    found = [*_threads(), *_reactor(), *_processes(), *_descriptors(kept)]
    if found:
        raise Unfit(f"what ran before the fork {' and '.join(found)}")


def _threads() -> Iterator[str]:
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    hidden = _thread._count() - len(names)
    if hidden > 0:
        names.append(f"{hidden} without a name")
    if names:
        yield f"has started threads: {', '.join(names)}"
        return
    left = _threads_that_stay()
    if left:
        count = "a thread" if len(left) == 1 else f"{len(left)} threads"
        yield (
            f"has started {count} of a library that does not take them along into a fork"
            f" ({', '.join(sorted(set(left)))}; with OMP_NUM_THREADS=1 most libraries start none)"
        )


def _threads_that_stay() -> list[str]:
    """The names of threads that are not Python's. A library that knows about forks ends its own before one: so one is tried.

    OpenBLAS does, which starts its threads when numpy is imported.
    """
    if len(os.listdir("/proc/self/task")) == 1:
        return []
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    names = []
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            try:
                with open(f"/proc/self/task/{thread}/comm") as comm:
                    names.append(comm.read().strip())
            except OSError:
                pass  # it has just ended
    return names


def _reactor() -> Iterator[str]:
    if "twisted.internet.reactor" in sys.modules:
        yield "has installed a reactor"


def _processes() -> Iterator[str]:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)  # one that has ended and that nobody waited for is in nobody's way
        except ChildProcessError:
            return
        if not pid:
            yield "has started a process, which would be the child of none of the forks"
            return


def _descriptors(kept: Collection[int]) -> Iterator[str]:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        number = int(name)
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
            problem = None if number in kept else _problem(number, target)
        except OSError:
            continue  # the descriptor of the listing itself
        if problem is not None:
            yield f"has {problem} open (descriptor {number})"


def _problem(number: int, target: str) -> str | None:
    if target.startswith("socket:"):
        return _connection(number)
    if target.startswith("anon_inode:"):
        kind = target.removeprefix("anon_inode:").strip("[]")
        return "an event loop (epoll)" if kind == "eventpoll" else f"a descriptor of the kernel's ({kind})"
    if target.startswith("pipe:"):
        return "a pipe"
    mode = os.fstat(number).st_mode
    if stat.S_ISCHR(mode):
        return None if target.startswith(_HARMLESS) else f"the device {target}"
    return f"{target} for writing" if stat.S_ISREG(mode) and _writes(number) else None


def _writes(number: int) -> bool:
    """Forks share a file's position and its locks. Who only appends, as logs do, needs neither; readers of a model's file may."""
    with open(f"/proc/self/fdinfo/{number}") as info:
        flags = next(int(line.split()[1], 8) for line in info if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_APPEND


def _connection(number: int) -> str:
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            peer = copy.getpeername()
    except OSError:
        return "a socket"
    return f"a connection to {peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a connection"

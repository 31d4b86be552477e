"""What makes a fork a container: session, death with its daemon, output, limits, environment, chance of its own.

The counterpart of `containers/spawn.py` for a process that execs nothing. Must not know what runs in the container.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from typing import Any

import attrs

MARK = "STICKY_CONTAINER_ID"  #: the variable by which strays are found
READY = "STICKY_READY_FD"  #: the variable that says where a container reports


@attrs.frozen
class Mark:
    """Where the id is that /proc/PID/environ shows: that is memory of the process, and forks inherit it as it is."""

    address: int
    name: str  #: what is there now

    @classmethod
    def take(cls) -> Mark:
        """Of this process, whose environment has none from now on: what runs before the fork is in no container."""
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        libc.getenv.argtypes = [ctypes.c_char_p]
        return cls(libc.getenv(MARK.encode()), os.environ.pop(MARK))

    def write(self, container: str) -> None:
        """This process is that container."""
        if len(container.encode()) != len(self.name.encode()):
            raise ValueError(f"{container} is not as long as what it is written over")
        ctypes.memmove(self.address, container.encode(), len(self.name.encode()))


def become(asked: Mapping[str, Any], given: Mapping[str, int], mark: Mark) -> None:
    """Be what was asked for, or end with status 127 and `failed STEP ERRNO` on the report, as `containers/spawn.py` does.

    `given`: descriptors. `log`, and perhaps `report`, where the container says that it is ready; `lifeline`, a pipe that ends
    with the daemon.
    """
    step = "session"
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(given["log"], 1)
        os.dup2(given["log"], 2)
        os.close(given["log"])
        if "lifeline" in given:
            _die_with(given["lifeline"])
        mark.write(asked["env"][MARK])
        step = "cgroup"
        for entrance in asked["cgroups"]:
            with open(entrance, "w") as procs:
                procs.write("0")
        for name, value in asked["rlimits"].items():
            step = f"rlimit_{name}"
            _limit(name, value)
        os.environ.update(asked["env"])
        if "report" in given:
            os.environ[READY] = str(given["report"])
        step = "chdir"
        os.chdir(asked["directory"])
    except OSError as error:
        if "report" in given:
            os.write(given["report"], f"failed {step} {error.errno}\n".encode())
            os._exit(127)
        raise


def reseed() -> None:
    """Chance of its own for a fork: Python's `random` sees to itself, the others that are known to keep a state do not.

    What user code keeps itself (`random.Random()`, `numpy.random.default_rng()`) is nothing that can be found.
    """
    for name, seed in (("numpy.random", "seed"), ("torch", "seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def _limit(name: str, value: int) -> None:
    try:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))
    except ValueError:  # its own word for EPERM: above the hard limit
        raise PermissionError(1, "above the hard limit") from None


def _die_with(lifeline: int) -> None:
    """SIGKILL from the kernel when the pipe's other end closes, which the daemon alone has.

    PR_SET_PDEATHSIG is about the parent, which is the process that we are a fork of: that one may end, and we go on.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):
        os._exit(127)  # the daemon died before the lines above, so no signal will come

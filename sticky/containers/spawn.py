"""Turns itself into a container's program: own session, death with its parent if wanted, no stray descriptors, then exec.

Runs as a script of its own (`python -I -S spawn.py PARENT REPORT LC_CTYPE DIRECTORY COMMAND...`); must not import anything of ours.
PARENT is the process whose death ends it; 0: it outlives whoever started it.

A script rather than work in a forked copy of the daemon: the daemon then starts children with posix_spawn, whose cost does
not grow with the daemon's memory. Every import here is paid at each start of a container (measured: 8.5 ms for the bare
interpreter, 2 ms for ctypes, under 1 ms for everything else).
"""

import ctypes
import os
import sys

REPORT_FD = 3  #: our last words if the program cannot be started; afterwards the program's own, if it is to report
KEEP_REPORT = "r"  #: in place of "": the program itself reports on REPORT_FD when it is ready
OUTLIVES = 0  #: in place of the parent's pid
DROPPED = "-"  #: in place of LC_CTYPE's value: the program gets none

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_IGNORED_BY_PYTHON = (13, 25)  # SIGPIPE, SIGXFSZ: an ignored signal stays ignored after exec


def become(parent: int, report: str, lc_ctype: str, directory: str, command: list[str]) -> None:
    """Never returns: the program, or an exit with 127 after `failed STEP ERRNO` on REPORT_FD."""
    step = "session"
    try:
        os.setsid()
        libc = ctypes.CDLL(None)
        if parent != OUTLIVES:
            libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)  # the daemon died before the line above, so no signal will come
        for number in _IGNORED_BY_PYTHON:
            libc.signal(number, None)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > REPORT_FD:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself
        os.set_inheritable(REPORT_FD, report == KEEP_REPORT)
        if lc_ctype == DROPPED:  # PEP 538: in the C locale Python sets the variable, in its own environment
            os.environ.pop("LC_CTYPE", None)
        else:
            os.environ["LC_CTYPE"] = lc_ctype
        step = "chdir"
        os.chdir(directory)
        step = "exec"
        os.execvp(command[0], command)
    except OSError as error:
        os.write(REPORT_FD, f"failed {step} {error.errno}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])

"""Turns itself into a container's program: own session, death with its parent if wanted, no stray descriptors, then exec.

Runs as a script of its own (`python -I -S spawn.py PARENT REPORT LC_CTYPE DIRECTORY CONFINEMENT COMMAND...`); must not import
anything of ours, but `confine.py` beside it where CONFINEMENT asks for more than a cgroup or a subreaper: a line for each, see there.
PARENT is the process whose death ends it; 0: it outlives whoever started it.

A script rather than work in a forked copy of the daemon: the daemon then starts children with posix_spawn, whose cost does
not grow with the daemon's memory. Every import here is paid at each start of a container (measured: 8.5 ms for the bare
interpreter, 2 ms for ctypes, which is therefore only imported where it is needed, under 1 ms for everything else).
"""

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`, without its enums
import os
import sys

TYPE_CHECKING = False  # without `typing`, whose import is dear
if TYPE_CHECKING:
    import ctypes

REPORT_FD = 3  #: our last words if the program cannot be started; afterwards the program's own, if it is to report
KEEP_REPORT = "r"  #: in place of "": the program itself reports on REPORT_FD when it is ready
OUTLIVES = 0  #: in place of the parent's pid
FOLLOWS = -1  #: the same: a process of the container itself, which has made the session
DROPPED = "-"  #: in place of LC_CTYPE's value: the program gets none

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL = 9
_IGNORED_BY_PYTHON = (13, 25)  # SIGPIPE, SIGXFSZ: an ignored signal stays ignored after exec


def become(parent: int, report: str, lc_ctype: str, directory: str, confinement: str, command: list[str]) -> None:
    """Never returns: the program, or an exit with 127 after `failed STEP ERRNO` on REPORT_FD."""
    step = "session"
    try:
        if parent != FOLLOWS:
            os.setsid()
        if parent != OUTLIVES:
            die_with(parent)
        for number in _IGNORED_BY_PYTHON:
            _signal.signal(number, _signal.SIG_DFL)
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
        step = "cgroup"
        rest = []
        for line in confinement.splitlines():
            word, _, value = line.partition(" ")
            if word == "cgroup":
                _join(value)
            elif word == "subreaper":  # it survives exec: who loses its parent becomes the program's child
                _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            else:
                rest.append((word, value))
        if rest:
            step = "isolation"
            sys.path.append(os.path.dirname(os.path.abspath(__file__)))
            confine = __import__("confine")  # by this name only a script finds it
            before = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(FOLLOWS), report, lc_ctype, directory]
            if confine.apply(_libc(), rest, before, command):
                parent = FOLLOWS
            if parent != OUTLIVES:
                die_with(parent)  # once more: a change of user has undone it
        step = "chdir"
        os.chdir(directory)
        step = "exec"
        os.execvp(command[0], command)
    except OSError as error:
        step = getattr(error, "step", step)
        os.write(REPORT_FD, f"failed {step} {error.errno}\n".encode())
    os._exit(127)


def _libc() -> "ctypes.CDLL":
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """SIGKILL when the parent ends, or the thread of it that started us (prctl(2))."""
    _libc().prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if parent != FOLLOWS and os.getppid() != parent:
        os._exit(127)  # the daemon died before the line above, so no signal will come


def _join(procs: str) -> None:
    entrance = os.open(procs, os.O_WRONLY)
    os.write(entrance, b"0")
    os.close(entrance)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6:])

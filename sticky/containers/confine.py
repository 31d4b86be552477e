"""The dear part of becoming a container: namespaces, limits of the process, another user, a file system of its own.

Loaded by `spawn.py` inside the new process, only where a Server asks for it; must not import anything of ours, and as little as
possible besides. Where a process has to stay above the program (the first of a pid namespace, and its parent) it is one of
these lines; it hands on how the program ended.
"""

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`, without its enums
import ctypes
import os

_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 1 << 14, 1 << 19
_AF_INET, _SOCK_DGRAM, _SIOCSIFFLAGS, _IFF_UP = 2, 2, 0x8914, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIG_DFL, _SIG_IGN = 0, 1
_SIGKILL = 9
#: What the daemon, or the program to its own group, may send: the processes above the program leave it to that. Until the
#: program is there they are held back (blocked, not ignored), so that a SIGTERM that comes meanwhile is not lost.
_LEFT_TO_THE_PROGRAM = (1, 2, 3, 10, 12, 14, 15)


class Failed(OSError):
    """A step that could not be taken: its name and the errno."""

    def __init__(self, step: str, number: int | None) -> None:
        super().__init__(number, step)
        self.step = step


def apply(libc: ctypes.CDLL, lines: list[tuple[str, str]], before: list[str], after: list[str]) -> bool:
    """Do what the lines say. Whether somebody of ours is the program's parent now.

    `before` and `after`: the command line of `spawn.py` for its second run, inside the file system of its own, around the lines
    that are left for that. Raises `Failed`.
    """
    guarded = False
    wrap = [value for word, value in lines if word == "wrap"]
    held = bool(wrap) or any(word in ("pid_namespace", "inside") for word, _ in lines)
    if held:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _LEFT_TO_THE_PROGRAM)
    inner: list[str] = []
    for word, value in lines:
        if word == "network":
            _network(libc)
        elif word == "pid_namespace":
            _pid_namespace(libc)
            guarded = True
        elif wrap and word in ("rlimit", "user", "inside"):
            inner.append(f"{word} {value}")
        elif word == "inside":
            _hear_of(os.getppid())
            guarded = True
        elif word == "rlimit":
            _rlimit(value)
        elif word == "user":
            _user(libc, value)
    if wrap:
        os.set_inheritable(3, True)
        try:
            os.execv(wrap[0], [*wrap, "--", *before, "\n".join(["inside yes", *inner]), *after])
        except OSError as error:
            raise Failed("bubblewrap", error.errno) from None
    if held:
        _let_signals(libc, _SIG_DFL)
    return guarded


def _let_signals(libc: ctypes.CDLL, how: int) -> None:
    for number in _LEFT_TO_THE_PROGRAM:
        libc.signal(number, ctypes.c_void_p(how))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _LEFT_TO_THE_PROGRAM)


def _fork(libc: ctypes.CDLL) -> int:
    """As `os.fork`; the parent leaves signals to its child from then on, and takes it along when it is killed.

    What came before the child was there is handed on to it before it goes on; what comes later it gets itself, being of the
    same group. What comes in between is one signal to it, which it holds back.
    """
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        if not os.read(wait, 1):
            os._exit(127)  # it was killed before the line above
        os.close(wait)
        return 0
    os.close(wait)
    for number in _signal.sigpending() & {*_LEFT_TO_THE_PROGRAM}:
        os.kill(child, number)
    _let_signals(libc, _SIG_IGN)
    os.write(go, b".")
    os.close(go)
    return child


def _hear_of(above: int) -> None:
    """What came to the process that made the file system, before it had us."""
    try:
        with open(f"/proc/{above}/status", "rb") as status:
            waiting = [int(line[7:], 16) for line in status if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:  # it ended, and so shall we
        return
    for number in _LEFT_TO_THE_PROGRAM:
        if any(mask >> (number - 1) & 1 for mask in waiting):
            os.kill(os.getpid(), number)


def _check(result: int, step: str) -> int:
    if result < 0:
        raise Failed(step, ctypes.get_errno())
    return result


def _network(libc: ctypes.CDLL) -> None:
    """A new one, with its loopback up: nothing else leads into it or out of it."""
    _check(libc.unshare(_CLONE_NEWNET), "network")
    handle = _check(libc.socket(_AF_INET, _SOCK_DGRAM, 0), "network")
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, "little"), 40)
    _check(libc.ioctl(handle, _SIOCSIFFLAGS, request), "network")
    os.close(handle)


def _rlimit(value: str) -> None:
    import resource

    name, _, number = value.partition(" ")
    limit = int(number)
    try:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (limit, limit))
    except OSError as error:
        raise Failed(f"rlimit_{name}", error.errno) from None
    except ValueError:  # its own word for EPERM: above the hard limit
        raise Failed(f"rlimit_{name}", 1) from None


def _user(libc: ctypes.CDLL, value: str) -> None:
    """Groups first: afterwards we may not. And no way back, by a setuid program either."""
    uid, gid, *groups = map(int, value.split())
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise Failed("user", error.errno) from None
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "user")


def _pid_namespace(libc: ctypes.CDLL) -> None:
    """Returns in the program. Above it are the first process of the namespace, and this one, which stays the daemon's child."""
    _check(libc.unshare(_CLONE_NEWPID), "pid_namespace")
    ended, tell = os.pipe()
    if _fork(libc):
        os.close(tell)
        _stay_above(libc, ended)
    os.close(ended)
    _check(libc.unshare(_CLONE_NEWNS), "pid_namespace")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "pid_namespace")
    _check(libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None), "pid_namespace")
    program = _fork(libc)
    if program == 0:
        os.close(tell)
        return
    _let_go(tell)
    while True:  # whoever has no parent any more is ours to reap
        pid, status = os.wait()
        if pid == program:
            os.write(tell, b"%d" % status)
            os._exit(0)


def _stay_above(libc: ctypes.CDLL, ended: int) -> None:
    """Wait, and end as the program did. Never returns."""
    _let_go(ended)
    status = int(os.read(ended, 16) or b"9")  # nothing: the first process was killed
    os.wait()
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        libc.signal(number, ctypes.c_void_p(_SIG_DFL))
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 127)


def _let_go(keep: int) -> None:
    """Of the log, the report and everything else but one: they are the program's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) != keep:
            try:
                os.close(int(name))
            except OSError:
                pass

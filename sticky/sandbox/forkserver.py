"""A process that has imported what sandboxes need, and forks each that is asked for. Runs beside the daemon, without a call.

Descriptor 0 is a socket of whole messages (SOCK_SEQPACKET): JSON that asks for a sandbox, with three descriptors: its log, a
pipe that says when it may begin, and its listening socket. The pid comes back, and later how it ended. Before a fork nothing may
run but this thread, and no connection may be open: what a preimport left behind is said, and then no sandbox is forked.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sticky.sandbox.packages import NotInstalled, ensure

MARK = "STICKY_CONTAINER_ID"
_LONGEST = 1 << 17
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.getenv.restype = ctypes.c_void_p
_libc.getenv.argtypes = [ctypes.c_char_p]


class Unfit(Exception):
    """This process cannot be forked safely; the text says what is in the way."""


def prepare(preimport: Sequence[str], packages: Sequence[str]) -> None:
    """Import everything. Raises `Unfit`."""
    if packages:
        try:
            sys.path.insert(0, str(ensure(Path(os.environ.get("STICKY_PACKAGES") or "packages"), packages)))
        except (NotInstalled, OSError) as error:
            raise Unfit(f"packages could not be installed: {error}") from None
    # What every call needs: the first one in each sandbox would import them.
    for name in ("cloudpickle", "asyncio", "sticky.sandbox.__main__", *preimport):
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Unfit(f"preimport {name}: {type(error).__name__}: {error}") from None
    check_fit()


def check_fit(kept: Sequence[int] = (0,)) -> None:
    """Raises `Unfit` where a fork would copy half of something."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        raise Unfit(f"a preimport has started threads: {', '.join(others)}")
    if "twisted.internet.reactor" in sys.modules:
        raise Unfit("a preimport has installed a reactor")
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:") and int(name) not in kept:
            raise Unfit("a preimport has opened a connection")


def serve(control: socket.socket) -> NoReturn:
    """Fork what is asked for, until the daemon is gone."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    mark = _libc.getenv(MARK.encode())
    gc.collect()
    gc.freeze()  # the collector of a child would write to every page that it shares with us
    while True:
        ready, _, _ = select.select([control.fileno(), reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            _reap(control)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 3)
            if not message:
                os._exit(0)
            asked = json.loads(message)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                control.close()
                os.close(reader)
                os.close(writer)
                _become(asked, mark, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(json.dumps({"pid": pid}).encode())


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        said = {"exited": pid, "status": code if code >= 0 else None, "signal": -code if code < 0 else None}
        control.send(json.dumps(said).encode())


def _become(asked: dict[str, Any], mark: int, log: int, gate: int, door: int) -> NoReturn:
    """In the child: a sandbox, for ever; nothing where the daemon has given up waiting for it."""
    try:
        os.setsid()
        if asked["dies_with_us"]:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        else:
            _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, theirs in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(ours, theirs)
        _close_all_but(0, 1, 2, gate, door)
        for entrance in asked["cgroups"]:
            with open(entrance, "w") as procs:
                procs.write("0")
        for name, value in asked["rlimits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))
        identity = asked["env"][MARK].encode()
        # Whoever looks for what a container has left reads /proc/PID/environ, which shows this memory.
        ctypes.memmove(mark, identity, len(identity))
        os.environ.clear()
        os.environ.update(asked["env"])
        os.chdir(asked["directory"])
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        from sticky.sandbox.__main__ import run

        if not os.read(gate, 1):
            os._exit(0)
        os.close(gate)
        run(socket.socket(fileno=door), snapshot=True)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(127)


def _close_all_but(*kept: int) -> None:
    """What a preimport has left open is not for sandboxes: they would share its position."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Until the daemon is gone; 1 where nothing can be forked."""
    parser = argparse.ArgumentParser(prog="python -m sticky.sandbox.forkserver")
    parser.add_argument("--preimport", action="append", default=[])
    parser.add_argument("--package", action="append", default=[])
    options = parser.parse_args(arguments)
    control = socket.socket(fileno=0)
    control.setblocking(True)
    try:
        prepare(options.preimport, options.package)
    except Unfit as error:
        control.send(json.dumps({"unfit": str(error)}).encode()[:_LONGEST])
        return 1
    control.send(json.dumps({"warm": True}).encode())
    serve(control)


if __name__ == "__main__":
    sys.exit(main())

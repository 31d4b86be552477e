"""Forks what is asked for, over a socket, and says how each fork ended. Must not know what the forks do.

Messages (SOCK_SEQPACKET) are JSON. In: what a fork is to be (`becoming.become`), with descriptors, which `descriptors` names in
their order. Out: `{"warm": true}` or `{"unfit": why}` once, `{"pid": n}` for each fork, and later
`{"exited": n, "status": …, "signal": …}`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from sticky.forking.becoming import Mark, become
from sticky.forking.fitness import Unfit, check

#: What a fork does, for ever, with the descriptors that it was given and that are still open.
Begin = Callable[[Mapping[str, int]], NoReturn]

_LONGEST = 1 << 17
_DESCRIPTORS = 8


class Control:
    """The socket on which forks are asked for: descriptor 0 at the start, which is empty afterwards."""

    def __init__(self) -> None:
        self.socket = socket.socket(fileno=os.dup(0))
        self.socket.setblocking(True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what user code may read, and a fork has
        os.close(nothing)
        self._mark = Mark.take()

    def serve(self, prepare: Callable[[], object], begin: Begin) -> int:
        """Prepare, then fork until whoever asks is gone: then this process ends. Returns 1 where it cannot be forked.

        `prepare` raises `Unfit` for what is in the way; what it leaves behind is looked at. `begin` is what a fork does.
        """
        try:
            prepare()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()  # else each fork would write it again
            check((0, 1, 2, self.socket.fileno()))
        except Unfit as problem:
            self._say({"unfit": str(problem)[: _LONGEST // 8]})
            return 1
        self._say({"warm": True})
        gc.collect()
        gc.freeze()  # the collector of a fork would write to every page that it shares with us
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.socket.fileno(), reader], [], [])
            if reader in ready:
                os.read(reader, 4096)
                self._reap()
            if self.socket.fileno() in ready:
                self._fork(begin, (reader, writer))

    def _fork(self, begin: Begin, ours: tuple[int, int]) -> None:
        message, given, _, _ = socket.recv_fds(self.socket, _LONGEST, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        asked = json.loads(message)
        pid = os.fork()
        if not pid:
            try:
                signal.set_wakeup_fd(-1)
                self.socket.close()
                for descriptor in ours:
                    os.close(descriptor)
                named = dict(zip(asked["descriptors"], given, strict=True))
                become(asked, named, self._mark)
                begin(named)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(127)
        for descriptor in given:
            os.close(descriptor)
        self._say({"pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            self._say({"exited": pid, "status": code if code >= 0 else None, "signal": -code if code < 0 else None})

    def _say(self, said: Mapping[str, object]) -> None:
        try:
            self.socket.send(json.dumps(said).encode())
        except OSError:
            os._exit(0)  # nobody listens any more

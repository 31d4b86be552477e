"""Forks when it is asked to, over a socket, and says how each fork ended. Must not know what the forks do.

Messages (SOCK_SEQPACKET) are JSON. In: anything; a fork is wanted. Out: `{"warm": true}` or `{"unfit": why}` once, `{"pid": n}`
for each fork, with a socket, and later `{"exited": n, "status": …, "signal": …}`. A fork waits at the other end of its socket for
one message: what it is to be (`becoming.become`), with descriptors, which `descriptors` names in their order. Where the socket
ends, so does the fork. So a fork can be there before anybody knows what for, and whoever starts a container waits for none.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import NoReturn

from sticky.forking.becoming import MARK, Mark, become, reseed
from sticky.forking.fitness import Unfit, check
from sticky.forking.touching import Populating, Range, written

#: What a fork does, for ever, with the descriptors that it was given and that are still open.
Begin = Callable[[Mapping[str, int]], NoReturn]

#: What comes to the door of a fork first: called with a connection to it, returns when it is answered. Raises OSError.
Visit = Callable[[socket.socket], None]

_LONGEST = 1 << 17
_LESSONS = 4  # forks from which it is learnt what the next ones will write to; a look costs a few milliseconds
_LESSON_AFTER = 0.5  # seconds: by then a fork has begun, and answered perhaps
_SCOUTING = 10.0  # seconds that a fork may take to be reached, or to answer, when that is tried
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
        self._populating = Populating()
        self._hot: list[Range] = []
        self._last: int | None = None  # the newest fork, while it lives
        self._lessons = _LESSONS  # still to come
        self._pupil: tuple[int, float] | None = None  # the fork that the next one is about, and when

    def serve(self, prepare: Callable[[], object], begin: Begin, visit: Visit | None = None) -> int:
        """Prepare, then fork until whoever asks is gone: then this process ends. Returns 1 where it cannot be forked.

        `prepare` raises `Unfit` for what is in the way; what it leaves behind is looked at. `begin` is what a fork does. `visit`:
        what first comes to the door of one, where that may be tried with one that is nobody's.
        """
        try:
            prepare()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()  # else each fork would write it again
            check((0, 1, 2, self.socket.fileno()))
        except Unfit as problem:
            self._say({"unfit": str(problem)[: _LONGEST // 8]})
            return 1
        gc.collect()
        gc.freeze()  # the collector of a fork would write to every page that it shares with us
        if visit is not None:
            with suppress(OSError):  # the others are as quick as they are without it
                self._scout(begin, visit)
        self._say({"warm": True})
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.socket.fileno(), reader], [], [], self._idle())
            if not ready:
                self._learn()
            if reader in ready:
                os.read(reader, 4096)
                self._reap()
            if self.socket.fileno() in ready:
                if not self.socket.recv(_LONGEST):
                    os._exit(0)
                self._fork(begin, (reader, writer))

    def _fork(self, begin: Begin, ours: Collection[int]) -> None:
        if self._lessons and self._last is not None and self._pupil is None:
            self._pupil = self._last, time.monotonic() + _LESSON_AFTER
            if not self._hot:
                self._hot = written(self._last)  # it was told who it is a moment ago: better than nothing
        theirs, waiting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            theirs.close()
            self._in_fork(ours, partial(self._wait_and_become, waiting, begin))
        self._last = pid
        waiting.close()
        with theirs:
            self._say({"pid": pid}, theirs.fileno())

    def _idle(self) -> float | None:
        """Seconds until there is something to do that nobody has asked for."""
        return None if self._pupil is None else max(0.0, self._pupil[1] - time.monotonic())

    def _learn(self) -> None:
        """From a fork that lives. One that has ended teaches nothing, and there will be others."""
        assert self._pupil is not None
        found = written(self._pupil[0])
        self._pupil = None
        if found:
            # What was got ready for it is its own as well: less is of one that is ending.
            self._hot = max(self._hot, found, key=_size)
            self._lessons -= 1

    def _in_fork(self, ours: Collection[int], go_on: Callable[[], NoReturn]) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            self.socket.close()
            for descriptor in ours:
                os.close(descriptor)
            go_on()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(127)

    def _wait_and_become(self, waiting: socket.socket, begin: Begin) -> NoReturn:
        reseed()
        self._populating.populate(self._hot)
        message, given, _, _ = socket.recv_fds(waiting, _LONGEST, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        waiting.close()
        asked = json.loads(message)
        named = dict(zip(asked["descriptors"], given, strict=True))
        become(asked, named, self._mark)
        begin(named)

    def _scout(self, begin: Begin, visit: Visit) -> None:
        """Learn what a fork writes to, from one that nobody asked for. Raises OSError."""
        with (
            tempfile.TemporaryDirectory(prefix="sticky-") as folder,
            socket.socket(socket.AF_UNIX) as door,
            open(os.devnull, "ab") as log,
        ):
            door.bind(os.path.join(folder, "door"))  # nobody else gets in: what comes to a door is run
            door.listen()
            given = {"log": log.fileno(), "door": door.fileno()}
            asked = {"env": {MARK: self._mark.name}, "cgroups": [], "rlimits": {}, "directory": os.getcwd()}

            def go_on() -> NoReturn:
                named = {name: os.dup(descriptor) for name, descriptor in given.items()}
                become(asked, named, self._mark)
                begin(named)

            pid = os.fork()
            if not pid:
                self._in_fork((), go_on)
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(_SCOUTING)
                    client.connect(door.getsockname())
                    door.close()  # whoever visits hears of the fork's end
                    visit(client)
                    self._hot = written(pid)
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._pupil is not None and self._pupil[0] == pid:
                self._pupil = None
            if self._last == pid:
                self._last = None
            code = os.waitstatus_to_exitcode(status)
            self._say({"exited": pid, "status": code if code >= 0 else None, "signal": -code if code < 0 else None})

    def _say(self, said: Mapping[str, object], *descriptors: int) -> None:
        try:
            socket.send_fds(self.socket, [json.dumps(said).encode()], descriptors)
        except OSError:
            os._exit(0)  # nobody listens any more


def _size(ranges: Collection[Range]) -> int:
    return sum(end - start for start, end in ranges)

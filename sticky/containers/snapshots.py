"""A fork server: a process that has prepared what containers of a Server need, and is asked for forks. Knows no sessions.

One fork is made ahead, and waits to be told which container it is: that takes a message, where a fork of a process with
hundreds of megabytes takes milliseconds. Another one is made a moment later; who asks before that waits for the fork. Where the
fork server is not warm (it still prepares, or has died) there is none to be had, and the caller starts the program from scratch.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall, IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers import endings, lean, logs
from sticky.containers.census import STOPPED, TRACED, look
from sticky.containers.launchers import command_line
from sticky.containers.spawn import REPORT_FD
from sticky.exhaustion import is_ours

ANSWER_TIME = 0.5  #: seconds that a fork may take; a fork server that is slower is no use and is ended
_LONGEST = 1 << 17
REFILL_AFTER = 0.02  #: seconds; a fork made at once would take the processor from the container that has just begun
_ATTEMPTS = 3  # a fork that waits may be killed, by the kernel for want of memory if by nobody else
_ASK = b"{}"


class State(Enum):
    """Whether a fork server can be used. Forward only; a dead one is replaced by another object."""

    WARMING = "warming"  # it imports
    WARM = "warm"  # it forks
    DEAD = "dead"  # it has ended, or was ended


@attrs.frozen
class Forked:
    """A process that has been forked. `descriptor`: a pidfd, whose owner this is; None where the kernel has none."""

    pid: int
    descriptor: int | None

    def close(self) -> None:
        """It is not wanted after all."""
        if self.descriptor is not None:
            os.close(self.descriptor)


@implementer(IReadDescriptor)
class ForkServer(ProcessProtocol):
    """One fork server. `exited(pid, status, signal)` is told of each child; `died` once, of itself."""

    log = Logger(namespace="sticky.containers")

    def __init__(
        self,
        reactor: Any,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        directory: Path,
        exited: Callable[[int, int | None, int | None], None],
        died: Callable[[], None],
        confined: str = "",
    ) -> None:
        """`confined`: what it is kept from itself, as lines for `spawn.py`. Raises OSError."""
        self._name = name
        self._command = tuple(command)
        self._directory = directory
        self.state = State.WARMING
        self.problem = ""  #: why it is dead
        self.unfit = False  #: it said that itself: another one like it would be no better
        self.pid: int | None = None
        self._reactor = reactor
        self._exited = exited
        self._died = died
        self._spare: tuple[int, socket.socket] | None = None  # a fork that waits: its pid, and where it is told
        self._asked = False  # for another one
        self._forks: set[int] = set()  # those whose end has not been told
        self._refill: IDelayedCall | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            logs.bound(output)
            log = logs.open_log(output)
            try:
                arguments = command_line(os.getpid(), False, env, directory, confined, command)
                lean.start(reactor, self, arguments, env, {0: theirs.fileno(), 1: log, 2: log, REPORT_FD: "r"})
            finally:
                os.close(log)
        except OSError as error:
            self.state, self.problem = State.DEAD, str(error)
            self._socket.close()
            raise
        finally:
            theirs.close()
        reactor.addReader(self)

    def connectionMade(self) -> None:
        """The process is there."""
        assert self.transport is not None
        self.pid = self.transport.pid

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """It could not become its program."""
        word, *rest = data.split()[:3] or [b""]
        if word == b"failed" and len(rest) == 2 and rest[1].isdigit():
            step = rest[0].decode("ascii", "replace")
            self.problem = endings.cannot_start(step, int(rest[1]), self._command[0], self._directory)

    def fork(
        self, asked: Mapping[str, object], given: Mapping[str, int], place: Callable[[int], None] = lambda pid: None
    ) -> Forked | None:
        """A new container; None where there is none to be had.

        See `forking.becoming` for what may be asked and given. `place` is called with the pid before the container may begin.
        Whoever is forked waits for a word of ours, and ends without: what comes too late leaves nothing behind.
        """
        self.doRead()
        for _ in range(_ATTEMPTS):
            if self.state is not State.WARM:
                return None
            spare = self._taken()
            if spare is None:
                return None
            pid, waiting = spare
            with waiting, ExitStack() as held:
                try:
                    found = self._found(pid)
                    held.callback(found.close)
                    place(pid)
                    socket.send_fds(
                        waiting, [json.dumps({**asked, "descriptors": [*given]}).encode()], [*given.values()]
                    )
                except (BrokenPipeError, ConnectionResetError, ProcessLookupError):
                    continue  # it was killed while it waited
                held.pop_all()
            self._refill = self._reactor.callLater(REFILL_AFTER, self._ask)
            return found
        return None

    def _found(self, pid: int) -> Forked:
        """Raises ProcessLookupError for one that has ended, and for any that is no child of the fork server.

        Which runs the user's code, and perhaps as another user: it must not have us put a stranger into a group and kill it.
        """
        try:
            descriptor: int | None = os.pidfd_open(pid)
        except (ProcessLookupError, ValueError, OverflowError):
            raise ProcessLookupError(errno.ESRCH, "it has ended") from None
        except OSError as error:
            if is_ours(error):
                raise
            descriptor = None  # an old kernel: by looking
        found = Forked(pid, descriptor)
        with ExitStack() as held:
            held.callback(found.close)
            process = look(pid)  # after the descriptor: from there on the number means this one or nobody
            if process is None or process.parent != self.pid:
                raise ProcessLookupError(errno.ESRCH, "it is no child of the fork server")
            held.pop_all()
        return found

    def _taken(self) -> tuple[int, socket.socket] | None:
        """The fork that waits, or the next one."""
        if self._spare is None:
            if self._halted():
                self.problem = "it has been stopped"
                self.end()
                return None
            self._ask()
            try:
                self._socket.settimeout(ANSWER_TIME)
                while self._spare is None and self.state is not State.DEAD:
                    self._read()
            except OSError as error:
                self.problem = f"it did not answer: {error}"
                self.end()
        spare, self._spare = self._spare, None
        return spare

    def _halted(self) -> bool:
        """Nobody waits for one that would not answer."""
        process = None if self.pid is None else look(self.pid)
        return process is not None and process.state in (STOPPED, TRACED)

    def _ask(self) -> None:
        if self._refill is not None and self._refill.active():
            self._refill.cancel()
        self._refill = None
        if self.state is State.DEAD or self._asked or self._spare is not None:
            return
        self._asked = True
        try:
            self._socket.send(_ASK)
        except OSError:
            self.end()

    def end(self) -> None:
        """No use for it any more. Its children go on."""
        if self.state is not State.DEAD:
            if not self.problem:
                self.problem = "it has ended" if self.state is State.WARM else "it has ended before it was warm"
            self.state = State.DEAD
            self._reactor.removeReader(self)
            self._socket.close()
            if self._refill is not None and self._refill.active():
                self._refill.cancel()
            self._drop_spare()
            if self.transport is not None:
                try:
                    self.transport.signalProcess("KILL")
                except Exception:
                    pass  # it has ended by itself
            self._died()

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare[1].close()
            self._spare = None

    def _read(self) -> None:
        """Take in one message. Raises OSError."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, _LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
        waiting = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not data:
            self.end()
            return
        try:
            self._take(json.loads(data), waiting)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.problem = f"it said what makes no sense: {type(error).__name__}"
            self.end()

    def _take(self, said: dict[str, Any], waiting: Sequence[socket.socket]) -> None:
        """One message. Raises for what nobody has asked for: it runs the user's code, and must not keep us busy with tales."""
        if "pid" in said and waiting and self._asked:
            self._asked = False
            self._forks.add(int(said["pid"]))
            self._drop_spare()
            self._spare = (int(said["pid"]), waiting[0])
            self._warm()
        elif "warm" in said and self.state is State.WARMING and not self._asked:
            self._ask()
        elif "unfit" in said and not self.unfit:
            self.problem, self.unfit = " ".join(logs.shown(str(said["unfit"]))), True
            self.log.warn(
                "there is no snapshot of {server}, its containers start from scratch: {why}",
                server=self._name,
                why=self.problem,
            )
        elif "exited" in said:
            pid, status, number = said["exited"], said["status"], said["signal"]
            self._forks.remove(pid)
            if self._spare is not None and self._spare[0] == pid:
                self._drop_spare()
                self._ask()
            else:
                self._exited(pid, *(None if each is None else int(each) for each in (status, number)))
        else:
            raise ValueError("out of place")

    def _warm(self) -> None:
        if self.state is State.WARMING:
            self.state = State.WARM
            self.log.info("containers of {server} are forked from a snapshot now", server=self._name)

    # --- from the reactor

    def fileno(self) -> int:
        return self._socket.fileno()

    def doRead(self) -> None:
        """It says something, or has ended."""
        if self.state is not State.DEAD:
            self._socket.setblocking(False)
        while self.state is not State.DEAD:
            try:
                self._read()
            except BlockingIOError:
                return
            except OSError:
                self.end()
                return

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""
        self.end()

    def logPrefix(self) -> str:
        return "fork server"

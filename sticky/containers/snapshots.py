"""Fork servers: one for each Server whose containers come from a snapshot, started again when it dies. Knows no sessions.

A container is forked within the call that asks for it, in a few milliseconds. Where no fork server is warm (for the first
container, or after its death) there is none to be had, and the caller starts the program from scratch.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers import lean, logs
from sticky.containers.spawn import DROPPED, REPORT_FD

ANSWER_TIME = 0.5  #: seconds that a fork may take; a fork server that is slower is no use and is ended
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  #: seconds before one that died is started again; doubles
_SCRIPT = str(Path(__file__).with_name("spawn.py"))
_LONGEST = 1 << 17
GO = b"g"  #: to a forked process: it is a container


class State(Enum):
    """Whether a fork server can be used. Forward only; a dead one is replaced by another object."""

    WARMING = "warming"  # it imports
    WARM = "warm"  # it forks
    DEAD = "dead"  # it has ended, or was ended


@implementer(IReadDescriptor)
class ForkServer(ProcessProtocol):
    """One fork server. `exited(pid, status, signal)` is told of each child; `died` once, of itself."""

    log = Logger(namespace="sticky.containers")

    def __init__(
        self,
        reactor: Any,
        command: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        directory: Path,
        exited: Callable[[int, int | None, int | None], None],
        died: Callable[[], None],
    ) -> None:
        self.command = tuple(command)
        self.state = State.WARMING
        self.problem = ""  #: why it is dead, as it said itself
        self._reactor = reactor
        self._exited = exited
        self._died = died
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            log = logs.open_log(output)
            try:
                arguments = [sys.executable, "-I", "-S", _SCRIPT, str(os.getpid()), "", env.get("LC_CTYPE", DROPPED)]
                arguments += [str(directory), "", *command]
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

    def fork(self, asked: Mapping[str, object], log: int, door: int | None) -> int | None:
        """The pid of a new container; None where there is none to be had.

        `log`, `door`: what it gets as its output, and as the listening socket that it serves, if it is given one. Whoever is
        forked waits for a word of ours before it does anything, and ends without: an answer that comes too late leaves nothing
        behind.
        """
        if self.state is not State.WARM:
            return None
        gate, ours = os.pipe()
        try:
            pid = self._forked(asked, [log, gate] if door is None else [log, gate, door])
            if pid is not None:
                os.write(ours, GO)
            return pid
        except (OSError, ValueError) as error:
            self.log.warn("a fork server does not answer and is ended: {error}", error=str(error))
            self.end()
            return None
        finally:
            os.close(gate)
            os.close(ours)

    def _forked(self, asked: Mapping[str, object], descriptors: Sequence[int]) -> int | None:
        self._socket.settimeout(ANSWER_TIME)
        socket.send_fds(self._socket, [json.dumps(asked).encode()], descriptors)
        while True:
            said = self._read()
            if said is None:
                return None
            if "pid" in said:
                return int(said["pid"])
            self._take(said)

    def end(self) -> None:
        """No use for it any more. Its children go on."""
        if self.state is not State.DEAD:
            self.state = State.DEAD
            self._reactor.removeReader(self)
            self._socket.close()
            if self.transport is not None:
                try:
                    self.transport.signalProcess("KILL")
                except Exception:
                    pass  # it has ended by itself
            self._died()

    def _read(self) -> dict[str, Any] | None:
        data = self._socket.recv(_LONGEST)
        if not data:
            self.end()
            return None
        value: dict[str, Any] = json.loads(data)
        return value

    def _take(self, said: Mapping[str, Any]) -> None:
        if "warm" in said:
            self.state = State.WARM
        elif "unfit" in said:
            self.problem = str(said["unfit"])
            self.log.warn("there is no snapshot, containers start from scratch: {why}", why=self.problem)
        elif "exited" in said:
            self._exited(said["exited"], said["status"], said["signal"])

    # --- from the reactor

    def fileno(self) -> int:
        return self._socket.fileno()

    def doRead(self) -> None:
        """It says something, or has ended."""
        self._socket.setblocking(False)
        while self.state is not State.DEAD:
            try:
                said = self._read()
            except BlockingIOError:
                return
            except (OSError, ValueError):
                self.end()
                return
            if said is not None:
                self._take(said)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""
        self.end()

    def logPrefix(self) -> str:
        return "fork server"

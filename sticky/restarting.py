"""The old daemon's side of `sticky restart`: starts the new one, rests while that takes over, and serves on as its proxy.

Decides in which order; what each part does about it is the part's own. The new daemon's side is `Daemon` with a `Predecessor`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.succession import APART, FIRST_FD, TAKE_OVER, UP, VARIABLE, Inheritance
from sticky.workers.frames import Link, Message

SAID_LATE = 0.1  #: seconds from the end of the new daemon to the moment when its last words are in the file
STARTS_WITHIN = 120.0  #: seconds from its start to being ready: an app may take 30 to import
TAKES_OVER_WITHIN = 30.0  #: seconds from being ready to being up: nobody decides anything meanwhile


class Restart(Enum):
    """How far a restart is."""

    NONE = "none"
    STARTING = "starting"  # the new daemon reads its configuration; this one does everything as ever
    RESTING = "resting"  # this one decides nothing, the new one takes over
    LEFT = "left"  # the new one is in charge


STEPS: dict[tuple[Restart, str], Restart] = {
    (Restart.NONE, "start"): Restart.STARTING,
    (Restart.STARTING, "ready"): Restart.RESTING,
    (Restart.STARTING, "fail"): Restart.NONE,
    (Restart.RESTING, "up"): Restart.LEFT,
    (Restart.RESTING, "fail"): Restart.NONE,
}


class Old(Protocol):
    """What the daemon does about it."""

    def lock(self) -> int:
        """The descriptor of the state directory's lock."""

    def listening(self) -> Mapping[str, Sequence[socket.socket]]:
        """Listening sockets by endpoint string. Raises `errors.BadRequest` if there are others, too."""

    def rest(self) -> Deferred[int]:
        """Decide nothing any more, write what is pending, accept nobody. Fires with the number of proxies that will move."""

    def wake(self) -> None:
        """Go on as before. Called when `rest` is through, however that went."""

    def leave(self, path: str) -> None:
        """The next daemon's proxies come in there: be one of them."""


@attrs.frozen
class CommandLine:
    """How this daemon was started, to start the next one."""

    arguments: Sequence[str]  #: with the interpreter in front
    directory: Path
    pid_file: Path | None  #: twistd's: it would take a process that it names for another daemon


class Restarter:
    """See the module."""

    log = Logger()

    def __init__(self, old: Old, command: CommandLine, reactor: Any) -> None:
        self.state = Restart.NONE
        self._old = old
        self._command = command
        self._reactor = reactor
        self._answer: Deferred[Mapping[str, object]] | None = None
        self._link: Link | None = None
        self._said = -1  # what the new one writes to its standard error
        self._impatience: Any = None
        self._pid_file = b""
        self._rest: Deferred[int] | None = None
        self._new: _New | None = None
        self._pidfd = -1  # of the one that is about to take over
        self._undecided: list[Deferred[None]] = []

    def restart(self) -> Deferred[Mapping[str, object]]:
        """Start a new daemon and hand over to it. Fires with its pid and version; fails with a Refusal that says why not."""
        if self.state is not Restart.NONE:
            raise errors.RestartUnderWay
        listening, lock = self._old.listening(), self._old.lock()
        self.state = STEPS[self.state, "start"]
        self.log.info("a new daemon is started: {command}", command=" ".join(self._command.arguments))
        answer: Deferred[Mapping[str, object]] = Deferred()
        self._answer = answer
        try:
            with ExitStack() as opened:
                self._launch(listening, lock, opened)
        except OSError as error:
            self._fail(error.strerror or str(error))
        return answer

    def _launch(self, listening: Mapping[str, Sequence[socket.socket]], lock: int, opened: ExitStack) -> None:
        """What is only opened to be handed over is left to `opened`. Raises OSError where there is too little of anything."""
        ours, theirs = map(opened.enter_context, socket.socketpair())
        ours.setblocking(False)
        self._said = os.memfd_create("said", os.MFD_CLOEXEC)
        real_stderr = os.dup(2)
        opened.callback(os.close, real_stderr)
        given = Inheritance(
            theirs.fileno(),
            lock,
            real_stderr,
            {endpoint: [one.fileno() for one in sockets] for endpoint, sockets in listening.items()},
        )
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, nothing)
        link = Link(self._reactor)
        link.serves = {TAKE_OVER: self._ready, UP: self._up}
        link.lost = self._lost
        factory = Factory.forProtocol(lambda: link)
        self._reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, factory)
        self._link = link
        self._put_pid_file_away()
        self._wait(STARTS_WITHIN)
        env = {**os.environ, VARIABLE: given.renumbered()}
        passed = given.descriptors()
        told = FIRST_FD + len(passed)
        arguments = [sys.executable, "-I", "-S", "-c", APART, str(told), *self._command.arguments]
        self._new = _New()
        self._reactor.spawnProcess(
            self._new, sys.executable, arguments, env, str(self._command.directory),
            childFDs={0: nothing, 1: 1, 2: self._said, **passed, told: "r"},
        )  # fmt: skip

    def may_change(self) -> None:
        """See `IRestarting`."""
        if self.state is not Restart.NONE:
            raise errors.RestartUnderWay

    def decide(self) -> Deferred[None]:
        """This daemon is to end: fires when it is known whether it is in charge. A new one that is not yet never will be."""
        if self.state in (Restart.NONE, Restart.LEFT):
            return succeed(None)
        decided: Deferred[None] = Deferred()
        self._undecided.append(decided)
        self._give_up("this daemon was told to end")
        return decided

    def _ready(self, message: Message) -> Deferred[Message]:
        pidfd = os.pidfd_open(int(message["pid"]))
        self.state = STEPS[self.state, "ready"]
        self._pidfd = pidfd
        self._wait(TAKES_OVER_WITHIN)
        self._rest = self._old.rest()
        asked: Deferred[Message] = Deferred()
        self._rest.addCallbacks(lambda proxies: asked.callback({"proxies": proxies}), asked.errback)
        return asked

    def _up(self, message: Message) -> None:
        """It has taken everything up, and decides nothing before this is answered: there is one in charge at each moment."""
        self.state = STEPS[self.state, "up"]
        self._wait(None)
        self.log.info("the new daemon is in charge, pid {pid}", pid=message["pid"])
        try:
            self._old.leave(message["socket"])
        except Exception:  # the other one is in charge all the same, and hears so
            self.log.failure("this daemon has not left in order")
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.callback({"pid": message["pid"], "version": message["version"]})

    def _lost(self) -> None:
        if self.state is Restart.LEFT:
            self._close()
        else:
            self._reactor.callLater(SAID_LATE, self._fail, "it ended")

    def _late(self) -> None:
        self._impatience = None
        self._give_up("it took too long")

    def _give_up(self, reason: str) -> None:
        """The new one is not to take over any more. `_lost` follows when it is gone, or cannot do so any more."""
        self.log.warn("the new daemon is given up: {reason}", reason=reason)
        if self._link is None:
            return  # it is gone, and `_fail` is about to come
        self._link.deaf = True  # what it says in this very moment comes too late
        if self._pidfd >= 0:
            # By closing the link alone two might be in charge: it may have taken everything up, and go on from there.
            with suppress(ProcessLookupError):  # it has ended, and `_lost` is about to come, or has come
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            return
        if self._new is not None:
            self._new.kill()  # it holds the state directory's lock
        self._link.close()

    def _fail(self, reason: str) -> None:
        rest, self._rest = self._rest, None
        self.state = STEPS[self.state, "fail"]
        self._wait(None)
        said = self._last_words() or reason
        self.log.error("the new daemon did not start, this one goes on: {reason}", reason=said)
        self._close()
        self._put_pid_file_back()
        if rest is None:
            self._failed(said)
        else:
            rest.addErrback(lambda failure: self.log.failure("this daemon could not rest", failure))
            rest.addCallback(lambda _: self._old.wake())
            rest.addErrback(lambda failure: self.log.failure("this daemon could not go on in order", failure))
            rest.addCallback(lambda _: self._failed(said))

    def _failed(self, said: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.errback(Failure(errors.BadConfiguration(f"The new daemon did not start: {said}")))
        undecided, self._undecided = self._undecided, []
        for one in undecided:
            one.callback(None)

    def _last_words(self) -> str:
        """Of the lines on its standard error the last one of ours, or the last one; nothing where it never had one."""
        if self._said < 0:
            return ""
        text = os.pread(self._said, 65_536, max(0, os.fstat(self._said).st_size - 65_536)).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("sticky: ") and not line.startswith("sticky: warning")]
        return (ours or lines or [""])[-1].removeprefix("sticky: ")[:500]

    def _wait(self, seconds: float | None) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        self._impatience = None if seconds is None else self._reactor.callLater(seconds, self._late)

    def _close(self) -> None:
        if self._said >= 0:
            os.close(self._said)
            self._said = -1
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._new is not None:
            self._new.forget()
            self._new = None
        if self._link is not None:
            self._link.lost = _nothing
            self._link.close()
            self._link = None

    def _put_pid_file_away(self) -> None:
        path = self._command.pid_file
        if path is not None and path.exists():
            self._pid_file = path.read_bytes()
            path.unlink()

    def _put_pid_file_back(self) -> None:
        if self._command.pid_file is not None and self._pid_file:
            try:
                self._command.pid_file.write_bytes(self._pid_file)
            except OSError as error:
                self.log.error("cannot write {path}: {reason}", path=str(self._command.pid_file), reason=error.strerror)


class _New(ProcessProtocol):
    """The new daemon's process, of which whoever starts it tells the pid and ends (`APART`).

    Its link says more than its end: one that daemonizes ends at once, and lives.
    """

    def __init__(self) -> None:
        self._told = b""
        self._pidfd = -1
        self._killed = self._forgotten = False

    def childDataReceived(self, number: int, data: bytes) -> None:
        self._told += data

    def childConnectionLost(self, number: int) -> None:
        if self._told and (self._killed or not self._forgotten):
            try:
                self._pidfd = os.pidfd_open(int(self._told))
            except OSError:  # it has ended, and its link says so; or there is no descriptor left
                return
            if self._killed:
                self.kill()

    def kill(self) -> None:
        """Once it is known who it is."""
        self._killed = True
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self.forget()

    def forget(self) -> None:
        """Nothing more is wanted of it."""
        self._forgotten = True
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _nothing() -> None:
    pass


def command_line(directory: Path, pid_file: str | None) -> CommandLine:
    """Of this process."""
    arguments = [sys.executable, *sys.orig_argv[1:]]
    return CommandLine(arguments, directory, directory / pid_file if pid_file else None)

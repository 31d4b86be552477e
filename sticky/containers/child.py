"""One child process as a container: its states, from the first report to the last stray. Must not know how it is launched."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers import endings, logs
from sticky.containers.knocking import IProbeReactor, Knocker, http_status
from sticky.containers.ownership import members, owns_listener
from sticky.containers.readiness import Readiness
from sticky.containers.spawn import REPORT_FD
from sticky.errors import IllegalEvent
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerListener

READY_REPORT = b"ready"  #: the line that a program with `reports_ready` writes
_LONGEST_REPORT = 256  # bytes
_SWEEP_EVERY = 0.002  # seconds; doubles up to the next
_SWEEP_AT_MOST_EVERY = 0.1
_SWEEP_FOR = 2.0  # seconds after which an exit is reported although something is left (a process stuck in the kernel)


class State(Enum):
    STARTING = "starting"  # launched, or about to be; not ready
    READY = "ready"  # said so to the listener
    SWEEPING = "sweeping"  # the main process has exited; what is left of the container is being killed
    GONE = "gone"  # said so to the listener


class Input(Enum):
    ANSWERED = "answered"  # it is ready
    EXITED = "exited"  # the main process exited
    REFUSED = "refused"  # it could not even be launched
    SWEPT = "swept"  # nothing is left


TRANSITIONS = {
    (State.STARTING, Input.ANSWERED): State.READY,
    (State.STARTING, Input.EXITED): State.SWEEPING,
    (State.STARTING, Input.REFUSED): State.GONE,
    (State.READY, Input.EXITED): State.SWEEPING,
    (State.SWEEPING, Input.SWEPT): State.GONE,
}


class Household(Protocol):
    """What a child tells the backend that launched it."""

    def answered(self, child: Child, address: Address) -> None: ...

    def port_problem(self, child: Child) -> str | None: ...

    def gone(self, child: Child) -> None: ...


@implementer(IContainer)
class Child:
    """An `IContainer`. The backend launches it with `expect` and `protocol`, or ends it with `refuse`."""

    def __init__(
        self, spec: ContainerSpec, listener: IContainerListener, reactor: IProbeReactor, household: Household
    ) -> None:
        self.id = spec.container
        self.spec = spec
        self.protocol = _Reports(self)
        self.port: int | None = None  #: the one we gave it
        self.scratch_is_ours = False  #: we made the folder, so we remove it
        self.pid: int | None = None  #: also its session and process group; kept after its exit, to find what it left
        self._listener = listener
        self._reactor = reactor
        self._household = household
        self._state = State.STARTING
        self._knocker = Knocker()
        self._readiness: Readiness | None = None
        self._was_ready = False
        self._failure: str | None = None  # why it is not to be; takes the place of how it ended
        self._status: int | None = None
        self._signal: int | None = None
        self._report_open = False
        self._timer: IDelayedCall | None = None
        self._log = Logger(namespace="sticky.containers")

    def __repr__(self) -> str:
        return f"<Child {self.id} pid={self.pid} {self._state.value}>"

    @property
    def state(self) -> State:
        return self._state

    def same_program(self, spec: ContainerSpec) -> bool:
        """Whether this is another copy of what the spec runs."""
        return (self.spec.server, self.spec.deployment) == (spec.server, spec.deployment)

    # --- IContainer

    def terminate(self) -> None:
        """See `IContainer`."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """See `IContainer`. Reaches also what left the process group, as far as it can be found."""
        if self._state in (State.STARTING, State.READY) and self.pid is not None:
            self._send(signal.SIGKILL)
            self._kill_strays()

    # --- from the backend

    def expect(self, candidates: Sequence[Address]) -> None:
        """It is being launched and may listen on one of these, the preferred one first."""
        path = self.spec.ready_path
        self._report_open = True
        self._readiness = Readiness(
            self._reactor,
            candidates,
            self._knocker.knock,
            self._owns,
            None if path is None else lambda address: http_status(self._reactor, address, path),
            self._answered,
        )

    def refuse(self, problem: str) -> None:
        """It was not launched. The listener hears of it later, never from within."""
        self._failure = problem
        self._report_open = False
        self._timer = self._reactor.callLater(0, self._end, Input.REFUSED)

    def give_up(self, problem: str) -> None:
        """It can never be ready: end it, unless it is ready against all odds, or ended."""
        if self._state is State.STARTING and self._failure is None:
            self._failure = problem
            self.unwatch()
            self.kill()

    def unwatch(self) -> None:
        """Stop looking whether it is ready."""
        if self._readiness is not None:
            self._readiness.stop()
        self._knocker.close()

    # --- from the reports

    def launched(self, pid: int | None) -> None:
        """The launcher runs."""
        self.pid = pid

    def reported(self, line: bytes) -> None:
        """A line on the report pipe: the launcher's, or the program's own."""
        word, *rest = line.split()[:3] or [b""]
        if word == b"failed" and len(rest) == 2 and rest[1].isdigit():
            self._failure = endings.cannot_start(
                rest[0].decode("ascii", "replace"), int(rest[1]), self.spec.command[0], self.spec.directory
            )
        elif word == READY_REPORT and self.spec.reports_ready:
            self.protocol.close_report()
            self._watch()

    def report_closed(self) -> None:
        """Nobody holds the report pipe any more: the program runs (exec closed it), has reported, or all is over."""
        self._report_open = False
        if not self.spec.reports_ready:
            self._watch()

    def exited(self, status: int | None, number: int | None) -> None:
        """The main process exited; it is reaped."""
        self._status, self._signal = status, number
        self.unwatch()
        self._step(Input.EXITED)
        # Not from within: this may still be `spawn`, and the last words may still be in the pipe.
        self._timer = self._reactor.callLater(0, self._sweep, self._reactor.seconds() + _SWEEP_FOR, _SWEEP_EVERY)

    # --- inside

    def _step(self, event: Input) -> None:
        if (self._state, event) not in TRANSITIONS:
            raise IllegalEvent(f"container {self.id} is {self._state.value}, it cannot be {event.value}")
        self._state = TRANSITIONS[self._state, event]

    def _watch(self) -> None:
        if self._state is State.STARTING and self._failure is None and self._readiness is not None:
            self._readiness.start()

    def _owns(self, address: Address) -> bool:
        return self.pid is not None and owns_listener(self.id, self.pid, address)

    def _answered(self, address: Address) -> None:
        self._step(Input.ANSWERED)
        self._was_ready = True
        self._knocker.close()
        self._household.answered(self, address)
        self._listener.ready(self.id, address)

    def _sweep(self, deadline: float, wait: float) -> None:
        left = self._kill_strays()
        if (left or self._report_open) and self._reactor.seconds() < deadline:
            again = min(wait * 2, _SWEEP_AT_MOST_EVERY)
            self._timer = self._reactor.callLater(wait, self._sweep, deadline, again)
            return
        if left:
            self._log.warn("Container {container} left processes behind: {pids}", container=self.id, pids=left)
        self.protocol.close_report()
        self._end(Input.SWEPT)

    def _end(self, event: Input) -> None:
        self._timer = None
        ran = event is Input.SWEPT
        detail = "exited" if self._signal is None else "killed"
        message = endings.ended(self._status, self._signal, self._was_ready)
        if self._failure is not None:
            detail, message = "failed", self._failure
        elif not self._was_ready:
            problem = self._household.port_problem(self)
            message = message if problem is None else f"{message}; {problem}"
        failed = self._failure is not None
        self._step(event)
        outcome = Exit(
            detail=detail,
            status=None if failed else self._status,
            signal=None if failed else self._signal,
            last_lines=logs.last_lines(self.spec.log) if ran else (),
            message=message,
        )
        self._household.gone(self)
        self._listener.exited(self.id, outcome)

    def _send(self, number: signal.Signals) -> None:
        """To the process group; before the launcher has made it one, to the process. A gone container is a no-op."""
        if self._state not in (State.STARTING, State.READY) or self.pid is None:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self.protocol.send(number)
        except PermissionError:
            self._log.warn("May not signal container {container}", container=self.id)

    def _kill_strays(self) -> list[int]:
        """SIGKILL to whatever of the container lives; returns what was found."""
        if self.pid is None:
            return []
        found = members(self.id, self.pid, leader_exited=self._state is State.SWEEPING)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # it went by itself, or it is another user's (a setuid program)
        return found


class _Reports(ProcessProtocol):
    """Twisted's events of the process, and lines on the report pipe."""

    transport: IProcessTransport | None

    def __init__(self, child: Child) -> None:
        self._child = child
        self._received = b""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._child.launched(self.transport.pid)

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._child.reported(line)
        if len(self._received) > _LONGEST_REPORT:
            self.close_report()

    def childConnectionLost(self, childFD: int) -> None:
        self._child.report_closed()

    def processExited(self, reason: Failure) -> None:
        value = reason.value
        if isinstance(value, ProcessTerminated):
            self._child.exited(value.exitCode if value.signal is None else None, value.signal)
        else:
            self._child.exited(0, None)

    def close_report(self) -> None:
        """Give our end of the report pipe back. Again: nothing happens."""
        if self.transport is not None:
            self.transport.closeChildFD(REPORT_FD)

    def send(self, number: signal.Signals) -> None:
        """A signal to the main process alone."""
        try:
            if self.transport is not None:
                self.transport.signalProcess(int(number))
        except ProcessExitedAlready:
            pass

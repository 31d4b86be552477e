"""What a container's main process says on its report pipe, and of one that is our own child how it ends. Decides nothing."""

from __future__ import annotations

import os
import signal
from typing import Any, Protocol

from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport, IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers.spawn import REPORT_FD

_LONGEST_REPORT = 256  # bytes


class Hears(Protocol):
    """What is told of the process."""

    def launched(self, pid: int | None) -> None: ...

    def reported(self, line: bytes) -> None: ...

    def report_closed(self) -> None: ...

    def exited(self, status: int | None, number: int | None) -> None: ...


class _Lines:
    """The report, as it comes in."""

    def __init__(self, child: Hears) -> None:
        self._child = child
        self._received = b""

    def add(self, data: bytes) -> bool:
        """Tell of each line that is whole. Whether the next one is too long to be one."""
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._child.reported(line)
        return len(self._received) > _LONGEST_REPORT


@implementer(IReadDescriptor)
class ReportPipe:
    """A report pipe of our own making, for a container that is not our own child: `theirs` is its end."""

    def __init__(self, reactor: Any, child: Hears) -> None:
        self._reactor = reactor
        self._child = child
        self._lines = _Lines(child)
        reader, self.theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        self._reader: int | None = reader
        self._reading = False

    def begun(self) -> None:
        """The container has its end now, or never will: ours of it is closed."""
        os.close(self.theirs)

    def read(self) -> None:
        """From now on. Never tells from within."""
        self._reading = True
        self._reactor.addReader(self)

    def close(self) -> None:
        """It is read no more. Again: nothing happens."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        if self._reading:
            self._reactor.removeReader(self)
        os.close(reader)
        if self._reading:
            self._child.report_closed()

    # --- from the reactor

    def fileno(self) -> int:
        return -1 if self._reader is None else self._reader

    def doRead(self) -> None:
        """It says something, or nobody holds the other end any more."""
        if self._reader is None:
            return
        try:
            data = os.read(self._reader, 4096)
        except BlockingIOError:
            return
        if not data or self._lines.add(data):
            self.close()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def logPrefix(self) -> str:
        return "report of a forked container"


class Reports(ProcessProtocol):
    """How a container holds a process that it started itself."""

    transport: IProcessTransport | None

    def __init__(self, child: Hears) -> None:
        self._child = child
        self._lines = _Lines(child)

    # --- from Twisted

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._child.launched(self.transport.pid)

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if self._lines.add(data):
            self.close_report()

    def childConnectionLost(self, childFD: int) -> None:
        self._child.report_closed()

    def processExited(self, reason: Failure) -> None:
        value = reason.value
        if isinstance(value, ProcessTerminated):
            self._child.exited(value.exitCode if value.signal is None else None, value.signal)
        else:
            self._child.exited(0, None)

    # --- for the container

    def close_report(self) -> None:
        """Give our end of the report pipe back. Again: nothing happens."""
        if self.transport is not None:
            self.transport.closeChildFD(REPORT_FD)

    def running(self) -> bool:
        """Whether its number is still its own: until we reap it, it is."""
        return True

    def send(self, number: signal.Signals) -> None:
        """A signal to the main process alone."""
        try:
            if self.transport is not None:
                self.transport.signalProcess(int(number))
        except ProcessExitedAlready:
            pass

    def release(self) -> None:
        """It is not watched any more. The pipe stays, and goes with the process."""

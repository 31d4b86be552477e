"""A container that is our own child: Twisted's events of the process, and lines on the report pipe. Decides nothing."""

from __future__ import annotations

import signal
from typing import Protocol

from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from sticky.containers.spawn import REPORT_FD

_LONGEST_REPORT = 256  # bytes


class Hears(Protocol):
    """What is told of the process."""

    def launched(self, pid: int | None) -> None: ...

    def reported(self, line: bytes) -> None: ...

    def report_closed(self) -> None: ...

    def exited(self, status: int | None, number: int | None) -> None: ...


class Reports(ProcessProtocol):
    """How a container holds a process that it started itself."""

    transport: IProcessTransport | None

    def __init__(self, child: Hears) -> None:
        self._child = child
        self._received = b""

    # --- from Twisted

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

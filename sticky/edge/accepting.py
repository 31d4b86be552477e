"""Takes clients in from a listening socket: many at once, onto streams of our own, and pauses where descriptors run out.

The port that a Twisted endpoint opened keeps its socket and its address; only its accepting is replaced. Must not know HTTP.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet import tcp
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

from sticky.edge.kernel import tune_listener
from sticky.edge.tcp import TCPStream
from sticky.edge.transport import Stream, begin
from sticky.exhaustion import is_ours

BATCH = 64  #: connections accepted in one turn: those inside are served in between
STARVED_FOR = 0.25  #: seconds until the next try after descriptors or memory have run out

_log = Logger(namespace="sticky.edge")


class Accepting(Enum):
    """What a listener does with newcomers. Those who are not accepted wait in the kernel's backlog."""

    OPEN = "open"
    PAUSED = "paused"  # from outside
    STARVED = "starved"  # no descriptor is left for one more; tried again in a moment
    STOPPED = "stopped"


STEPS: dict[Accepting, tuple[Accepting, ...]] = {
    Accepting.OPEN: (Accepting.OPEN, Accepting.PAUSED, Accepting.STARVED, Accepting.STOPPED),
    Accepting.PAUSED: (Accepting.PAUSED, Accepting.OPEN, Accepting.STOPPED),
    Accepting.STARVED: (Accepting.OPEN, Accepting.PAUSED, Accepting.STOPPED),
    Accepting.STOPPED: (Accepting.STOPPED,),
}


def adoptable(port: Any) -> bool:
    """Whether this is a plain stream port of Twisted's with a socket that can be accepted from."""
    return isinstance(port, tcp.Port) and isinstance(getattr(port, "socket", None), socket.socket)


@implementer(IListeningPort, IReadDescriptor)
class Acceptor:
    """Accepts in a port's place. `say` gets a text and fields for a log line whenever descriptors have run out."""

    def __init__(self, port: Any, say: Callable[..., None]) -> None:
        """The port listens already; from now on this object is to be stopped instead of it."""
        self.state = Accepting.OPEN
        self._reactor = reactor = port.reactor
        self._port = port
        self._say = say
        self._socket: socket.socket = port.socket
        self._family, self._kind, self._protocol = self._socket.family, self._socket.type, self._socket.proto
        self._tcp = self._family != socket.AF_UNIX
        self._again: IDelayedCall | None = None
        if self._tcp:
            tune_listener(self._socket)
        port.stopReading()
        reactor.addReader(self)

    def doRead(self) -> None:
        """Newcomers wait."""
        # What `accept` is made of, without the four things that it asks for and that are known here.
        accept = self._socket._accept  # type: ignore[attr-defined]
        family, kind, protocol = self._family, self._kind, self._protocol
        for _ in range(BATCH):
            if self.state is not Accepting.OPEN:
                return
            try:
                fd, name = accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if is_ours(error):
                    self._starve(error)
                    return
                continue  # the newcomer left before it was accepted (accept(2))
            self._take(socket.socket(family, kind, protocol, fd), name)

    def _take(self, handle: socket.socket, name: Any) -> None:
        handle.setblocking(False)
        address: Any
        if not self._tcp:
            address = UNIXAddress(None)
        elif len(name) == 2:
            address = IPv4Address("TCP", name[0], name[1])
        else:
            address = IPv6Address("TCP", *name)
        try:
            protocol = self._port.factory.buildProtocol(address)
        except Exception:
            _log.failure("a client could not be taken in")
            protocol = None
        if protocol is None:
            handle.close()
            return
        stream = (TCPStream if self._tcp else Stream)(self._reactor, handle, protocol)
        stream.tuned = self._tcp
        begin(stream)

    def _starve(self, error: OSError) -> None:
        self._become(Accepting.STARVED)
        self._reactor.removeReader(self)
        self._again = self._reactor.callLater(STARVED_FOR, self._try_again)
        self._say("no more clients can be accepted just now: {reason}", reason=error.strerror)

    def _try_again(self) -> None:
        self._again = None
        if self.state is Accepting.STARVED:
            self._become(Accepting.OPEN)
            self._reactor.addReader(self)

    def _become(self, state: Accepting) -> None:
        assert state in STEPS[self.state], (self.state, state)
        self.state = state
        if self._again is not None and state is not Accepting.STARVED:
            self._again.cancel()
            self._again = None

    # --- what a port is

    def stopReading(self) -> None:
        """Accept nobody. Doubled: a no-op."""
        if self.state is not Accepting.STOPPED:
            self._become(Accepting.PAUSED)
            self._reactor.removeReader(self)

    def startReading(self) -> None:
        """Accept again. Doubled: a no-op."""
        if self.state is not Accepting.STOPPED:
            self._become(Accepting.OPEN)
            self._reactor.addReader(self)

    def startListening(self) -> None:
        """Part of IListeningPort: it listens from the beginning."""

    def stopListening(self) -> Any:
        """Close the socket. What the port's own gives."""
        if self.state is not Accepting.STOPPED:
            self._reactor.removeReader(self)
            self._become(Accepting.STOPPED)
        return self._port.stopListening()

    def getHost(self) -> Any:
        """Where it listens."""
        return self._port.getHost()

    @property
    def factory(self) -> Any:
        """Makes the protocols."""
        return self._port.factory

    def fileno(self) -> int:
        """For the reactor."""
        return self._socket.fileno()

    def connectionLost(self, reason: object) -> None:
        """The reactor gives the descriptor up."""
        if self.state is not Accepting.STOPPED:
            self._become(Accepting.STOPPED)
            self._port.stopListening()

    def logPrefix(self) -> str:
        """In front of what is logged while the reactor calls."""
        return "edge"

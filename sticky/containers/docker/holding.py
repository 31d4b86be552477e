"""Does a connection last: the question to ask of a published port. Must not know whose port it is.

Docker's own proxy takes connections on a published port from the start, whether or not the program listens yet, and closes
them as soon as it finds that nobody does (measured: after 0.1 to 0.5 ms). So an accepted connection means nothing, one that
is still there after a while does.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from sticky.containers.knocking import IProbeReactor
from sticky.isticky import TCPAddress

HOLD = 0.1  #: seconds
LASTED = 200  #: what `lasts` gives: as if it were the status of a GET


def lasts(reactor: IProbeReactor, address: TCPAddress, hold: float = HOLD, timeout: float = 5.0) -> Deferred[int]:
    """Connect and stay. Fires with `LASTED` when the other side has not hung up within `hold` seconds; else fails."""
    visit = _Visit(reactor, hold)
    visit.connecting = (
        TCP4ClientEndpoint(reactor, address.host, address.port, timeout)
        .connect(_Once(visit))
        .addCallbacks(lambda _: None, visit.over)
    )
    return visit.outcome


class _Visit(Protocol):
    transport: ITCPTransport | None

    def __init__(self, reactor: IProbeReactor, hold: float) -> None:
        self._reactor = reactor
        self._hold = hold
        self._timer: IDelayedCall | None = None
        self.outcome: Deferred[int] = Deferred(self._cancelled)
        self.connecting: Deferred[None] | None = None

    def connectionMade(self) -> None:
        self._timer = self._reactor.callLater(self._hold, self._lasted)

    def dataReceived(self, data: bytes) -> None:
        self._lasted()  # it even speaks first

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.over(Failure(ConnectionDone("hung up")) if reason is None else reason)

    def over(self, reason: Failure) -> None:
        """No connection, or no longer."""
        self._leave()
        if not self.outcome.called:
            self.outcome.errback(reason)

    def _lasted(self) -> None:
        self._leave()
        if not self.outcome.called:
            self.outcome.callback(LASTED)

    def _leave(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self.transport is not None:
            self.transport.abortConnection()

    def _cancelled(self, _: Deferred[int]) -> None:
        if self.connecting is not None:
            self.connecting.cancel()
        self._leave()


class _Once(Factory):
    noisy = False

    def __init__(self, visit: _Visit) -> None:
        self._visit = visit

    def buildProtocol(self, addr: object) -> _Visit:
        return self._visit

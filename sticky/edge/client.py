"""A client's connection and its ends: FIN, reset, time-outs, and how we close. Knows no request but that one is served at a time.

The base of `frontend.Frontend`. FIN and reset are told apart as semantics.md says (Gone or half-closed): a transport that is
not read shows neither, so the kernel is asked now and then. Time-outs come from the edge's sweep.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IProtocol,
    IPushProducer,
    ISSLTransport,
    ITCPTransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.edge import kernel
from sticky.edge.flush import FlushWatch
from sticky.edge.forwarding import Peer
from sticky.edge.framing import Body
from sticky.edge.parsing import RequestHead
from sticky.edge.plain import PlainFields
from sticky.edge.serving import STEPS, ClientState, Served
from sticky.edge.sweep import NEVER
from sticky.edge.tcp import TCPStream

if TYPE_CHECKING:
    from sticky.edge.context import EdgeContext

FLOOR_WINDOW = 10.0  #: seconds over which a body's rate is averaged
ENOUGH = 1 << 62  #: bytes; no floor asks for so many
LOOK = 1.0  #: seconds between two looks at a client that is not read

_IDLE, _HEAD, _BODY, _SERVED = ClientState.IDLE, ClientState.HEAD, ClientState.BODY, ClientState.SERVED
_FLUSHING, _ENDING, _TAKEN, _CLOSED = (
    ClientState.FLUSHING,
    ClientState.ENDING,
    ClientState.TAKEN,
    ClientState.CLOSED,
)


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class Client:
    """A client's connection without its requests. Its producer side is the client's sending."""

    __slots__ = (
        "__weakref__",
        "_acked",
        "_body",
        "_buffer",
        "_chunked",
        "_due",
        "_eager",
        "_farewell",
        "_fields",
        "_fin",
        "_floor_at",
        "_floor_bytes",
        "_flush",
        "_head",
        "_keep",
        "_limits",
        "_looping",
        "_moved_at",
        "_paused",
        "_searched",
        "_state",
        "context",
        "deadline",
        "peer",
        "secure",
        "served",
        "transport",
    )

    def __init__(self, context: EdgeContext, address: str) -> None:
        """`address`: of whoever is at the other end; empty for a Unix socket."""
        self.context = context
        self.peer = Peer(address, False, context.settings.trusted_proxies)
        self.secure = False
        self.transport: Any = None
        self.deadline = NEVER
        self._limits = context.settings.limits
        self._state = _IDLE
        self._buffer = b""  # what came and belongs to no request yet
        self._searched = 0  # how much of it has been searched for a head's end
        self._head: RequestHead | None = None
        self._fields: PlainFields | None = None  # of the last request that was plain
        self._body: Body | None = None
        self._chunked = False
        self.served: Served | None = None  #: does the request that `gate.admit` was called with; it says so itself
        self._keep = False  # the connection goes on after the answer that is being flushed
        self._farewell: Callable[[bytes], bool] | None = None  # whether these bytes hold the client's last word
        self._fin = False  # the client has shut its sending side
        self._paused = False
        self._looping = False
        self._due = NEVER
        self._floor_at = NEVER  # when the body's rate is looked at
        self._floor_bytes = 0  # of the body, or enough, since the last look
        self._acked = 0  # what a half-closed client's kernel had taken at the last look
        self._moved_at = 0.0  # when that last changed
        self._flush = FlushWatch(self)
        self._eager: Any = None  # the transport whose buffer is the last one before the kernel, if it knows its size

    @property
    def state(self) -> ClientState:
        """What the connection is doing."""
        return self._state

    @property
    def idle_since(self) -> float | None:
        """Since when it waits for its client's next request. None: it does not, or for the first one, which is on its way."""
        return self.deadline - self._limits.keep_alive_timeout if self._state is _IDLE and self._keep else None

    def _become(self, state: ClientState) -> None:
        if state not in STEPS[self._state]:
            raise errors.IllegalEvent(f"a client's connection cannot go from {self._state.value} to {state.value}")
        self._state = state

    # --- Twisted calls

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport
        tuned = type(transport) is TCPStream and transport.tuned
        if not tuned and ISSLTransport.providedBy(transport):
            self.secure = True
            self.peer = Peer(self.peer.address, True, self.context.settings.trusted_proxies)
        self._flush.transport = last = transport.transport if self.secure else transport
        self._eager = last if hasattr(last, "buffered") else None
        if not tuned and ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            kernel.watch_for_dead_peer(transport)
        self.deadline = self.context.reactor.seconds() + self._limits.head_timeout
        self.context.sweep.add(self)

    def known_as(self, address: str) -> None:
        """A proxy says who is behind it (`proxied`): before the first request only."""
        doors = self.context.doors
        doors.left(self.peer.address)
        if not doors.enter(address):
            doors.count(address)  # it leaves in a moment
            self._leave()
        self.peer = Peer(address, self.secure, self.context.settings.trusted_proxies)

    @abstractmethod
    def dataReceived(self, data: bytes) -> None:
        """Bytes from the client."""

    @abstractmethod
    def _next(self) -> None:
        """An answer is through: go on with what has come already."""

    @abstractmethod
    def _refuse(self, error: errors.Refusal) -> None:
        """Answer a head that is no request, and close."""

    def connectionMade(self) -> None:
        """Part of IProtocol; `makeConnection` has done all."""

    def readConnectionLost(self) -> None:
        """The client's FIN on plain TCP."""
        self._fin = True
        self._half_closed(reset=True)

    def _half_closed(self, reset: bool) -> None:
        """No more comes from the client: what becomes of its request. `reset`: no earlier answer is on its way, to be lost."""
        state = self._state
        served = self.served
        if state is _IDLE or state is _HEAD:
            self._end(linger=False)
        elif state is _ENDING:
            self.transport.loseConnection()
        elif state is _FLUSHING or (state is _SERVED and served is not None and served.half_close_timeout is not None):
            self._acked = kernel.bytes_taken(self.transport)
            self._moved_at = self.context.reactor.seconds()
            self.deadline = min(self._due, self._floor_at, self._moved_at + LOOK)
        else:
            self._leave(reset)

    def writeConnectionLost(self) -> None:
        """Our own FIN is out: `_end` waits for the client's."""

    def connectionLost(self, reason: Failure) -> None:
        if self._state is _TAKEN:
            return
        self._state = _CLOSED
        self.deadline = NEVER
        self.context.sweep.discard(self)
        self.context.doors.left(self.peer.address)
        served, self.served = self.served, None
        if served is not None:
            served.client_gone()
        self._flush.forget()

    # --- the client's sending, as a producer

    def pauseProducing(self) -> None:
        if not self._paused and not self._fin:
            self._paused = True
            self.transport.pauseProducing()
            self.deadline = min(self._due, self._floor_at, self.context.reactor.seconds() + LOOK)
            self._floor_bytes = ENOUGH  # it could not send: this time counts for nothing

    def resumeProducing(self) -> None:
        if self._paused:
            self._paused = False
            if not self._fin and self._state is not _CLOSED:
                self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The container's transport is gone; the exchange hears of it by itself."""

    # --- what `Served` asks for

    def expect_by(self, when: float) -> None:
        """Call the request's `overdue` once this time has passed; `NEVER` takes it back."""
        self._due = when
        if not (self._paused or self._fin):
            self.deadline = min(when, self._floor_at)
        elif when < self.deadline:
            self.deadline = when

    def finish(self, keep: bool, wrote: bool = True, now: float | None = None) -> None:
        """The answer's last byte is written. `keep`: the client may send the next request; `wrote`: just now, in this step.

        `now`: for whoever has the time already.
        """
        eager = self._eager
        if keep and eager is not None and not eager.buffered and self._state is _SERVED:
            # All is out and nothing ends: what follows from `_flush.watch`, without its questions.
            self._state = _FLUSHING
            self._keep = True
            self._due = NEVER
            served = self.served
            self.served = None
            if served is not None:
                served.flushed()
            if self._state is _FLUSHING:
                self._state = _IDLE
                self.deadline = (self.context.seconds() if now is None else now) + self._limits.keep_alive_timeout
                if self._paused:
                    self.resumeProducing()
                if self._buffer or self._fin:
                    self._next()
            return
        self._keep = keep and self._state is _SERVED
        linger = self._state is _BODY
        self._become(_FLUSHING)
        if self._due is not NEVER:
            self.expect_by(NEVER)
        self._flush.watch(linger, wrote)

    def finish_when(self, said: Callable[[bytes], bool]) -> None:
        """The answer's last byte is written; the connection is closed when the client has said its last word, not before.

        `said` is asked of all bytes that come. The time for it is bounded.
        """
        self._farewell = said
        self.finish(False)

    def break_off(self, visible: bool) -> None:
        """The answer cannot go on. `visible`: its bytes show that they are not all; else only a reset can tell."""
        self._keep = False
        self.served = None
        self._body = None
        self._become(_FLUSHING)
        self.deadline = self._due = self.context.reactor.seconds() + self._limits.close_timeout
        self._flush.watch(False, False, reset=not visible)

    # --- ends

    def flushed(self, linger: bool, reset: bool) -> None:
        """The transport's buffer is empty. Called by the flush watch only."""
        served, self.served = self.served, None
        if served is not None:
            served.flushed()
        if self._state is not _FLUSHING:
            return
        if reset:
            self._state = _ENDING
            self._abort()
        elif not self._keep:
            self._end(linger)
        else:
            self._become(_IDLE)
            self._due = NEVER
            self.deadline = self.context.reactor.seconds() + self._limits.keep_alive_timeout
            self.resumeProducing()
            if self._buffer or self._fin:
                self._next()

    def _end(self, linger: bool) -> None:
        """Close. `linger`: the client may still be sending; a close now would reset the connection under the answer."""
        self._become(_ENDING)
        early, self._buffer = self._buffer, b""
        self._body = None
        if self._farewell is not None and not self._fin:
            self.deadline = self.context.reactor.seconds() + self._limits.close_timeout
            self.resumeProducing()
            self._hear_out(early)
            return
        linger = linger and not self.secure and not self._fin
        self.deadline = self.context.reactor.seconds() + (
            self._limits.linger_timeout if linger else self._limits.close_timeout
        )
        if linger:
            self.resumeProducing()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    def _hear_out(self, data: bytes) -> None:
        """These bytes came from a client of which the last word is awaited."""
        if self._farewell is not None and self._farewell(data):
            self._farewell = None
            self.transport.loseConnection()

    def _abort(self) -> None:
        """Reset the connection. On TLS without its close_notify: that would say that a broken answer is complete."""
        self._flush.transport.abortConnection()

    def cut(self) -> None:
        """End the connection at once, as if the client had left; what is served on it is aborted."""
        if self._state is not _CLOSED:
            self._leave()

    def _leave(self, reset: bool = True) -> None:
        """The client is gone, though its transport may not know. Without a reset what was written still goes out."""
        self._buffer = b""  # nothing begins any more
        self.context.turn.write_all()  # an answer that has come goes out before the end
        served, self.served = self.served, None
        self._flush.stop()
        if self._state is not _ENDING:
            self._become(_ENDING)
        self.deadline = NEVER if reset else self.context.reactor.seconds() + self._limits.close_timeout
        if served is not None:
            served.client_gone()
        if reset:
            self._abort()
        else:
            self.transport.loseConnection()

    def overdue(self, now: float) -> None:
        """From the sweep."""
        state = self._state
        if state is _IDLE:
            self._end(linger=False)
        elif state is _HEAD:
            self._refuse(errors.SlowHead())
        elif state is _ENDING:
            self.deadline = NEVER
            self._abort()
        elif ((self._paused or self._fin) and kernel.was_reset(self.transport)) or (
            self._fin and self._has_stopped_taking(now)
        ):
            self._leave()
        else:
            if self._due <= now:
                self._due = NEVER
                if self.served is None:  # a broken answer's last bytes
                    self._leave()
                else:
                    self.served.overdue(now)
            if self._floor_at <= now:
                self._look_at_rate(now)
            if self._state is state:
                look = now + LOOK if self._paused or self._fin else NEVER
                self.deadline = min(self._due, self._floor_at, look)

    def put_off(self, seconds: float) -> None:
        """From the sweep."""
        self._moved_at += seconds
        if self._due < NEVER:
            self._due += seconds
        if self._floor_at < NEVER:
            self._floor_at += seconds
            self._floor_bytes = ENOUGH  # the kernel took no more than its buffers hold: this time counts for nothing
        if self.deadline < NEVER:
            self.deadline += seconds

    def watch_rate(self, now: float) -> None:
        """A body begins: from now on it has to come fast enough, if there is a floor."""
        if self._limits.min_body_rate:
            self._floor_at = now + FLOOR_WINDOW
            self._floor_bytes = 0

    def _look_at_rate(self, now: float) -> None:
        served = self.served
        if self._state is not _BODY or self._body is None or served is None:
            self._floor_at = NEVER
        elif self._floor_bytes < self._limits.min_body_rate * FLOOR_WINDOW:
            self._floor_at = NEVER
            self._body = None
            served.request_stalled()
        else:
            self._floor_at = now + FLOOR_WINDOW
            self._floor_bytes = ENOUGH if self._paused else 0

    def _has_stopped_taking(self, now: float) -> bool:
        served = self.served
        timeout = None if served is None else served.half_close_timeout
        taken = kernel.bytes_taken(self.transport)
        if taken != self._acked:
            self._acked = taken
            self._moved_at = now
        return now - self._moved_at >= (self._limits.close_timeout if timeout is None else timeout)

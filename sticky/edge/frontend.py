"""A client's connection: where requests begin and end on it, in order, and how it ends. Knows no session and no container.

What a request is about is `gate`'s business, what is done for it `Served`'s: this file only reads heads and bodies off the
connection, one request at a time, and keeps the client's sending in check while one is served. FIN and reset are told
apart as semantics.md says (Gone or half-closed). Time-outs come from the edge's sweep.
"""

from __future__ import annotations

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
from sticky.edge import answers, kernel
from sticky.edge.flush import FlushWatch
from sticky.edge.forwarding import Peer
from sticky.edge.framing import Body, body
from sticky.edge.grammar import Framing
from sticky.edge.parsing import RequestHead, find_request_end, has_begun, parse_request
from sticky.edge.serving import STEPS, ClientState, Served
from sticky.edge.sweep import NEVER
from sticky.edge.wire import trailer_section
from sticky.isticky import Answer
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.edge.context import EdgeContext

LOOK = 1.0  #: seconds between two looks at a client that is not read


_IDLE, _HEAD, _BODY, _SERVED = ClientState.IDLE, ClientState.HEAD, ClientState.BODY, ClientState.SERVED
_FLUSHING, _ENDING, _TAKEN, _CLOSED = (
    ClientState.FLUSHING,
    ClientState.ENDING,
    ClientState.TAKEN,
    ClientState.CLOSED,
)


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class Frontend:
    """The protocol towards one client. Its producer side is the client's sending."""

    __slots__ = (
        "__weakref__",
        "_acked",
        "_body",
        "_buffer",
        "_chunked",
        "_due",
        "_fin",
        "_flush",
        "_head",
        "_keep",
        "_limits",
        "_looping",
        "_moved_at",
        "_paused",
        "_searched",
        "_served",
        "_state",
        "context",
        "deadline",
        "peer",
        "secure",
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
        self._body: Body | None = None
        self._chunked = False
        self._served: Served | None = None
        self._keep = False  # the connection goes on after the answer that is being flushed
        self._fin = False  # the client has shut its sending side
        self._paused = False
        self._looping = False
        self._due = NEVER
        self._acked = 0  # what a half-closed client's kernel had taken at the last look
        self._moved_at = 0.0  # when that last changed
        self._flush = FlushWatch(self)

    @property
    def state(self) -> ClientState:
        """What the connection is doing."""
        return self._state

    def _become(self, state: ClientState) -> None:
        if state not in STEPS[self._state]:
            raise errors.IllegalEvent(f"a client's connection cannot go from {self._state.value} to {state.value}")
        self._state = state

    # --- Twisted calls

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport
        if ISSLTransport.providedBy(transport):
            self.secure = True
            self.peer = Peer(self.peer.address, True, self.context.settings.trusted_proxies)
        self._flush.transport = transport.transport if self.secure else transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            kernel.watch_for_dead_peer(transport)
        self.deadline = self.context.reactor.seconds() + self._limits.head_timeout
        self.context.sweep.add(self)

    def connectionMade(self) -> None:
        """Part of IProtocol; `makeConnection` has done all."""

    def dataReceived(self, data: bytes) -> None:
        state = self._state
        if state is _IDLE or state is _HEAD:
            self._read_head(self._buffer + data if self._buffer else data)
            if self._state is _IDLE and self._buffer:
                self._next()
        elif state is _BODY:
            self._read_body(data)
        elif state is _SERVED or (state is _FLUSHING and self._keep):
            self._buffer += data
            if len(self._buffer) > self._limits.early_bytes:
                self._hold_back()

    def readConnectionLost(self) -> None:
        """The client's FIN on plain TCP."""
        self._fin = True
        state = self._state
        served = self._served
        if state is _IDLE or state is _HEAD:
            self._end(linger=False)
        elif state is _ENDING:
            self.transport.loseConnection()
        elif state is _FLUSHING or (state is _SERVED and served is not None and served.half_close_timeout is not None):
            self._acked = kernel.bytes_taken(self.transport)
            self._moved_at = self.context.reactor.seconds()
            self.deadline = min(self._due, self._moved_at + LOOK)
        else:
            self._leave()

    def writeConnectionLost(self) -> None:
        """Our own FIN is out: `_end` waits for the client's."""

    def connectionLost(self, reason: Failure) -> None:
        if self._state is _TAKEN:
            return
        self._state = _CLOSED
        self.deadline = NEVER
        self.context.sweep.discard(self)
        self.context.doors.left(self.peer.address)
        served, self._served = self._served, None
        if served is not None:
            served.client_gone()

    # --- the client's sending, as a producer

    def pauseProducing(self) -> None:
        if not self._paused and not self._fin:
            self._paused = True
            self.transport.pauseProducing()
            self.deadline = min(self._due, self.context.reactor.seconds() + LOOK)

    def resumeProducing(self) -> None:
        if self._paused:
            self._paused = False
            if not self._fin and self._state is not _CLOSED:
                self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The container's transport is gone; the exchange hears of it by itself."""

    def _hold_back(self) -> None:
        # Where a FIN means that the client left, it must be seen: whoever floods us meanwhile has to go.
        if self._served is not None and self._served.half_close_timeout is None:
            self._leave()
        else:
            self.pauseProducing()

    # --- requests

    def _read_head(self, buffer: bytes) -> None:
        limits = self._limits.heads
        first = rest = b""
        scanner: Body | None = None
        try:
            end = find_request_end(buffer, self._searched, limits)
            if end < 0:
                self._wait_for_head(buffer)
                return
            whole = len(buffer) == end
            head = parse_request(buffer if whole else buffer[:end], limits)
            if not whole:
                rest = buffer[end:]
            self._buffer = b""
            self._searched = 0
            if head.framing is not Framing.NONE and (head.length or head.framing is Framing.CHUNKED):
                scanner = body(head.framing, head.length, limits)
                if rest:
                    self._chunked = head.framing is Framing.CHUNKED
                    self._head = head
                    first, rest = self._scan(scanner, rest)
        except errors.BodyFault:
            self._refuse(errors.BadBody())
            return
        except errors.Refusal as error:
            self._refuse(error)
            return
        complete = scanner is None or scanner.done
        self.deadline = self._due = NEVER
        self._buffer = rest
        self._head = head
        if complete:
            self._body = None
            self._become(_SERVED)
        else:
            self._body = scanner
            self._chunked = head.framing is Framing.CHUNKED
            self._become(_BODY)
        self.context.gate.admit(self, head, first)

    def _wait_for_head(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._searched = len(buffer)
        if self._state is _IDLE and has_begun(buffer):
            self._become(_HEAD)
            self.deadline = self.context.reactor.seconds() + self._limits.head_timeout

    def _scan(self, scanner: Body, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` is to be forwarded, and what is behind the body's end. Raises `errors.BodyFault`."""
        size = scanner.feed(data)
        piece = data if size == len(data) else data[:size]
        if not scanner.done:
            return piece, b""
        if self._chunked:
            assert self._head is not None
            piece += trailer_section(scanner.trailers, self.context.names, self._head.connection)
        return piece, data[scanner.used :]

    def _read_body(self, data: bytes) -> None:
        scanner = self._body
        served = self._served
        if scanner is None or served is None:  # nobody reads it (`ignore_body`)
            return
        try:
            piece, rest = self._scan(scanner, data)
        except errors.BodyFault:
            self._body = None
            served.request_broken()
            return
        if scanner.done:
            self._body = None
            self._buffer = rest
            self._become(_SERVED)
        served.request_received(piece, scanner.done)

    def _next(self) -> None:
        """Serve what has come already. A loop: answers that need nobody else may be through within one turn of it."""
        if self._looping:
            return
        self._looping = True
        try:
            while self._state is _IDLE and self._buffer:
                buffer, self._buffer = self._buffer, b""
                self._searched = 0
                self._read_head(buffer)
                if self._state is _IDLE and self._buffer == buffer:
                    break
        finally:
            self._looping = False
        if self._fin and (self._state is _IDLE or self._state is _HEAD):
            self._end(linger=False)

    # --- what `Served` asks for

    def serve(self, served: Served) -> None:
        """This is who does the request that `gate.admit` was called with."""
        self._served = served

    def expect_by(self, when: float) -> None:
        """Call the request's `overdue` once this time has passed; `NEVER` takes it back."""
        self._due = when
        if when < self.deadline or not (self._paused or self._fin):
            self.deadline = when

    @property
    def request_complete(self) -> bool:
        """Whether the request that is being served has come whole."""
        return self._state is not _BODY

    def ignore_body(self) -> None:
        """Nobody will read the body that was announced: what still comes is thrown away, and the answer is the last one."""
        self._body = None

    def answer(self, answer: Answer, *, keep: bool) -> int:
        """Write a whole answer of our own and finish. Returns its size in bytes."""
        head = self._head
        keep = keep and self._state is _SERVED
        data = answers.answer_bytes(
            answer,
            close=not keep,
            minor=1 if head is None else head.minor,
            head_only=head is not None and head.method == b"HEAD",
        )
        self.transport.write(data)
        self.finish(keep)
        return len(data)

    def finish(self, keep: bool, wrote: bool = True) -> None:
        """The answer's last byte is written. `keep`: the client may send the next request; `wrote`: just now, in this step."""
        self._keep = keep and self._state is _SERVED
        linger = self._state is _BODY
        self._become(_FLUSHING)
        if self._due is not NEVER:
            self.expect_by(NEVER)
        self._flush.watch(linger, wrote)

    def break_off(self, visible: bool) -> None:
        """The answer cannot go on. `visible`: its bytes show that they are not all; else only a reset can tell."""
        self._keep = False
        self._served = None
        self._body = None
        self._become(_FLUSHING)
        self.deadline = self._due = self.context.reactor.seconds() + self._limits.close_timeout
        self._flush.watch(False, True, reset=not visible)

    def take_over(self) -> bytes:
        """Give the connection away, without timer, producer or pause. Returns what came after the head."""
        self._become(_TAKEN)
        self.context.sweep.discard(self)
        self._served = None
        self.resumeProducing()
        early, self._buffer = self._buffer, b""
        return early

    # --- ends

    def flushed(self, linger: bool, reset: bool) -> None:
        """The transport's buffer is empty. Called by the flush watch only."""
        served, self._served = self._served, None
        if served is not None:
            served.flushed()
        if self._state is not _FLUSHING:
            return
        if reset:
            self._state = _ENDING
            self.transport.abortConnection()
        elif not self._keep:
            self._end(linger)
        else:
            self._become(_IDLE)
            self._due = NEVER
            self.deadline = self.context.reactor.seconds() + self._limits.keep_alive_timeout
            self.resumeProducing()
            if self._buffer or self._fin:
                self._next()

    def _refuse(self, error: errors.Refusal) -> None:
        """A fault of the head: where the next request would begin is not known."""
        self._buffer = b""
        self._head = None
        self._body = None
        data = answers.answer_bytes(answers.refusal(error), close=True)
        self.transport.write(data)
        self.context.access.write(
            AccessRecord(
                client=self.peer.address,
                method=b"-",
                target=b"-",
                status=error.status,
                bytes_out=len(data),
                reason=error.code,
            )
        )
        self._keep = False
        self._become(_FLUSHING)
        self._flush.watch(True, True)

    def _end(self, linger: bool) -> None:
        """Close. `linger`: the client may still be sending; a close now would reset the connection under the answer."""
        self._become(_ENDING)
        self._buffer = b""
        self._body = None
        linger = linger and not self.secure and not self._fin
        self.deadline = self.context.reactor.seconds() + (
            self._limits.linger_timeout if linger else self._limits.close_timeout
        )
        if linger:
            self.resumeProducing()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    def _leave(self) -> None:
        """The client is gone, though its transport may not know."""
        served, self._served = self._served, None
        self._flush.stop()
        if self._state is not _ENDING:
            self._become(_ENDING)
        self.deadline = NEVER
        if served is not None:
            served.client_gone()
        self.transport.abortConnection()

    def overdue(self, now: float) -> None:
        """From the sweep."""
        state = self._state
        if state is _IDLE:
            self._end(linger=False)
        elif state is _HEAD:
            self._refuse(errors.SlowHead())
        elif state is _ENDING:
            self.deadline = NEVER
            self.transport.abortConnection()
        elif ((self._paused or self._fin) and kernel.was_reset(self.transport)) or (
            self._fin and self._has_stopped_taking(now)
        ):
            self._leave()
        else:
            if self._due <= now:
                self._due = NEVER
                if self._served is None:  # a broken answer's last bytes
                    self._leave()
                else:
                    self._served.overdue(now)
            if self._state is state:
                self.deadline = min(self._due, now + LOOK if self._paused or self._fin else NEVER)

    def _has_stopped_taking(self, now: float) -> bool:
        served = self._served
        timeout = None if served is None else served.half_close_timeout
        taken = kernel.bytes_taken(self.transport)
        if taken != self._acked:
            self._acked = taken
            self._moved_at = now
        return now - self._moved_at >= (self._limits.close_timeout if timeout is None else timeout)

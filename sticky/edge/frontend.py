"""A client's requests: where each begins and ends on its connection, in order. Knows no session and no container.

What a request is about is `gate`'s business, what is done for it `Served`'s: this file only reads heads and bodies off the
connection, one request at a time, and keeps the client's sending in check while one is served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from sticky import errors
from sticky.edge import answers
from sticky.edge.client import Client
from sticky.edge.framing import Body, body
from sticky.edge.grammar import Framing
from sticky.edge.parsing import RequestHead, find_request_end, has_begun, parse_request
from sticky.edge.serving import ClientState, Served
from sticky.edge.sweep import NEVER
from sticky.edge.wire import trailer_section
from sticky.isticky import Answer
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.edge.context import EdgeContext
    from sticky.edge.straight import Straight

_IDLE, _HEAD, _BODY, _SERVED = ClientState.IDLE, ClientState.HEAD, ClientState.BODY, ClientState.SERVED
_FLUSHING, _ENDING, _TAKEN, _CLOSED = (
    ClientState.FLUSHING,
    ClientState.ENDING,
    ClientState.TAKEN,
    ClientState.CLOSED,
)


class Frontend(Client):
    """The protocol towards one client."""

    __slots__ = ("straight",)

    def __init__(self, context: EdgeContext, address: str) -> None:
        super().__init__(context, address)
        self.straight: Straight | None = None  #: serves the plainest of its requests, from the first one on

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        if self._fields is not None:
            self.context.remember(self.peer.address, self.secure, self._fields)
        self.straight = None  # it knows this object: a cycle for the garbage collector

    def dataReceived(self, data: bytes) -> None:
        state = self._state
        if state is _IDLE and not self._buffer:
            context = self.context
            if self._fields is None:
                self._fields = context.fields.get((self.peer.address, self.secure))
            found = context.plain.request(data, self._fields)
            if found is not None:
                head, end = found
                fields = head.plain
                if end == len(data) and not fields.length:
                    # A whole request without a body, the commonest: what `_read_head` does, without its questions.
                    self._fields = fields
                    self.deadline = self._due = NEVER
                    self._head = head
                    self._body = None
                    self._state = _SERVED
                    context.gate.admit(self, head, b"")
                    if self._state is _IDLE and self._buffer:
                        self._next()
                    return
        if state is _IDLE or state is _HEAD:
            self._read_head(self._buffer + data if self._buffer else data)
            if self._state is _IDLE and self._buffer:
                self._next()
        elif state is _BODY:
            self._read_body(data)
        elif state is _ENDING:
            self._hear_out(data)
        elif state is _SERVED or (state is _FLUSHING and (self._keep or self._farewell is not None)):
            self._buffer += data
            if len(self._buffer) > self._limits.early_bytes:
                self._hold_back()

    def _read_head(self, buffer: bytes) -> None:
        limits = self._limits.heads
        first = rest = b""
        scanner: Body | None = None
        try:
            found = None if self._searched else self.context.plain.request(buffer, self._fields)
            head: RequestHead
            if found is not None:
                head, end = found
                self._fields = found[0].plain
                whole = len(buffer) == end
            else:
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
            self.watch_rate(self.context.reactor.seconds())
            self.deadline = self._floor_at
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
        served = self.served
        if scanner is None or served is None:  # nobody reads it (`ignore_body`)
            return
        self._floor_bytes += len(data)
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
        if self._fin and self._state is not _TAKEN and self._state is not _CLOSED:
            self._half_closed(reset=False)

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

    def _hold_back(self) -> None:
        # Where a FIN means that the client left, it must be seen: whoever floods us meanwhile has to go.
        if self.served is not None and self.served.half_close_timeout is None:
            self._leave()
        else:
            self.pauseProducing()

    # --- what `Served` asks for

    def replace(self, served: Served, by: Served) -> None:
        """Another one goes on with the request. A no-op where nobody serves it any more."""
        if self.served is served:
            self.served = by

    @property
    def request_complete(self) -> bool:
        """Whether the request that is being served has come whole."""
        return self._state is not _BODY

    def ignore_body(self) -> None:
        """Nobody will read the body that was announced: what still comes is thrown away, and the answer is the last one."""
        self._body = None

    def answer(self, answer: Answer, *, keep: bool, note: Callable[[int, int], None] | None = None) -> int:
        """Write a whole answer of our own and finish. Returns its size in bytes.

        `note` hears its status and size before the finish, which may be the moment at which the request is logged.
        """
        head = self._head
        keep = keep and self._state is _SERVED
        data = answers.answer_bytes(
            answer,
            close=not keep,
            minor=1 if head is None else head.minor,
            head_only=head is not None and head.method == b"HEAD",
        )
        self.transport.write(data)
        if note is not None:
            note(answer.status, len(data))
        self.finish(keep)
        return len(data)

    def take_over(self) -> bytes:
        """Give the connection away, without timer, producer or pause. Returns what came after the head."""
        self._become(_TAKEN)
        self.context.sweep.discard(self)
        self._flush.forget()
        self.served = self._fields = self.straight = None
        self.resumeProducing()
        early, self._buffer = self._buffer, b""
        return early

"""A control call on a client's connection: asked of `IControl`, and its answer, late answer or event stream written. Decides nothing.

The body of a control call is never read. A FIN means that the client left: its place in a queue is somebody else's then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.edge.answers import EVENTS, stream_head
from sticky.edge.exchange import CLIENT_GONE
from sticky.edge.parsing import RequestHead
from sticky.edge.refusing import readable_by_page
from sticky.edge.site import Site
from sticky.isticky import Answer, ControlRequest, IEventStream
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.edge.frontend import Frontend


@implementer(IPushProducer)
class ControlCall:
    """One control call; serves a `Frontend`.

    Events come when something happens, in this process or in another, and cannot be held back. A client that does not take
    them is given up when its transport has had enough (64 KiB beyond what the kernel holds): it costs no more than that.
    """

    __slots__ = ("_bytes_out", "_front", "_head", "_over", "_reason", "_site", "_started_at", "_status", "_stream",
                 "_waiting", "half_close_timeout")  # fmt: skip

    def __init__(self, front: Frontend, head: RequestHead, site: Site) -> None:
        self.half_close_timeout: float | None = None
        self._front = front
        self._head = head
        self._site = site
        self._started_at = front.context.reactor.seconds()
        self._waiting: Deferred[Answer] | None = None
        self._stream: IEventStream | None = None
        self._over = False
        self._status = 0
        self._bytes_out = 0
        self._reason = "-"

    def start(self, request: ControlRequest) -> None:
        """Ask, and answer now or later."""
        self._front.ignore_body()
        try:
            answer = self._front.context.control.answer(request)
        except errors.Refusal as error:
            self._refuse(error)
            return
        if isinstance(answer, Answer):
            self._answer(answer)
        elif IEventStream.providedBy(answer):
            self._begin_stream(answer)
        else:
            assert isinstance(answer, Deferred)
            self._waiting = answer
            answer.addCallbacks(self._answered, self._failed).addErrback(self._went_wrong)

    def _answered(self, answer: Answer | IEventStream) -> None:
        self._waiting = None
        if self._over:
            return
        if IEventStream.providedBy(answer):  # answered by another process
            self._begin_stream(answer)
        else:
            self._answer(answer)

    def _failed(self, failure: Failure) -> None:
        self._waiting = None
        if self._over:
            return  # cancelled: the client left
        if isinstance(failure.value, errors.Refusal):
            self._refuse(failure.value)
        else:
            self._front.context.log.failure("a control call failed", failure)
            self._refuse(errors.Refusal())

    def _went_wrong(self, failure: Failure) -> None:
        # A fault of ours: in the client's own turn it would end the connection, here nobody else would ever hear of it.
        self._front.context.log.failure("the answer to a control call could not be written", failure)
        self._front.cut()

    def _answer(self, answer: Answer) -> None:
        self._over = True
        self._front.answer(
            readable_by_page(answer, self._head, self._site), keep=self._head.keep_alive, note=self._noted
        )

    def _noted(self, status: int, sent: int) -> None:
        self._status, self._bytes_out = status, sent

    def _refuse(self, error: errors.Refusal) -> None:
        self._over = True
        self._reason = error.code
        self._front.context.gate.refuse(
            self._front, self._head, self._site, None, error, keep=self._head.keep_alive, note=self._noted
        )

    # --- events

    def _begin_stream(self, stream: IEventStream) -> None:
        self._stream = stream
        self._status = 200
        keep = self._head.keep_alive and self._front.request_complete and self._head.minor == 1
        head = stream_head(
            readable_by_page(Answer(200, EVENTS), self._head, self._site), close=not keep, minor=self._head.minor
        )
        self._front.transport.registerProducer(self, True)
        self._write(head)
        stream.start(self._event, self._finish_stream)

    def _event(self, data: bytes) -> None:
        if self._stream is not None and data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._head.minor else data)

    def _finish_stream(self) -> None:
        if self._stream is None:
            return  # the client left in this step
        self._stream = None
        self._over = True
        self._front.transport.unregisterProducer()
        if self._head.minor:
            self._write(b"0\r\n\r\n")
        self._front.finish(self._head.keep_alive and self._head.minor == 1, wrote=bool(self._head.minor))

    def _write(self, data: bytes) -> None:
        self._bytes_out += len(data)
        self._front.transport.write(data)

    # --- what the transport tells, while there are events

    def pauseProducing(self) -> None:
        """The client reads nothing. Said from within a write, and so from within whatever the stream does."""
        self._front.context.reactor.callLater(0, self._give_up)

    def resumeProducing(self) -> None:
        """It has read it all, in the same turn."""

    def stopProducing(self) -> None:
        """The connection has ended: the front tells."""

    def _give_up(self) -> None:
        if self._stream is not None:
            self._reason = "unread"
            self._front.cut()

    # --- what the front tells

    def request_received(self, data: bytes, complete: bool) -> None:
        """Not called: `Frontend.ignore_body`."""

    def request_broken(self) -> None:
        """Not called: `Frontend.ignore_body`."""

    def request_stalled(self) -> None:
        """Not called: `Frontend.ignore_body`."""

    def overdue(self, now: float) -> None:
        """Not called: a start's time-out is the queue's own."""

    def client_gone(self) -> None:
        self._over = True
        self._status = CLIENT_GONE
        stream, self._stream = self._stream, None
        if stream is not None:
            self._front.transport.unregisterProducer()
            stream.stop()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        self._log()

    def flushed(self) -> None:
        self._log()

    def _log(self) -> None:
        front = self._front
        front.context.access.write(
            AccessRecord(
                client=front.peer.client(self._head),
                method=self._head.method,
                target=self._head.target,
                status=self._status,
                bytes_out=self._bytes_out,
                server=self._site.name,
                total=front.context.reactor.seconds() - self._started_at,
                reason=self._reason,
                block=self._head.block,
            )
        )

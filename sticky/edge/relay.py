"""One data request in flight: the answer's way to its client, over what `asking` does towards the container.

Back-pressure both ways is the transports' own: each one's sending is the other's push producer, and nothing is kept here but
what came before there was a connection. Must not know how a request was let in, nor who else is connected. Uses nothing of
a transport but write, producers, pause and resume, and its ends, so that other descriptors can take the place of Twisted's.
"""

from __future__ import annotations

from typing import Any

import attrs

from sticky import errors
from sticky.edge.asking import Asking
from sticky.edge.delivery import Delivery, Form, Trailers, form_for
from sticky.edge.exchange import Stage
from sticky.edge.grammar import Framing
from sticky.edge.parsing import MAX_INFORMATIONAL, ResponseHead, find_response_end, parse_response
from sticky.edge.sweep import NEVER
from sticky.edge.upstream import Upstream
from sticky.edge.wire import client_head, trailer_section

_ASKED, _ANSWERING, _FLUSHING = Stage.ASKED, Stage.ANSWERING, Stage.FLUSHING


class Exchange(Asking):
    """One request and its answer; serves a `Frontend` and uses an `Upstream`."""

    __slots__ = ()

    def answered_elsewhere(self, transport: Any, data: bytes) -> None:
        upstream = Upstream(None, self)
        transport.protocol = upstream
        upstream.makeConnection(transport)
        self._become(_ASKED)
        self._upstream = upstream
        self.answer_received(data)

    def answer_received(self, data: bytes) -> None:
        if self.stage is _ANSWERING:
            self._pass_on(data)
            return
        if self._first_byte_at is None:
            self._first_byte_at = self.front.context.reactor.seconds()
            if self._holding:
                upstream = self._upstream
                assert upstream is not None
                upstream.forget_watch()
                self.upstream_written()
        request = self.head
        if not self._received and request.minor and request.method != b"HEAD" and self._pass_plain(data):
            return
        buffer = self._received + data if self._received else data
        limits = self.front.context.settings.limits.heads
        try:
            while True:
                end = find_response_end(buffer, self._searched, limits)
                if end < 0:
                    self._received = buffer
                    self._searched = len(buffer)
                    return
                head = parse_response(buffer if len(buffer) == end else buffer[:end], self.head.method, limits)
                if not head.informational:
                    break
                self._inform(head)
                buffer = buffer[end:]
                self._searched = 0
            self._received = b""
            self._answer(head, buffer, end)
        except (errors.BadGateway, errors.BodyFault):
            self._let_go()
            self.refuse(errors.BadGateway())

    def _pass_plain(self, data: bytes) -> bool:
        """Whether this was a whole answer, of the commonest kind; it has been passed on then."""
        front = self.front
        plain = front.context.plain.answer(data)
        if plain is None or not front.request_complete:
            return False
        status, end, length = plain
        size, whole = len(data), end + length
        if size < whole:
            return False
        self._status = status
        self._reusable = size == whole
        out = data if size == whole else data[:whole]
        if not self._keep:
            out = b"%bConnection: close\r\n\r\n%b" % (out[: end - 2], out[end:])
        self._bytes_out += len(out)
        front.transport.write(out)
        self._answered()
        return True

    def _inform(self, head: ResponseHead) -> None:
        self._informational += 1
        if self._informational > MAX_INFORMATIONAL:
            raise errors.BadGateway("The container sends informational answers without end.")
        if self.head.minor:  # RFC 9110, 15.2: never to an HTTP/1.0 client
            self._write(client_head(head, self.head, keep_alive=True))

    def _write(self, data: bytes) -> None:
        self._bytes_out += len(data)
        self.front.transport.write(data)

    def _answer(self, response: ResponseHead, buffer: bytes, end: int) -> None:
        """The answer's head, and what came with it. Raises before anything of it is written."""
        request = self.head
        framing = response.framing
        size = len(buffer)
        whole = end + response.length
        if framing is Framing.NONE or (framing is Framing.LENGTH and size >= whole):
            keep = self._keep and self.front.request_complete
            if response.clean and keep and request.minor:
                out = buffer if size == whole else buffer[:whole]
            else:
                out = client_head(response, request, keep_alive=keep) + buffer[end:whole]
            self._keep = keep
            self._reusable = response.keep_alive and size == whole
            self._status = response.status
            self._write(out)
            self._answered()
            return
        form = form_for(response, request.minor)
        if request.minor == 0 and framing is not Framing.LENGTH:
            self._keep = False  # only the close can tell an HTTP/1.0 client where the body ends
        shown = attrs.evolve(response, framing=Framing.CHUNKED, clean=False) if form is Form.CHUNKING else response
        delivery = Delivery(response, form, self.front.context.settings.limits.heads, self._trailers(response))
        head = client_head(shown, request, keep_alive=self._keep)
        out = head + delivery.feed(buffer[end:]) if size > end else head
        self._status = response.status
        self._reusable = response.keep_alive
        self._write(out)
        if delivery.done:
            self._reusable = self._reusable and delivery.used == size - end
            self._answered()
            return
        self._delivery = delivery
        self._become(_ANSWERING)
        self.front.expect_by(NEVER)
        assert self._upstream is not None
        self.front.transport.registerProducer(self._upstream, True)

    def _trailers(self, response: ResponseHead) -> Trailers:
        names = self.front.context.names
        return lambda trailers: trailer_section(trailers, names, response.connection)

    def _pass_on(self, data: bytes) -> None:
        delivery = self._delivery
        assert delivery is not None
        try:
            out = delivery.feed(data)
        except errors.BodyFault:
            self._break_off("bad_answer")
            return
        if out:
            self._write(out)
        if delivery.done:
            self._reusable = self._reusable and delivery.used == len(data)
            self.front.transport.unregisterProducer()
            self._answered()

    def _answered(self, wrote: bool = True) -> None:
        """The whole answer is written towards the client."""
        self._become(_FLUSHING)
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            if not self.front.request_complete:
                upstream.drop()  # it has said all it had to say; the rest of the upload is nobody's any more
            elif self._reusable:
                upstream.give_back()
            else:
                upstream.close()
        self.front.finish(self._keep, wrote)

    def upstream_lost(self, clean: bool) -> None:
        upstream, self._upstream = self._upstream, None
        self.front.resumeProducing()
        if self.stage is _ANSWERING:
            self._answer_ended(clean)
        elif self.stage is _ASKED and not (upstream is not None and self._ask_again(upstream)):
            self._unanswered()

    def _answer_ended(self, clean: bool) -> None:
        delivery = self._delivery
        assert delivery is not None
        if not clean:
            self._break_off("container_lost")
            return
        try:
            rest = delivery.finish()
        except errors.BodyFault:
            self._break_off("container_lost")
            return
        if rest:
            self._write(rest)
        self.front.transport.unregisterProducer()
        self._answered(wrote=bool(rest))

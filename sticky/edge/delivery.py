"""How a container's body is put to the client: as it came, in chunks of ours, or without chunks. Knows no sockets.

The framing can only change where the two sides speak different HTTP: an HTTP/1.0 client gets no chunks, and what a
container ends by closing is chunked for an HTTP/1.1 client, so that a container that dies cannot pass for one that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from sticky.edge.framing import body
from sticky.edge.grammar import Field, Framing, HeadLimits
from sticky.edge.parsing import ResponseHead

Trailers = Callable[[Sequence[Field]], bytes]  #: the trailer section to send, with the empty line that ends it


class Form(Enum):
    """What is done to a body's bytes."""

    AS_IT_IS = "as it is"  # length, chunks, or until close for HTTP/1.0
    CHUNKING = "chunking"  # the container ends it by closing
    UNCHUNKING = "unchunking"  # the client knows no chunks; its connection closes at the end


def form_for(head: ResponseHead, client_minor: int) -> Form:
    """The form in which this response reaches an HTTP/1.`client_minor` client."""
    if head.framing is Framing.CLOSE and client_minor:
        return Form.CHUNKING
    if head.framing is Framing.CHUNKED and not client_minor:
        return Form.UNCHUNKING
    return Form.AS_IT_IS


class Delivery:
    """One body on its way to the client."""

    __slots__ = ("_body", "_chunked", "_trailers", "form", "shows_its_end")

    def __init__(self, head: ResponseHead, form: Form, limits: HeadLimits, trailers: Trailers) -> None:
        self._body = body(head.framing, head.length, limits)
        self._chunked = head.framing is Framing.CHUNKED
        self._trailers = trailers
        self.form = form
        #: Whether the client can tell a body that was cut off from a whole one by its bytes alone.
        self.shows_its_end = self.form is Form.CHUNKING or (
            self.form is Form.AS_IT_IS and head.framing is not Framing.CLOSE
        )

    @property
    def done(self) -> bool:
        """Whether the body is complete."""
        return self._body.done

    @property
    def used(self) -> int:
        """How many bytes of what was fed last belong to the body."""
        return self._body.used

    def feed(self, data: bytes) -> bytes:
        """What the client gets for these bytes of the container. Raises `errors.BodyFault`."""
        scanner = self._body
        if self.form is Form.UNCHUNKING:
            payload: list[bytes] = []
            scanner.feed(data, payload)
            return b"".join(payload)
        size = scanner.feed(data)
        if self.form is Form.CHUNKING:
            return b"%x\r\n%b\r\n" % (size, data) if size else b""
        out = data if size == len(data) else data[:size]
        if self._chunked and scanner.done:
            out += self._trailers(scanner.trailers)
        return out

    def finish(self) -> bytes:
        """The container has closed: what the client gets at the end. Raises `errors.BodyFault` if that was too early."""
        self._body.finish()
        return b"0\r\n\r\n" if self.form is Form.CHUNKING else b""

"""What passes between the HTTP front and the WebSocket relay at a handshake: the values and the seam. No behaviour, no bytes parsed.

The front owns the client's connection until `take_over`; exactly one of `take_over`, `refuse` and `pass_on` is called for
each handshake that it gave to the relay, or none if the client left first (then `on_gone`'s callable has run).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.interfaces import ITransport

    from sticky import errors
    from sticky.edge.parsing import RequestHead


@attrs.frozen
class Handshake:
    """A client's opening handshake, checked and stripped: nothing of the session credential is left in it but in `head`."""

    head: RequestHead = attrs.field(repr=False)  #: as the client sent it
    container_head: bytes = attrs.field(repr=False)  #: complete, ready to send to the container
    offers: tuple[bytes, ...] = ()  #: the client's subprotocols without our token form
    echo: bytes | None = None  #: what to answer where the container selects none; None: nothing


class IWebSocketFront(Interface):
    """The HTTP side of a client's connection, as the relay sees it while it dials."""

    transport: ITransport = Attribute("the client's transport; on TLS the TLS one")

    def take_over() -> bytes:
        """The front stops being the transport's protocol and gives what the client sent after its head.

        It leaves no timer, producer or pause behind. The caller sets `transport.protocol` (on TLS
        `transport.wrappedProtocol`) in the same step and owns the connection, and its end, from then on.
        """

    def refuse(error: errors.Refusal) -> None:
        """Answer with this error as HTTP."""

    def pass_on(upstream_transport: ITransport, data: bytes) -> None:
        """The container answered something other than 101: stream it as it is, like any response.

        `data` is everything received from it so far, the head included. The front owns the container's connection from
        now on, and sets its protocol in the same step.
        """

    def on_gone(gone: Callable[[], None]) -> None:
        """Call this when the client leaves before one of the other three. Not called after them."""

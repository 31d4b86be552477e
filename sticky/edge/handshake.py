"""What passes between the HTTP front and the WebSocket relay at a handshake: the values and the seam. No behaviour, no bytes parsed.

The front owns the client's connection until `take_over`, after which it hears of the end by `over`; exactly one of `take_over`,
`refuse` and `pass_on` is called for each handshake that it gave to the relay, or none if the client left first (then `on_gone`'s
callable has run).
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


MODES = ("frames", "messages")


@attrs.frozen(kw_only=True)
class RelayRules:
    """How one Server's WebSockets are relayed. Times are seconds, sizes bytes."""

    mode: str = attrs.field(default="frames", validator=attrs.validators.in_(MODES))
    max_message_size: int = 1 << 24  #: in "messages" only, after decompression; above it 1009
    ping_interval: float = 30.0  #: between two pings to one client; 0: none
    ping_timeout: float = 20.0  #: for a sign of life after a ping
    #: Without a data frame for so long it does not count as in flight; None: always.
    silent_timeout: float | None = None


@attrs.frozen
class Handshake:
    """A client's opening handshake, checked and stripped: nothing of the session credential is left in it but in `head`."""

    head: RequestHead = attrs.field(repr=False)  #: as the client sent it
    container_head: bytes = attrs.field(repr=False)  #: complete, ready to send to the container
    offers: tuple[bytes, ...] = ()  #: the client's subprotocols without our token form
    echo: bytes | None = None  #: what to answer where the container selects none; None: nothing
    rules: RelayRules = attrs.field(factory=RelayRules)


class IWebSocketFront(Interface):
    """The HTTP side of a client's connection, as the relay sees it while it dials."""

    transport: ITransport = Attribute("the client's transport; on TLS the TLS one")

    def take_over() -> bytes:
        """The front stops being the transport's protocol and gives what the client sent after its head.

        It leaves no timer, producer or pause behind. The caller sets `transport.protocol` (on TLS
        `transport.wrappedProtocol`) in the same step and owns the connection, and its end, from then on.
        """

    def over(reason: str, received: int, sent: int) -> None:
        """After `take_over`: both connections are closed. `reason`: a word for the log; what the client sent and got, in bytes."""

    def refuse(error: errors.Refusal) -> None:
        """Answer with this error as HTTP. The lease is the front's again, to be held until the client has the answer."""

    def pass_on(upstream_transport: ITransport, data: bytes) -> None:
        """The container answered something other than 101: stream it as it is, like any response.

        `data` is everything received from it so far, the head included (1xx before it are left out). The front owns the
        container's connection and the lease from now on, and sets the connection's protocol in the same step.
        """

    def on_gone(gone: Callable[[], None]) -> None:
        """Call this when the client leaves before one of the other three. Not called after them."""

"""permessage-deflate (RFC 7692) where messages are relayed whole: what is offered, what was agreed, with each peer for itself.

Must not know legs or relays. Whether messages are compressed is the container's choice, among clients that offer it; how is
agreed on each connection apart, by Autobahn's own classes. No other extension is offered or accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autobahn.websocket.compress import (
    PerMessageDeflate,
    PerMessageDeflateOffer,
    PerMessageDeflateOfferAccept,
    PerMessageDeflateResponse,
    PerMessageDeflateResponseAccept,
)
from autobahn.websocket.protocol import WebSocketProtocol

from sticky import errors

NAME = "permessage-deflate"
FIELD = b"sec-websocket-extensions"


def without_extensions(head: bytes) -> bytes:
    """A complete head without its Sec-WebSocket-Extensions lines, and without the empty line at its end."""
    lines = head[:-4].split(b"\r\n")
    return b"\r\n".join(line for line in lines if line.partition(b":")[0].lower() != FIELD) + b"\r\n"


def acceptable(offers: Iterable[bytes]) -> Any:
    """The first of a client's offers that we can serve, None if there is none. `offers`: the values of its lines."""
    for name, parameters in _extensions(offers):
        if name == NAME:
            try:
                return PerMessageDeflateOffer.parse(parameters)
            except (
                Exception
            ):  # Autobahn raises nothing narrower: an offer is not taken, the next may be (RFC 7692, 5.1)
                continue
    return None


def offering(head: bytes) -> bytes:
    """A container's head with our own offer in place of the client's."""
    return _with(head, PerMessageDeflateOffer().get_extension_string())


def agreed(answer: Iterable[bytes], offered: bool) -> Any:
    """What compresses towards the container, None if it declined. Raises `errors.BadGateway` for what was not offered."""
    found = list(_extensions(answer))
    if not found:
        return None
    try:
        ((name, parameters),) = found
        if name != NAME or not offered:
            raise ValueError(name)
        accept = PerMessageDeflateResponseAccept(PerMessageDeflateResponse.parse(parameters))
    except Exception:
        raise errors.BadGateway("The container's answer names an extension that was not offered.") from None
    return PerMessageDeflate.create_from_response_accept(False, accept)


def accepting(switched: bytes, offer: Any) -> tuple[bytes, Any]:
    """A 101 that accepts the client's offer, and what compresses towards it."""
    accept = PerMessageDeflateOfferAccept(offer)
    return _with(switched, accept.get_extension_string()), PerMessageDeflate.create_from_offer_accept(True, accept)


def _with(head: bytes, extension: str) -> bytes:
    return without_extensions(head) + b"Sec-WebSocket-Extensions: " + extension.encode("ascii") + b"\r\n\r\n"


def _extensions(values: Iterable[bytes]) -> Any:
    for value in values:
        yield from WebSocketProtocol._parseExtensionsHeader(None, value.decode("latin-1"))

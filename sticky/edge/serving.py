"""What a client's connection and whoever serves a request on it owe each other: the states, their table, and the seam. No behaviour."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class ClientState(Enum):
    """What a client's connection is doing."""

    IDLE = "idle"  # between requests: nothing of the next one has come
    HEAD = "head"  # part of a head has come
    BODY = "body"  # a request is served while its body is still coming
    SERVED = "served"  # a request is served that has come whole
    FLUSHING = "flushing"  # the answer's last byte is written, the transport may still hold some
    ENDING = "ending"  # our side is at its end; what still comes is thrown away
    TAKEN = "taken"  # another protocol owns the transport
    CLOSED = "closed"  # the transport is gone

    __hash__ = object.__hash__  # Enum's own is Python code, and this is in the path of every request


_IDLE, _HEAD, _BODY, _SERVED = ClientState.IDLE, ClientState.HEAD, ClientState.BODY, ClientState.SERVED
_FLUSHING, _ENDING, _TAKEN, _CLOSED = (
    ClientState.FLUSHING,
    ClientState.ENDING,
    ClientState.TAKEN,
    ClientState.CLOSED,
)

STEPS: dict[ClientState, tuple[ClientState, ...]] = {
    _IDLE: (_HEAD, _BODY, _SERVED, _FLUSHING, _ENDING, _CLOSED),
    _HEAD: (_BODY, _SERVED, _FLUSHING, _ENDING, _CLOSED),
    _BODY: (_SERVED, _FLUSHING, _ENDING, _CLOSED),
    _SERVED: (_FLUSHING, _ENDING, _TAKEN, _CLOSED),
    _FLUSHING: (_IDLE, _ENDING, _CLOSED),
    _ENDING: (_ENDING, _CLOSED),  # an end that is asked for twice
    _TAKEN: (),
    _CLOSED: (),
}


class Served(Protocol):
    """What is done for one request. Every method is called at most as often as it says, none after `client_gone` or `flushed`."""

    half_close_timeout: float | None  #: seconds; None: a FIN means that the client is gone

    def request_received(self, data: bytes, complete: bool) -> None:
        """More of the body as it is to be forwarded, in order; `complete` with the last piece."""

    def request_broken(self) -> None:
        """The body breaks its framing: nothing more of it comes."""

    def request_stalled(self) -> None:
        """The body comes more slowly than the floor allows: nothing more of it is read."""

    def client_gone(self) -> None:
        """The client left."""

    def flushed(self) -> None:
        """After `Frontend.finish`: our buffer towards the client is empty."""

    def overdue(self, now: float) -> None:
        """The time given to `Frontend.expect_by` has passed."""

"""One session: its states, the table of what moves it, and its idle clock. Knows nothing of containers, queues or requests' content."""

from __future__ import annotations

from enum import Enum

import attrs

from sticky.core.values import Caller, EndReason, SessionId
from sticky.errors import IllegalEvent


class SessionState(Enum):
    """Where a session stands. States only move forward."""

    ACTIVE = "active"  # takes requests; its idle clock runs while nothing is in flight
    DRAINING = "draining"  # takes no new request; those in flight complete
    ENDED = "ended"  # over, for the reason that it carries


class SessionInput(Enum):
    """What can move a session."""

    DRAIN = "drain"  # a terminate, or its container stops: no new requests
    EXPIRE = "expire"  # its idle clock ran out
    EMPTY = "empty"  # it drains and nothing is in flight any more
    CUT = "cut"  # its container died, or the time for draining is over


TRANSITIONS: dict[tuple[SessionState, SessionInput], SessionState] = {
    (SessionState.ACTIVE, SessionInput.DRAIN): SessionState.DRAINING,
    (SessionState.ACTIVE, SessionInput.EXPIRE): SessionState.ENDED,
    (SessionState.ACTIVE, SessionInput.CUT): SessionState.ENDED,
    (SessionState.DRAINING, SessionInput.DRAIN): SessionState.DRAINING,  # a second terminate: the first reason stays
    (SessionState.DRAINING, SessionInput.EMPTY): SessionState.ENDED,
    (SessionState.DRAINING, SessionInput.CUT): SessionState.ENDED,
}


@attrs.define(eq=False)
class Session:
    """One client's or room's stay on one container.

    `in_flight` counts requests; the idle clock starts at `last_active` and runs only at 0. `queued_at` is the time under
    which the ledger's heap holds the session, None when it does not: a touch is a store, never a heap operation.
    """

    id: SessionId
    caller: Caller
    idle_timeout: float  #: seconds
    created_at: float
    last_active: float
    state: SessionState = SessionState.ACTIVE
    reason: EndReason | None = None  #: set from DRAINING on
    in_flight: int = 0
    queued_at: float | None = None
    name: str | None = attrs.field(default=None, repr=False)  #: what its client calls it
    cut_at: float | None = None  #: DRAINING only: when what is in flight is cut; None: never by time

    @property
    def due(self) -> float | None:
        """When time alone ends this session; None while a request holds it."""
        if self.state is SessionState.DRAINING:
            return self.cut_at
        if self.in_flight or self.state is SessionState.ENDED:
            return None
        return self.last_active + self.idle_timeout

    def move(self, what: SessionInput) -> None:
        """Take one row of the table. Raises `IllegalEvent`, having changed nothing, where there is none."""
        try:
            self.state = TRANSITIONS[self.state, what]
        except KeyError:
            raise IllegalEvent(f"session in {self.state.value} cannot {what.value}") from None

"""One session as a proxy has it: the states, the table of what moves it, and its counts. Asks nobody anything."""

from __future__ import annotations

from enum import Enum

import attrs
from twisted.internet.defer import Deferred

from sticky import errors
from sticky.core.values import ContainerId, ServerName, SessionId
from sticky.isticky import Address, ILease, ILeaseHolder
from sticky.lease import Lease


class HoldState(Enum):
    """How a session stands here."""

    ASKED = "asked"  # the daemon is asked for it; requests wait
    HELD = "held"  # requests are let in at once
    ASIDE = "aside"  # it does not count at the daemon: only WebSockets that say nothing are left, and hear of its end
    WAKING = "waking"  # the daemon is asked to count it again; requests wait, what was set aside goes on in good faith
    DRAINING = "draining"  # no new requests; it goes back with the last
    OVER = "over"  # given back, ended or never granted


class HoldInput(Enum):
    """What can happen to a session here."""

    GRANTED = "granted"
    REFUSED = "refused"
    ADOPTED = "adopted"  # it counted already when this process was its daemon
    UNUSED = "unused"  # nothing is left of it here
    SILENT = "silent"  # only what does not count is left of it
    WAKE = "wake"  # something is to count again
    DRAINED = "drained"  # the daemon says: nothing new
    ENDED = "ended"  # the daemon says so


_S, _I = HoldState, HoldInput
STEPS: dict[tuple[HoldState, HoldInput], HoldState] = {
    (_S.ASKED, _I.GRANTED): _S.HELD,
    (_S.ASKED, _I.REFUSED): _S.OVER,
    (_S.ASKED, _I.DRAINED): _S.ASKED,  # about an earlier lease, given back meanwhile: the answer will say the same
    (_S.ASKED, _I.ENDED): _S.ASKED,  # likewise
    (_S.HELD, _I.ADOPTED): _S.HELD,
    (_S.HELD, _I.UNUSED): _S.OVER,
    (_S.HELD, _I.SILENT): _S.ASIDE,
    (_S.HELD, _I.DRAINED): _S.DRAINING,
    (_S.HELD, _I.ENDED): _S.OVER,
    (_S.ASIDE, _I.ADOPTED): _S.HELD,
    (_S.ASIDE, _I.WAKE): _S.WAKING,
    (_S.ASIDE, _I.UNUSED): _S.OVER,
    (_S.ASIDE, _I.DRAINED): _S.DRAINING,
    (_S.ASIDE, _I.ENDED): _S.OVER,
    (_S.WAKING, _I.GRANTED): _S.HELD,
    (_S.WAKING, _I.REFUSED): _S.OVER,
    (_S.WAKING, _I.DRAINED): _S.DRAINING,
    (_S.WAKING, _I.ENDED): _S.OVER,
    (_S.DRAINING, _I.DRAINED): _S.DRAINING,  # it drains for two reasons: the first one stays
    (_S.DRAINING, _I.UNUSED): _S.OVER,
    (_S.DRAINING, _I.ENDED): _S.OVER,
    (_S.DRAINING, _I.REFUSED): _S.OVER,  # it was asked to count again, too late
    (_S.OVER, _I.REFUSED): _S.OVER,  # likewise, and its end came first
    (_S.OVER, _I.GRANTED): _S.OVER,  # it was given up while it woke
}


@attrs.define(eq=False)
class Hold:
    """One session here."""

    id: SessionId
    server: ServerName
    container: ContainerId
    state: HoldState = HoldState.ASKED
    address: Address | None = None
    count: int = 0  #: requests in flight
    last: float = 0.0  #: when the last one ended
    reason: str = "ended"  #: why it drains
    queued: bool = False  #: it is among those that may be unused
    said: int = 1  #: in flight, as the daemon was told last
    leases: set[Lease] = attrs.field(factory=set)
    waiting: dict[Deferred[ILease], ILeaseHolder] = attrs.field(factory=dict)

    def left(self, waiting: Deferred[ILease]) -> None:
        """Whoever waited for a lease does so no more."""
        self.waiting.pop(waiting, None)

    def step(self, what: HoldInput) -> None:
        """Take one row of the table. Raises `IllegalEvent`, having changed nothing, where there is none."""
        try:
            self.state = STEPS[self.state, what]
        except KeyError:
            raise errors.IllegalEvent(f"a session that is {self.state.value} here cannot be {what.value}") from None

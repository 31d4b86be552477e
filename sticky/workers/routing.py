"""A proxy's side of leases: asks the daemon once for each session, then lets its requests in without asking.

Implements `IRouting` for the edge, and is the book of the edge's own leases. Must not know what a request is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import ServerName, SessionId
from sticky.isticky import ILease, ILeaseHolder, IRouting, Visit
from sticky.lease import Lease
from sticky.observe.safely import safely
from sticky.workers import messages
from sticky.workers.fields import address_of, reason_of
from sticky.workers.frames import Link, LinkLost, Message
from sticky.workers.holds import Hold, HoldInput, HoldState
from sticky.workers.turns import FarTurns
from sticky.workers.visits import FarVisits

SWEEP = 0.1  #: seconds between two looks at leases that nobody uses


@implementer(IRouting)
class FarRouting:
    """See the module. Without a link (`connect`) what is held goes on being served, and what has to be asked for waits."""

    log = Logger()

    def __init__(self, clock: IReactorTime, turns: FarTurns) -> None:
        self.holds: dict[SessionId, Hold] = {}
        self.turns = turns
        self.visits = FarVisits()
        self._clock = clock
        self._seconds: Callable[[], float] = clock.seconds
        self._link: Link | None = None
        self._unused: list[tuple[float, int, Hold]] = []  # a heap of those that were unused a moment ago, by when
        self._order = 0
        self._sweep: IDelayedCall | None = None
        self._changed: set[Hold] = set()  # whose count is perhaps not the one that the daemon was told
        self._untold: list[tuple[str, SessionId, float]] = []  # what has happened since `held`, while there is no link

    # --- the link

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a daemon may tell."""
        return {messages.DRAIN: self._drain}

    def held(self) -> list[Message]:
        """What is held, for a daemon that takes over. What changes from here until `connect` is told then."""
        now = self._seconds()
        self._untold.clear()
        for hold in self.holds.values():
            hold.said = hold.count
        return [
            {
                "session": hold.id,
                "server": hold.server,
                "container": hold.container,
                "in_flight": hold.count,
                "idle_for": 0.0 if hold.count else max(0.0, now - hold.last),
                "counts": hold.state not in (HoldState.ASIDE, HoldState.WAKING),
            }
            for hold in self.holds.values()
            if hold.state is not HoldState.ASKED
        ]

    def disconnect(self) -> None:
        """The daemon goes, and another one will come."""
        self._link = None

    def connect(self, link: Link, over: list[Any]) -> None:
        """This daemon knows what is `held`, but for what is over; it is asked for everything else."""
        self._link = link
        untold, self._untold = self._untold, []
        for what, session, idle_for in untold:
            self._tell(what, session, idle_for)
        for one in over:
            self.ended(SessionId(one["session"]), one["reason"], None)
        for hold in list(self.holds.values()):
            if hold.state is HoldState.ASKED:
                self._ask(hold)
            elif hold.state is HoldState.WAKING:
                self._ask_to_count(hold)

    # --- what the edge asks

    def begin(self, claims: Claims | Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        """See `IRouting`."""
        if isinstance(claims, Visit):
            return self.visits.take(claims, holder)
        if claims.server in self.turns.servers and not websocket:
            return self.turns.take(claims, holder)
        hold = self.holds.get(claims.session)
        if hold is not None and hold.state is HoldState.HELD:
            if hold.count or self._seconds() < hold.last + messages.KEEP:
                return self._lease(hold, holder)
            # Whether the session's idle clock has run out is the daemon's to say.
            self._unused_now(hold)
            hold = self.holds.get(claims.session)
        elif hold is not None and hold.state is HoldState.DRAINING:
            raise errors.SessionEnded(hold.reason)
        if hold is None:
            hold = Hold(claims.session, claims.server, claims.container)
            self.holds[claims.session] = hold
            self._ask(hold)
        elif hold.state is HoldState.ASIDE:
            self._wake(hold)
        asked = hold
        waiting: Deferred[ILease] = Deferred(asked.left)
        hold.waiting[waiting] = holder
        return waiting

    def _lease(self, hold: Hold, holder: ILeaseHolder) -> Lease:
        address = hold.address
        assert address is not None
        lease = Lease(hold, hold.container, address, holder, self)
        hold.leases.add(lease)
        hold.count += 1
        if hold.count != hold.said:
            self._changed.add(hold)
        return lease

    def adopt(self, server: ServerName, leases: Sequence[Lease]) -> None:
        """Leases of a Server of this very process, which was its daemon until now: the next one knows them as `held`."""
        for lease in leases:
            hold = self.holds.get(lease.session)
            if hold is None:
                hold = Hold(
                    lease.session, server, lease.container, HoldState.ASIDE, lease.address, last=self._seconds()
                )
                self.holds[lease.session] = hold
            hold.leases.add(lease)
            if lease.counts:
                hold.step(HoldInput.ADOPTED)
                hold.count += 1
                hold.said = hold.count
            lease.move(hold, self)

    # --- the book of leases

    def release(self, lease: Lease, core: Hold, counts: bool, idle_for: float) -> None:
        """See `lease.Book`."""
        core.leases.discard(lease)
        if counts:
            self._less(core)
        elif not core.leases and not core.count:
            self._may_be_unused(core)

    def drop(self, lease: Lease, core: Hold) -> None:
        """See `lease.Book`."""
        core.leases.discard(lease)

    def count(self, lease: Lease, core: Hold) -> None:
        """See `lease.Book`. In good faith where the daemon has to be asked: its end of the session comes later then."""
        if core.state is HoldState.DRAINING:
            raise errors.SessionEnded(core.reason)
        core.count += 1
        if core.count != core.said:
            self._changed.add(core)
        if core.state is HoldState.ASIDE:
            self._wake(core)

    def uncount(self, lease: Lease, core: Hold, idle_for: float) -> None:
        """See `lease.Book`."""
        self._less(core)

    def _less(self, hold: Hold) -> None:
        hold.count -= 1
        if hold.count != hold.said:
            self._changed.add(hold)
        if not hold.count:
            hold.last = self._seconds()
            if not hold.queued or hold.state is HoldState.DRAINING:  # the commonest case is that it is queued
                self._may_be_unused(hold)

    # --- going back

    def _may_be_unused(self, hold: Hold) -> None:
        if hold.state is HoldState.DRAINING or (hold.state is HoldState.ASIDE and not hold.leases):
            self._unused_now(hold)
        elif hold.state is HoldState.HELD and not hold.queued:
            self._queue(hold)
            if self._sweep is None:
                self._sweep = self._clock.callLater(SWEEP, self._look)

    def _queue(self, hold: Hold) -> None:
        hold.queued = True
        self._order += 1
        heappush(self._unused, (hold.last, self._order, hold))

    def _look(self) -> None:
        self._sweep = None
        due = self._seconds() + SWEEP - messages.KEEP  # the next look would be too late for these
        unused = self._unused
        while unused and unused[0][0] <= due:
            hold = heappop(unused)[2]
            hold.queued = False
            if hold.state is HoldState.HELD and not hold.count:
                if hold.last <= due:
                    self._unused_now(hold)
                else:
                    self._queue(hold)
        if unused:
            self._sweep = self._clock.callLater(SWEEP, self._look)

    def _unused_now(self, hold: Hold) -> None:
        """Nothing of it counts: give it back, or set it aside for those who only want to hear of its end."""
        idle_for = max(0.0, self._seconds() - hold.last)
        if hold.leases:
            if hold.state is HoldState.HELD:
                hold.step(HoldInput.SILENT)
            self._tell(messages.SUSPEND, hold.id, idle_for)
            return
        hold.step(HoldInput.UNUSED)
        del self.holds[hold.id]
        self._changed.discard(hold)
        self._tell(messages.BACK, hold.id, idle_for)

    def _tell(self, what: str, session: SessionId, idle_for: float) -> None:
        if self._link is not None:
            self._link.tell(what, session=session, idle_for=idle_for)
        else:
            self._untold.append((what, session, idle_for))

    # --- asking

    def _ask(self, hold: Hold) -> None:
        if self._link is not None:
            asked = self._link.ask(messages.LEASE, session=hold.id, server=hold.server, container=hold.container)
            asked.addCallbacks(self._granted, self._refused, callbackArgs=(hold,), errbackArgs=(hold,))
            asked.addErrback(self._unexpected)

    def _wake(self, hold: Hold) -> None:
        hold.step(HoldInput.WAKE)
        self._ask_to_count(hold)

    def _ask_to_count(self, hold: Hold) -> None:
        if self._link is not None:
            asked = self._link.ask(messages.RESUME, session=hold.id)
            asked.addCallbacks(self._granted, self._refused, callbackArgs=(hold,), errbackArgs=(hold,))
            asked.addErrback(self._unexpected)

    def _granted(self, answer: Message, hold: Hold) -> None:
        if hold.state is HoldState.ASKED:
            hold.address = address_of(answer["address"])
        hold.step(HoldInput.GRANTED)
        if hold.state is HoldState.HELD:
            self._let_in(hold)

    def _let_in(self, hold: Hold) -> None:
        hold.last = self._seconds()
        waiting, hold.waiting = hold.waiting, {}
        for one, holder in waiting.items():
            one.callback(self._lease(hold, holder))
        hold.said = 1
        if hold.count != 1:
            self._changed.add(hold)
        if not hold.count:  # everybody left meanwhile
            self._may_be_unused(hold)

    def _refused(self, failure: Failure, hold: Hold) -> None:
        if failure.check(LinkLost) is not None:
            return  # the daemon goes: another one is asked, or this process ends
        refusal = failure.value
        if not isinstance(refusal, errors.Refusal):
            self.log.failure("a lease could not be had", failure)
            refusal = errors.Unavailable()
        self._over(hold, HoldInput.REFUSED, refusal, refusal.code, getattr(refusal, "detail", None))

    def _unexpected(self, failure: Failure) -> None:
        self.log.failure("a lease could not be taken", failure)

    # --- what the daemon says

    def _drain(self, message: Message) -> None:
        hold = self.holds.get(SessionId(message["session"]))
        if hold is None:
            return  # it was given back meanwhile
        before = hold.state
        if before is not HoldState.DRAINING:
            hold.reason = message["reason"]
        hold.step(HoldInput.DRAINED)
        if hold.state is HoldState.DRAINING:
            self._refuse_waiting(hold, errors.SessionEnded(hold.reason))
            if before is HoldState.HELD and not hold.count:
                self._unused_now(hold)

    def ended(self, session: SessionId, reason: str, detail: str | None) -> None:
        """The session is over: whoever holds a lease of it is told."""
        hold = self.holds.get(session)
        if hold is not None:
            self._over(hold, HoldInput.ENDED, errors.SessionEnded(reason, detail), reason, detail)

    def _over(self, hold: Hold, what: HoldInput, refusal: errors.Refusal, reason: str, detail: str | None) -> None:
        before = hold.state
        hold.step(what)
        if hold.state is not HoldState.OVER or before is HoldState.OVER:
            return
        del self.holds[hold.id]
        self._changed.discard(hold)
        leases, hold.leases = hold.leases, set()
        for lease in leases:
            safely(self.log, lease.revoke, reason_of(reason), detail)
        self._refuse_waiting(hold, refusal)

    def _refuse_waiting(self, hold: Hold, refusal: errors.Refusal) -> None:
        waiting, hold.waiting = hold.waiting, {}
        for one in waiting:
            one.errback(refusal)

    # --- reports

    def counts(self) -> list[tuple[SessionId, int, float]]:
        """Requests in flight and seconds since the last, of sessions whose count is not the one that was told last.

        Of `messages.AT_ONCE` at most: the others are told the next time.
        """
        now = self._seconds()
        told: list[tuple[SessionId, int, float]] = []
        while self._changed and len(told) < messages.AT_ONCE:
            hold = self._changed.pop()
            if hold.state is HoldState.HELD and hold.count != hold.said:
                hold.said = hold.count
                told.append((hold.id, hold.count, 0.0 if hold.count else now - hold.last))
        return told

    def stop(self) -> None:
        """Leave no timer."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

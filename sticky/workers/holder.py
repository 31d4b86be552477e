"""The daemon's side of one proxy: the leases that it holds, what it is told of them, and that it is cut off when it is silent.

To everything behind it a proxy's lease is a lease like any other (`IFarHolder`). Must not know processes, or what a proxy is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.values import EndReason, SessionId
from sticky.isticky import IFarHolder, IRouting
from sticky.lease import Lease
from sticky.workers import messages
from sticky.workers.fields import age_of, claims_of, number_of, text_of
from sticky.workers.frames import BadMessage, Link, LinkState, Message, TooLong
from sticky.workers.values import plain

AT_LEAST = 0.01  #: seconds between two looks: differences of floats may be too small to get anywhere


class HeldState(Enum):
    """How a session stands with one proxy."""

    COUNTS = "counts"  # in flight: it may let requests in without asking
    WATCHES = "watches"  # it does not count, and is told of the session's end
    OVER = "over"  # given back, ended, or the proxy is gone


HELD_STEPS: dict[tuple[HeldState, str], HeldState] = {
    (HeldState.COUNTS, messages.SUSPEND): HeldState.WATCHES,
    (HeldState.COUNTS, messages.BACK): HeldState.OVER,
    (HeldState.COUNTS, messages.END): HeldState.OVER,
    (HeldState.WATCHES, messages.RESUME): HeldState.COUNTS,
    (HeldState.WATCHES, messages.BACK): HeldState.OVER,
    (HeldState.WATCHES, messages.END): HeldState.OVER,
}


@implementer(IFarHolder)
class Held:
    """One session as one proxy holds it."""

    def __init__(self, proxy: Proxy, session: SessionId) -> None:
        self.state = HeldState.COUNTS
        self.in_flight = 1
        self._proxy = proxy
        self._session = session
        self._idle_since: float | None = None
        self.lease: Lease | None = None  # until it is over: it knows this object, a cycle for the garbage collector

    @property
    def idle_for(self) -> float:
        """See `IFarHolder`."""
        return 0.0 if self._idle_since is None else max(0.0, self._proxy.seconds() - self._idle_since)

    def count(self, in_flight: int, idle_for: float) -> None:
        """The proxy says so."""
        self.in_flight = in_flight
        self._idle_since = None if in_flight else self._proxy.seconds() - idle_for

    def step(self, what: str) -> None:
        """Take one row of the table. Raises `BadMessage` where there is none."""
        try:
            self.state = HELD_STEPS[self.state, what]
        except KeyError:
            raise BadMessage(f"{what} of a lease that {self.state.value}") from None

    def end(self, what: str) -> Lease:
        """It is over by this row of the table. Returns its lease, which is nobody's to keep."""
        self.step(what)
        lease, self.lease = self.lease, None
        assert lease is not None
        return lease

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
        self.end(messages.END)
        self._proxy.ended(self._session, reason, detail)

    def session_drains(self, reason: EndReason) -> None:
        """See `IFarHolder`."""
        self._proxy.push(messages.DRAIN, session=self._session, reason=reason.value)

    def settled(self) -> Deferred[None]:
        """See `IFarHolder`."""
        return self._proxy.settled()


@attrs.define(eq=False)
class _Push:
    """Something that the proxy was told and has not acknowledged."""

    at: float


class Proxy:
    """One proxy, from its hello to its end. `gone` is called once, when it has left, was lost or was cut off."""

    log = Logger()

    def __init__(
        self,
        name: str,
        link: Link,
        routing: IRouting,
        clock: IReactorTime,
        gone: Callable[[Proxy], None],
        works: Callable[[], bool] = lambda: False,
    ) -> None:
        """`works`: whether its process has done anything since this was asked last, or would if it got the processor."""
        self.name = name
        self.link = link
        self.seconds: Callable[[], float] = clock.seconds
        self.held: dict[SessionId, Held] = {}
        self.believed = True  #: False from its end on, or from being cut off
        self._doubted = False  # it seemed silent when this was looked at last
        self._routing = routing
        self._clock = clock
        self._gone = gone
        self._works = works
        self._pushed: dict[_Push, None] = {}  # in order
        self._unsettled: deque[tuple[_Push, Deferred[None]]] = deque()
        self._watch: IDelayedCall | None = None
        link.lost = self._lost

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a proxy may ask or tell."""
        return {
            messages.LEASE: self._lease,
            messages.BACK: self._back,
            messages.SUSPEND: self._suspend,
            messages.RESUME: self._resume,
        }

    # --- what it asks

    def take_over(self, holds: list[Any]) -> list[dict[str, str]]:
        """It has held these sessions of an earlier daemon. Returns those that it must end at once."""
        over = []
        for hold in holds:
            claims = claims_of(hold)
            held = Held(self, claims.session)
            try:
                self._put(held, self._routing.begin(claims, held, True))
            except errors.Refusal as refusal:
                over.append({"session": claims.session, "reason": refusal.code})
                continue
            idle_for = age_of(hold)
            held.count(number_of(hold, "in_flight"), idle_for)
            if not hold.get("counts"):
                self._set_aside(held, idle_for)
        return over

    def _lease(self, message: Message) -> Any:
        claims = claims_of(message)
        if claims.session in self.held:
            raise BadMessage("a session was asked for that is held already")
        held = Held(self, claims.session)
        lease = self._routing.begin(claims, held, True)
        if isinstance(lease, Deferred):
            return lease.addCallback(lambda lease: self._given(held, lease))
        return self._given(held, lease)

    def _given(self, held: Held, lease: Any) -> Message:
        if self.link.state is LinkState.CLOSED:
            lease.release()  # the proxy has gone while the lease was waited for
            return {}
        self._put(held, lease)
        return {"address": plain(lease.address)}

    def _put(self, held: Held, lease: Any) -> None:
        assert isinstance(lease, Lease)
        held.lease = lease
        self.held[lease.session] = held

    def _back(self, message: Message) -> None:
        held = self._find(message)
        if held is None:
            return  # it ended while this was on its way
        age = age_of(message)
        lease = held.end(messages.BACK)
        del self.held[SessionId(text_of(message, "session"))]
        lease.release(age)

    def _suspend(self, message: Message) -> None:
        held = self._find(message)
        if held is not None:
            self._set_aside(held, age_of(message))

    def _set_aside(self, held: Held, idle_for: float) -> None:
        held.step(messages.SUSPEND)
        held.count(0, idle_for)
        assert held.lease is not None
        held.lease.suspend(idle_for)

    def _resume(self, message: Message) -> Message:
        held = self._find(message)
        if held is None:
            raise errors.SessionEnded  # the end is on its way, with its reason
        assert held.lease is not None
        try:
            held.lease.resume()
        except errors.SessionEnded:
            if self.held.pop(SessionId(text_of(message, "session")), None) is not None:
                held.end(messages.END)
            raise
        held.step(messages.RESUME)
        held.count(1, 0.0)
        return {}

    def _find(self, message: Message) -> Held | None:
        return self.held.get(SessionId(text_of(message, "session")))

    def counted(self, counts: list[Any]) -> None:
        """Requests in flight by session, where they are others than was said last."""
        for session, in_flight, idle_for in counts:
            held = self.held.get(session)
            if held is not None and held.state is HeldState.COUNTS:
                held.count(int(in_flight), float(idle_for))

    # --- what it is told

    def ended(self, session: SessionId, reason: EndReason, detail: str | None) -> None:
        """The session is over: cut what there is of it."""
        self.held.pop(session, None)
        self.push(messages.END, session=session, reason=reason.value, detail=detail)

    def push(self, what: str, **fields: Any) -> Deferred[None]:
        """Tell it, and cut it off unless it is heard of within `SILENCE`. Fires when acknowledged, or cut off."""
        push = _Push(self.seconds())
        self._pushed[push] = None
        self.link.ask(what, **fields).addBoth(self._acknowledged, push)
        if self._watch is None and self._pushed and not self.link.rests:
            self._watch = self._clock.callLater(messages.SILENCE, self._look)
        return self.settled()

    def settled(self) -> Deferred[None]:
        """Fires when it has acknowledged everything that it was told until now, or was cut off."""
        if not self._pushed:
            return succeed(None)
        settled: Deferred[None] = Deferred()
        self._unsettled.append((next(reversed(self._pushed)), settled))
        return settled

    def _acknowledged(self, result: object, push: _Push) -> None:
        if isinstance(result, Failure) and result.check(errors.Refusal, TooLong):
            self.log.error(
                "proxy {proxy} refused what it was told, or could not be told, and is cut off: {problem}",
                proxy=self.name,
                problem=result.getErrorMessage(),
            )
            self.cut_off()  # whoever waits must not take this for an acknowledgement
            return
        self._pushed.pop(push, None)
        while self._unsettled and self._unsettled[0][0] not in self._pushed:
            self._unsettled.popleft()[1].callback(None)
        if not self._pushed and self._watch is not None:
            self._watch.cancel()
            self._watch = None
            self._doubted = False

    def _look(self) -> None:
        self._watch = None
        if not self._pushed:
            self._doubted = False
            return
        now, oldest = self.seconds(), next(iter(self._pushed)).at
        waits = now - max(oldest, self.link.heard_at)
        starved = self._works() and waits < messages.STARVED
        silent = (waits >= messages.SILENCE and not starved) or now - oldest >= messages.STALLED
        if silent and not self._doubted:
            # It may have been us who got no processor: what it has said by now is read before this is looked at again.
            self._doubted = True
            self._watch = self._clock.callLater(0, self._look)
        elif silent:
            self.log.error("proxy {proxy} is silent and is cut off", proxy=self.name)
            self.cut_off()
        else:
            self._doubted = False
            self._watch = self._clock.callLater(max(AT_LEAST, messages.SILENCE - waits), self._look)

    # --- while another daemon takes over

    def rest(self) -> None:
        """Hear nothing, and expect nothing."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.link.rest()

    def wake(self) -> None:
        """Go on as before."""
        self.link.wake()  # it may be told something by what it says, which is watched then
        if self._pushed and self._watch is None:
            self._watch = self._clock.callLater(messages.SILENCE, self._look)

    def move(self, **where: Any) -> Deferred[None]:
        """Send it to the other daemon. Fires when it has left; what it asked here it asks there."""
        self.held.clear()  # the leases are the other daemon's to count
        return send_on(self.link, **where)

    # --- its end

    def cut_off(self) -> None:
        """It is not believed any more: its leases are free, whatever it does."""
        self.believed = False
        self.link.close()
        self._free()

    def _lost(self) -> None:
        self.believed = False
        self._free()
        gone, self._gone = self._gone, _nobody
        gone(self)

    def _free(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        held, self.held = self.held, {}
        for one in held.values():
            if one.state is HeldState.OVER:
                continue  # its idle time was over, and the release of another one has brought that to light
            lease = one.end(messages.BACK)
            lease.release()  # when it was active last is not known: now at the latest, and no session is cut short
        self._pushed.clear()
        unsettled, self._unsettled = self._unsettled, deque()
        for _, settled in unsettled:
            settled.callback(None)


def send_on(link: Link, **where: Any) -> Deferred[None]:
    """Send whoever is at the other end to the other daemon. Fires when it has left."""
    left: Deferred[None] = Deferred()
    link.deaf = True
    link.lost = lambda: left.callback(None)
    link.tell(messages.MOVE, **where)
    link.wake()  # deaf, and hears when it has left
    return left


def _nobody(proxy: Proxy) -> None:
    pass

"""Requests of plain Servers through a proxy: the daemon is asked for each, and says to which container. Both sides of their way.

A visit is a lease for one request, by a number of the proxy's. Must not know how a container is chosen, or who may come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, EndReason, ServerName
from sticky.isticky import ControlRequest, IControl, ILease, ILeaseHolder, IRouting, IToldHolder, Visit
from sticky.observe.safely import safely
from sticky.visits import VisitLease
from sticky.workers import messages
from sticky.workers.asked import FarRequest, FarRequests
from sticky.workers.fields import address_of, number_of, reason_of, text_of, value_of
from sticky.workers.frames import BadMessage, Link, LinkState, Message
from sticky.workers.holder import Proxy
from sticky.workers.values import plain

# --- the proxy's side ------------------------------------------------------------------------------------------------


@attrs.define(eq=False, kw_only=True)
class FarVisit(FarRequest):
    """One request."""

    visit: Visit


class FarVisits(FarRequests[FarVisit]):
    """Those that are in flight, and those that the daemon is asked for. The book of their leases."""

    over = messages.VISITED

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[VisitLease, FarVisit] = {}

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a daemon may tell."""
        return {messages.CUT: self._end}

    # --- what the edge asks

    def take(self, visit: Visit, holder: ILeaseHolder) -> Deferred[ILease]:
        """See `IRouting.begin`."""
        return self._take(FarVisit(number=self._next(), holder=holder, visit=visit))

    def adopt(self, server: ServerName, lease: VisitLease) -> None:
        """A lease of this very process, which was its daemon until now."""
        one = FarVisit(number=self._next(), holder=lease.holder, visit=Visit(server), lease=lease)
        self._requests[one.number] = self._of[lease] = one
        lease.move(self)

    # --- the book

    def drop(self, lease: VisitLease) -> None:
        """See `visits.Book`."""
        one = self._of.pop(lease, None)
        if one is not None:
            self._leave(one)

    def count(self, lease: VisitLease) -> None:
        """See `visits.Book`."""
        self._tell(messages.AGAIN, self._of[lease])

    def uncount(self, lease: VisitLease) -> None:
        """See `visits.Book`. Of one that was dropped this is known."""
        one = self._of.get(lease)
        if one is not None:
            self._tell(messages.QUIET, one)

    # --- see `FarRequests`

    def _describe(self, one: FarVisit) -> Message:
        return {
            "request": one.number,
            "server": one.visit.server,
            "container": one.lease.container,
            "counts": one.lease.counts,
        }

    def _question(self, link: Link, one: FarVisit) -> Deferred[Message]:
        visit = one.visit
        return link.ask(
            messages.VISIT, request=one.number, server=visit.server, key=plain(visit.key), shown=plain(visit.shown)
        )

    def _lease(self, answer: Message, one: FarVisit) -> VisitLease:
        lease = VisitLease(ContainerId(answer["container"]), address_of(answer["address"]), one.holder, self)
        self._of[lease] = one
        return lease

    def _end(self, message: Message) -> None:
        one = self._requests.pop(number_of(message, "request"), None)
        if one is None or one.lease is None:
            return  # it was over meanwhile
        del self._of[one.lease]
        safely(self.log, one.lease.revoke, reason_of(message["reason"]), message.get("detail"))


# --- the daemon's side -----------------------------------------------------------------------------------------------


@implementer(IToldHolder)
class NearVisit:
    """One request of a proxy."""

    def __init__(self, visits: NearVisits, number: int) -> None:
        self.number = number
        self.lease: Any = None  # until it is over: it knows this object, a cycle for the garbage collector
        self._visits = visits

    def end(self) -> None:
        """The request is over at the proxy."""
        lease, self.lease = self.lease, None
        lease.release()

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
        self.lease = None
        self._visits.ended(self, reason, detail)

    def settled(self) -> Deferred[None]:
        """See `IToldHolder`."""
        return self._visits.settled()


class NearVisits:
    """What one proxy has in flight on plain Servers."""

    def __init__(self, proxy: Proxy, routing: IRouting, control: IControl) -> None:
        self._proxy = proxy
        self._routing = routing
        self._control = control
        self._visits: dict[int, NearVisit] = {}

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a proxy may ask or tell."""
        return {
            messages.VISIT: self._visit,
            messages.VISITED: self._visited,
            messages.QUIET: self._quiet,
            messages.AGAIN: self._again,
        }

    @property
    def in_flight(self) -> int:
        """Requests, and WebSockets that say nothing as well."""
        return len(self._visits)

    def take_over(self, held: Sequence[Message]) -> list[Message]:
        """It has had these of an earlier daemon. Returns those that are over, with their containers."""
        over = []
        for message in held:
            visit = Visit(ServerName(text_of(message, "server")), container=ContainerId(text_of(message, "container")))
            try:
                one = self._begin(number_of(message, "request"), visit)
            except errors.Refusal:
                over.append({"request": message["request"], "reason": EndReason.CONTAINER_LOST.value})
                continue
            if not message.get("counts"):
                one.lease.suspend()
        return over

    def stop(self) -> None:
        """The proxy is gone, and its requests with it."""
        visits, self._visits = self._visits, {}
        for one in visits.values():
            if one.lease is not None:  # else its container has stopped for the end of another one
                one.end()

    def ended(self, one: NearVisit, reason: EndReason, detail: str | None) -> None:
        """Its container stops."""
        if self._visits.pop(one.number, None) is not None:
            self._proxy.push(messages.CUT, request=one.number, reason=reason.value, detail=detail)

    def settled(self) -> Deferred[None]:
        """See `IToldHolder`."""
        return self._proxy.settled()

    def _visit(self, message: Message) -> Message:
        server, shown = text_of(message, "server"), message.get("shown")
        if shown is not None:
            request = value_of(ControlRequest, shown)
            if request.server != server:
                raise BadMessage("a visit to one Server with what was shown to another")
            if self._control.let_in(request) is not None:
                raise errors.Unavailable(retry_after=1.0)
        one = self._begin(number_of(message, "request"), Visit(ServerName(server), value_of(bytes, message.get("key"))))
        return {"container": one.lease.container, "address": plain(one.lease.address)}

    def _begin(self, number: int, visit: Visit) -> NearVisit:
        if number in self._visits or self._proxy.link.state is LinkState.CLOSED:
            raise BadMessage("a visit was asked for twice")
        one = NearVisit(self, number)
        one.lease = self._routing.begin(visit, one)
        self._visits[number] = one
        return one

    def _visited(self, message: Message) -> None:
        one = self._visits.pop(number_of(message, "request"), None)
        if one is not None:  # else its container has stopped, or it was refused, meanwhile
            one.end()

    def _quiet(self, message: Message) -> None:
        one = self._visits.get(number_of(message, "request"))
        if one is not None:
            one.lease.suspend()

    def _again(self, message: Message) -> None:
        one = self._visits.get(number_of(message, "request"))
        if one is not None:
            one.lease.resume()

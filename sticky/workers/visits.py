"""Requests of plain Servers through a proxy: the daemon is asked for each, and says to which container. Both sides of their way.

A visit is a lease for one request, by a number of the proxy's. Must not know how a container is chosen, or who may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, EndReason, ServerName
from sticky.isticky import ControlRequest, IControl, ILease, ILeaseHolder, IRouting, IToldHolder, Visit
from sticky.observe.safely import safely
from sticky.visits import VisitLease
from sticky.workers import messages
from sticky.workers.frames import BadMessage, Link, LinkLost, LinkState, Message
from sticky.workers.holder import Proxy, address_of, reason_of
from sticky.workers.values import made, plain

# --- the proxy's side ------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class FarVisit:
    """One request. Until the daemon has answered it has no lease."""

    number: int
    visit: Visit
    holder: ILeaseHolder
    waiting: Deferred[ILease] | None = None
    lease: VisitLease | None = None


class FarVisits:
    """Those that are in flight, and those that the daemon is asked for. The book of their leases."""

    log = Logger()

    def __init__(self) -> None:
        self._link: Link | None = None
        self._visits: dict[int, FarVisit] = {}
        self._of: dict[VisitLease, FarVisit] = {}
        self._untold: list[tuple[str, int]] = []  # what has happened since `held`, while there is no link
        self._number = 0

    # --- the link

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a daemon may tell."""
        return {messages.CUT: self._cut}

    def held(self) -> list[Message]:
        """What is in flight, for a daemon that takes over. What changes from here until `connect` is told then."""
        self._untold.clear()
        return [
            {
                "request": one.number,
                "server": one.visit.server,
                "container": one.lease.container,
                "counts": one.lease.counts,
            }
            for one in self._visits.values()
            if one.lease is not None
        ]

    def disconnect(self) -> None:
        """The daemon goes, and another one will come."""
        self._link = None

    def connect(self, link: Link, over: Iterable[Message]) -> None:
        """This daemon knows what is `held`, but for what is over; it is asked for everything else."""
        self._link = link
        untold, self._untold = self._untold, []
        for what, number in untold:
            link.tell(what, request=number)
        for message in over:
            self._cut(message)
        for one in list(self._visits.values()):
            if one.waiting is not None:
                self._ask(one)

    # --- what the edge asks

    def take(self, visit: Visit, holder: ILeaseHolder) -> Deferred[ILease]:
        """See `IRouting.begin`."""
        self._number += 1
        one = FarVisit(self._number, visit, holder)
        one.waiting = Deferred(lambda _: self._leave(one))
        self._visits[one.number] = one
        self._ask(one)
        return one.waiting

    def adopt(self, server: ServerName, lease: VisitLease) -> None:
        """A lease of this very process, which was its daemon until now."""
        self._number += 1
        one = FarVisit(self._number, Visit(server), lease.holder, lease=lease)
        self._visits[one.number] = self._of[lease] = one
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

    # --- asking and telling

    def _ask(self, one: FarVisit) -> None:
        if self._link is not None:
            visit = one.visit
            asked = self._link.ask(
                messages.VISIT,
                request=one.number,
                server=visit.server,
                key=plain(visit.key),
                shown=plain(visit.shown),
            )
            asked.addCallbacks(self._given, self._refused, callbackArgs=(one,), errbackArgs=(one,))

    def _given(self, answer: Message, one: FarVisit) -> None:
        if one.number not in self._visits:
            return  # its client left, and the daemon knows
        waiting, one.waiting = one.waiting, None
        assert waiting is not None
        lease = VisitLease(ContainerId(answer["container"]), address_of(answer["address"]), one.holder, self)
        one.lease = lease
        self._of[lease] = one
        waiting.callback(lease)

    def _refused(self, failure: Failure, one: FarVisit) -> None:
        if failure.check(LinkLost) is not None or self._visits.pop(one.number, None) is None:
            return
        waiting, one.waiting = one.waiting, None
        assert waiting is not None
        waiting.errback(failure if failure.check(errors.Refusal) else Failure(errors.Unavailable()))

    def _cut(self, message: Message) -> None:
        one = self._visits.pop(int(message["request"]), None)
        if one is None or one.lease is None:
            return  # it was over meanwhile
        del self._of[one.lease]
        safely(self.log, one.lease.revoke, reason_of(message["reason"]), message.get("detail"))

    def _leave(self, one: FarVisit) -> None:
        if self._visits.pop(one.number, None) is not None:
            self._tell(messages.VISITED, one)

    def _tell(self, what: str, one: FarVisit) -> None:
        if self._link is not None:
            self._link.tell(what, request=one.number)
        else:
            self._untold.append((what, one.number))


# --- the daemon's side -----------------------------------------------------------------------------------------------


@implementer(IToldHolder)
class NearVisit:
    """One request of a proxy."""

    def __init__(self, visits: NearVisits, number: int) -> None:
        self.number = number
        self.lease: Any = None
        self._visits = visits

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
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
            visit = Visit(ServerName(message["server"]), container=ContainerId(message["container"]))
            try:
                one = self._begin(int(message["request"]), visit)
            except errors.Refusal:
                over.append({"request": message["request"], "reason": EndReason.CONTAINER_LOST.value})
                continue
            if not message["counts"]:
                one.lease.suspend()
        return over

    def stop(self) -> None:
        """The proxy is gone, and its requests with it."""
        visits, self._visits = self._visits, {}
        for one in visits.values():
            one.lease.release()

    def ended(self, one: NearVisit, reason: EndReason, detail: str | None) -> None:
        """Its container stops."""
        if self._visits.pop(one.number, None) is not None:
            self._proxy.push(messages.CUT, request=one.number, reason=reason.value, detail=detail)

    def settled(self) -> Deferred[None]:
        """See `IToldHolder`."""
        return self._proxy.settled()

    def _visit(self, message: Message) -> Message:
        server, shown = message["server"], message["shown"]
        if shown is not None:
            request = made(ControlRequest, shown)
            if request.server != server:
                raise BadMessage("a visit to one Server with what was shown to another")
            if self._control.let_in(request) is not None:
                raise errors.Unavailable(retry_after=1.0)
        one = self._begin(int(message["request"]), Visit(ServerName(server), message["key"].encode("latin-1")))
        return {"container": one.lease.container, "address": plain(one.lease.address)}

    def _begin(self, number: int, visit: Visit) -> NearVisit:
        if number in self._visits or self._proxy.link.state is LinkState.CLOSED:
            raise BadMessage("a visit was asked for twice")
        one = NearVisit(self, number)
        one.lease = self._routing.begin(visit, one)
        self._visits[number] = one
        return one

    def _visited(self, message: Message) -> None:
        one = self._visits.pop(int(message["request"]), None)
        if one is not None:  # else its container has stopped, or it was refused, meanwhile
            one.lease.release()

    def _quiet(self, message: Message) -> None:
        one = self._visits.get(int(message["request"]))
        if one is not None:
            one.lease.suspend()

    def _again(self, message: Message) -> None:
        one = self._visits.get(int(message["request"]))
        if one is not None:
            one.lease.resume()

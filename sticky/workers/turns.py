"""Requests of `serial` Servers through a proxy: the daemon is asked for each, and has the line. Both sides of their way.

A turn is a lease for one request, by a number of the proxy's. Must not know in which order turns are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import EndReason, SessionId
from sticky.isticky import ILease, ILeaseHolder, IRouting
from sticky.lease import Lease
from sticky.observe.safely import safely
from sticky.workers import messages
from sticky.workers.asked import FarRequest, FarRequests
from sticky.workers.fields import address_of, claims_of, number_of, reason_of
from sticky.workers.frames import BadMessage, Link, LinkState, Message
from sticky.workers.holder import Proxy
from sticky.workers.values import plain

# --- the proxy's side ------------------------------------------------------------------------------------------------


@attrs.define(eq=False, kw_only=True)
class FarTurn(FarRequest):
    """One request. Until it has its turn it has no lease."""

    claims: Claims

    @property
    def id(self) -> SessionId:
        """See `lease.Counted`."""
        return self.claims.session


class FarTurns(FarRequests[FarTurn]):
    """Those that have a turn, and those that wait for one. The book of their leases."""

    over = messages.DONE

    def __init__(self) -> None:
        super().__init__()
        self.servers: frozenset[str] = frozenset()  #: whose requests take turns

    def take(self, claims: Claims, holder: ILeaseHolder) -> Deferred[ILease]:
        """See `IRouting.begin`."""
        return self._take(FarTurn(number=self._next(), holder=holder, claims=claims))

    def ended(self, session: SessionId, reason: str, detail: str | None) -> None:
        """The session is over: whoever has a turn of it is told. Who waits is answered by the daemon."""
        for turn in [one for one in self._requests.values() if one.id == session and one.lease is not None]:
            del self._requests[turn.number]
            safely(self.log, turn.lease.revoke, reason_of(reason), detail)

    def adopt(self, claims: Claims, lease: Lease) -> None:
        """A turn of this very process, which was its daemon until now."""
        turn = FarTurn(number=self._next(), holder=lease.holder, claims=claims, lease=lease)
        self._requests[turn.number] = turn
        lease.move(turn, self)

    # --- the book

    def release(self, lease: Lease, core: FarTurn, counts: bool, idle_for: float) -> None:
        """See `lease.Book`."""
        self._leave(core)

    def drop(self, lease: Lease, core: FarTurn) -> None:
        """See `lease.Book`: turns are never suspended."""

    def count(self, lease: Lease, core: FarTurn) -> None:
        """See `lease.Book`: likewise."""

    def uncount(self, lease: Lease, core: FarTurn, idle_for: float) -> None:
        """See `lease.Book`: likewise."""

    # --- see `FarRequests`

    def _describe(self, one: FarTurn) -> Message:
        claims = one.claims
        return {
            "request": one.number,
            "session": claims.session,
            "server": claims.server,
            "container": claims.container,
        }

    def _question(self, link: Link, one: FarTurn) -> Deferred[Message]:
        return link.ask(messages.TURN, **self._describe(one))

    def _lease(self, answer: Message, one: FarTurn) -> Lease:
        return Lease(one, one.claims.container, address_of(answer["address"]), one.holder, self)

    def _end(self, message: Message) -> None:
        self.ended(SessionId(message["session"]), message["reason"], None)


# --- the daemon's side -----------------------------------------------------------------------------------------------


Resume = Callable[[Claims, ILeaseHolder], ILease | Deferred[ILease]]


@implementer(ILeaseHolder)
class NearTurn:
    """One request of a proxy."""

    def __init__(self, turns: NearTurns, number: int, session: SessionId) -> None:
        self.number = number
        self.waiting: Deferred[Any] | None = None
        self.lease: Any = None  # until it is over: it knows this object, a cycle for the garbage collector
        self._turns = turns
        self._session = session

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
        self._turns.ended(self, self._session, reason, detail)


class NearTurns:
    """The turns that one proxy's requests have, or wait for."""

    log = Logger()

    def __init__(self, proxy: Proxy, routing: IRouting, resume: Resume) -> None:
        """`resume`: for those that had their turn of an earlier daemon; all others wait until those are known."""
        self._proxy = proxy
        self._routing = routing
        self._resume = resume
        self._turns: dict[int, NearTurn] = {}

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a proxy may ask or tell."""
        return {messages.TURN: self._turn, messages.DONE: self._done}

    def take_over(self, held: Sequence[Message]) -> list[Message]:
        """It has had these turns of an earlier daemon. Returns sessions that are over; of later ends it is told."""
        over = []
        for one in held:
            try:
                found = self._begin(one, self._resume)
            except errors.Refusal as refusal:
                over.append({"session": one["session"], "reason": refusal.code})
                continue
            if isinstance(found, Deferred):
                found.addErrback(self._not_resumed, SessionId(one["session"]))
        return over

    def _not_resumed(self, failure: Failure, session: SessionId) -> None:
        if failure.check(CancelledError) is not None:
            return  # the request is over, or the proxy gone
        refusal = failure.value
        if not isinstance(refusal, errors.Refusal):
            self.log.failure("a request that an earlier daemon gave its turn could not be taken over", failure)
            refusal = errors.Unavailable()
        detail = getattr(refusal, "detail", None)
        self._proxy.push(messages.END, session=session, reason=refusal.code, detail=detail)

    @property
    def in_flight(self) -> int:
        """Requests that have their turn, or wait for it."""
        return len(self._turns)

    def stop(self) -> None:
        """The proxy is gone, and its requests with it."""
        for turn in list(self._turns.values()):
            self._leave(turn)

    def ended(self, turn: NearTurn, session: SessionId, reason: EndReason, detail: str | None) -> None:
        """A session is over while a request of it has its turn."""
        self._turns.pop(turn.number, None)
        turn.lease = None
        self._proxy.push(messages.END, session=session, reason=reason.value, detail=detail)

    def _turn(self, message: Message) -> Any:
        return self._begin(message, self._routing.begin)

    def _begin(self, message: Message, begin: Resume) -> Any:
        claims, number = claims_of(message), number_of(message, "request")
        if number in self._turns:
            raise BadMessage("a turn was asked for twice")
        turn = NearTurn(self, number, claims.session)
        found = begin(claims, turn)
        self._turns[number] = turn
        if not isinstance(found, Deferred):
            return self._given(found, turn)
        turn.waiting = found
        return found.addCallbacks(self._given, self._refused, callbackArgs=(turn,), errbackArgs=(turn,))

    def _given(self, lease: Any, turn: NearTurn) -> Message:
        turn.waiting = None
        if self._proxy.link.state is LinkState.CLOSED:
            lease.release()
        else:
            turn.lease = lease
        return {"address": plain(lease.address)}

    def _refused(self, failure: Failure, turn: NearTurn) -> Failure:
        turn.waiting = None
        self._turns.pop(turn.number, None)
        return failure

    def _done(self, message: Message) -> None:
        turn = self._turns.get(number_of(message, "request"))
        if turn is not None:  # else the session has ended, or the request was refused, meanwhile
            self._leave(turn)

    def _leave(self, turn: NearTurn) -> None:
        self._turns.pop(turn.number, None)
        waiting, turn.waiting = turn.waiting, None
        lease, turn.lease = turn.lease, None
        if waiting is not None:
            waiting.cancel()
        elif lease is not None:
            lease.release()

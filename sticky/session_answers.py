"""What a Server at work answers about one session or one name: terminate, release, status, extend, list. The base of `ServerService`.

Of leases it knows how many there are and who has to hear of an end; nothing of containers' lives or waiting starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, DeferredList, fail
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from sticky import errors
from sticky.core.fleet import Fleet
from sticky.core.session import Session, SessionState
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, SessionId
from sticky.isticky import SessionStatus
from sticky.journal.writer import Journal
from sticky.lease import LeaseBook


class SessionAnswers:
    """The calls about sessions of one Server."""

    fleet: Fleet
    _clock: IReactorTime
    _journal: Journal
    _leases: LeaseBook
    #: fires when all who may hold sessions are known to hold them, and act on what they are told; None: they are
    everybody: Callable[[], Deferred[None] | None] = staticmethod(lambda: None)

    def _follow_up(self) -> None:
        raise AssertionError("the service's own")

    def in_flight(self, session: Session) -> int:
        """Requests of one of its sessions; those that pass through workers as of up to a second ago."""
        return self._leases.in_flight(session)

    # --- calls about one session

    def terminate(self, claims: Claims, grace: float | None) -> Deferred[None]:
        """See `ISessions`."""
        if not self._journal.works:
            return fail(errors.StorageFailed(retry_after=1.0))
        acknowledged = self._leases.acknowledged(claims.session)
        try:
            self.fleet.terminate(self._clock.seconds(), claims.container, claims.session, grace)
        except errors.UnknownSession as refusal:
            return self._once_durable(refusal)
        finally:
            self._follow_up()
        return self._told(acknowledged())

    def release(self, owner: str, name: str, grace: float | None) -> Deferred[None]:
        """See `ISessions`."""
        if not self._journal.works:
            return fail(errors.StorageFailed(retry_after=1.0))
        bound = self.fleet.names.standing(owner, name)
        acknowledged = self._leases.acknowledged(SessionId("") if bound is None else bound.session)
        try:
            self.fleet.release(self._clock.seconds(), owner, name, grace)
        except errors.UnknownName as refusal:
            return self._once_durable(refusal)
        finally:
            self._follow_up()
        return self._told(acknowledged())

    def _once_durable(self, refusal: errors.Refusal) -> Deferred[None]:
        """There is nothing to end. If that is so by an end that a crash would undo, it is answered when that is durable, or not at all:
        whoever tries again what was not kept would take the refusal for its success."""
        settled = self._journal.settled()
        if settled.called and not isinstance(settled.result, Failure):
            raise refusal
        return settled.addCallback(lambda _: Failure(refusal))

    def _told(self, told: list[Deferred[None]]) -> Deferred[None]:
        """Fires when it is durable, and everybody who holds the session knows."""
        settled, everybody = self._journal.settled(), self.everybody()
        if everybody is not None:
            told.append(everybody)
        return settled if not told else DeferredList(told, consumeErrors=True).addCallback(lambda _: settled)

    def status(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._look(claims, self.fleet.look)

    def extend(self, claims: Claims) -> SessionStatus:
        """See `ISessions`."""
        return self._look(claims, self.fleet.extend)

    def sessions(self, owner: str, after: SessionId | None, limit: int) -> Sequence[SessionStatus]:
        """See `ISessions`. Sorts all sessions of the Server: a call for people, not for programs in a loop."""
        now = self._clock.seconds()
        mine = sorted(
            (session.id, ledger.container, session)
            for ledger in self.fleet.ledgers
            for session in ledger
            if session.caller == owner and (after is None or session.id > after)
        )
        return [self._describe(now, container, session) for _, container, session in mine[:limit]]

    def _look(self, claims: Claims, how: Callable[[float, ContainerId, SessionId], Session]) -> SessionStatus:
        now = self._clock.seconds()
        try:
            return self._describe(now, claims.container, how(now, claims.container, claims.session))
        finally:
            self._follow_up()

    def _describe(self, now: float, container: ContainerId, session: Session) -> SessionStatus:
        due = session.due
        idle_left = None if due is None else due - now
        if due is None and (idle_for := self._leases.idle_for(session)) is not None:
            idle_left = session.idle_timeout - idle_for
        if session.state is not SessionState.ACTIVE:
            idle_left = None
        return SessionStatus(
            session.id,
            session.state.value,
            self._leases.in_flight(session),
            session.idle_timeout,
            idle_left,
            self.fleet.capacity.containers[container].dies_at - now,
            session.caller,
            container,
            now - session.created_at,
            session.name,
        )

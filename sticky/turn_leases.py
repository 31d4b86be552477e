"""Leases of requests that take turns, for a `serial` Server: granted at once, or when the ones before are done. Decides nothing.

The order, and who is refused, is the core's (`core.turns`); here are only the Deferreds of those that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from sticky import errors
from sticky.core.session import Session
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, SessionId, TurnId
from sticky.isticky import Address, ILease, ILeaseHolder
from sticky.lease import Counting, Lease, LeaseBook


class TakingTurns(Counting, Protocol):
    """What a fleet counts and orders (`core.fleet.Fleet`)."""

    def take_turn(self, now: float, container: ContainerId, session: SessionId, turn: TurnId) -> tuple[Session, bool]:
        """One more in flight; whether it has the turn. Raises `errors.SessionEnded`, `errors.SessionBusy`."""

    def give_back(self, now: float, container: ContainerId, session: Session, turn: TurnId) -> None:
        """One less, and the next one's turn."""


class TurnLease(Lease):
    """A lease that is its session's only one."""

    __slots__ = ("turn",)

    def __init__(
        self,
        core: Session,
        container: ContainerId,
        address: Address,
        holder: ILeaseHolder,
        book: LeaseBook,
        turn: TurnId,
    ) -> None:
        super().__init__(core, container, address, holder, book)
        self.turn = turn


class TurnBook(LeaseBook):
    """Those who have a turn, and those who wait for one.

    `beside` has the leases without turns (WebSockets): when a session ends, it tells the holders of both.
    """

    def __init__(
        self,
        fleet: TakingTurns,
        addresses: Mapping[ContainerId, Address],
        clock: IReactorTime,
        follow_up: Callable[[], None],
        beside: LeaseBook,
    ) -> None:
        super().__init__(fleet, addresses, clock, follow_up)
        self._leases = beside._leases
        self._turning = fleet
        self._numbers = count(1)
        self._waiting: dict[TurnId, tuple[Deferred[ILease], TurnLease]] = {}
        self._moved: dict[TurnId, Deferred[ILease]] = {}  # those that wait elsewhere

    def take(self, claims: Claims, holder: ILeaseHolder) -> ILease | Deferred[ILease]:
        """See `IRouting.begin`."""
        container, turn = claims.container, TurnId(next(self._numbers))
        address = self._addresses.get(container)
        try:
            core, held = self._turning.take_turn(self._seconds(), container, claims.session, turn)
        finally:
            self._follow_up()
        if address is None:
            self._turning.give_back(self._seconds(), container, core, turn)
            self._follow_up()
            raise errors.ContainerUnavailable(retry_after=1.0)
        lease = TurnLease(core, container, address, holder, self, turn)
        if held:
            self._enter(lease)
            return lease

        def left(_: Deferred[ILease]) -> None:
            if self._waiting.pop(turn, None) is not None:
                self._turning.give_back(self._seconds(), container, core, turn)
                self._follow_up()
            elif (moved := self._moved.pop(turn, None)) is not None:
                moved.cancel()

        waiting: Deferred[ILease] = Deferred(left)
        self._waiting[turn] = waiting, lease
        return waiting

    def give(self, turn: TurnId) -> None:
        """It is this one's turn."""
        entry = self._waiting.pop(turn, None)
        if entry is not None:  # else it has left in the same step
            waiting, lease = entry
            self._enter(lease)
            waiting.callback(lease)

    def move(self, ask: Callable[[TurnLease], Deferred[ILease]]) -> None:
        """Turns are given elsewhere from now on: `ask` there for each request that waits, in their order."""
        waiting, self._waiting = self._waiting, {}
        for turn, (answer, lease) in waiting.items():
            moved = self._moved[turn] = ask(lease)
            moved.chainDeferred(answer)

    def refuse(self, turn: TurnId, error: errors.Refusal) -> None:
        """This one waits in vain; it counts no longer."""
        entry = self._waiting.pop(turn, None)
        if entry is not None:
            entry[0].errback(Failure(error))

    def _enter(self, lease: TurnLease) -> None:
        self._leases.setdefault(lease.session, set()).add(lease)

    def release(self, lease: Lease, core: Session, counts: bool, idle_for: float) -> None:
        """See `LeaseBook`."""
        self.drop(lease, core)
        assert isinstance(lease, TurnLease)
        self._turning.give_back(self._seconds(), lease.container, core, lease.turn)
        self._follow_up()

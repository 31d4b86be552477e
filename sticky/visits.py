"""Requests of a plain Server in flight: a lease for each, and the book of all those of one Server.

As `lease`, but that nothing binds a request to a container before it comes. Knows the fleet only as far as counting goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.isticky import NO_SESSION, Address, ILease, ILeaseHolder, IToldHolder
from sticky.observe.safely import safely


class Counting(Protocol):
    """What a fleet counts (`core.plain_calls.PlainCalls`)."""

    def enter(self, now: float, key: bytes) -> ContainerId:
        """One more in flight, and where. Raises an `errors.Refusal`."""

    def enter_again(self, now: float, identity: ContainerId) -> None:
        """One that had ceased to count counts again."""

    def leave(self, now: float, identity: ContainerId) -> None:
        """One less."""


class Book(Protocol):
    """Who keeps count of leases."""

    def drop(self, lease: VisitLease) -> None:
        """It is nobody's any more."""

    def count(self, lease: VisitLease) -> None:
        """It counts."""

    def uncount(self, lease: VisitLease) -> None:
        """It does not count."""


@implementer(ILease)
class VisitLease:
    """See `ILease`. Made for each request, so it is small and has no Deferred in it."""

    __slots__ = ("_book", "_counts", "_holder", "address", "container")

    session: SessionId = NO_SESSION

    def __init__(self, container: ContainerId, address: Address, holder: ILeaseHolder, book: Book) -> None:
        self.container: ContainerId = container
        self.address: Address = address
        self._counts = True
        self._holder = holder
        self._book: Book | None = book

    @property
    def counts(self) -> bool:
        """Whether it is in flight."""
        return self._counts

    @property
    def holder(self) -> ILeaseHolder:
        """Who is told when its container stops."""
        return self._holder

    def move(self, book: Book) -> None:
        """Another one keeps count from now on, and knows already."""
        self._book = book

    def release(self) -> None:
        """See `ILease`."""
        book = self._book
        if book is not None:
            self._book = None
            book.drop(self)
            if self._counts:
                book.uncount(self)

    def transfer(self, holder: ILeaseHolder) -> None:
        """See `ILease`."""
        self._holder = holder

    def suspend(self) -> None:
        """See `ILease`."""
        if self._book is not None and self._counts:
            self._counts = False
            self._book.uncount(self)

    def resume(self) -> None:
        """See `ILease`."""
        if self._book is not None and not self._counts:
            self._counts = True
            self._book.count(self)

    def revoke(self, reason: EndReason, detail: str | None) -> None:
        """Its container stops: the lease is void, its holder is told. A no-op on one that was released."""
        if self._book is not None:
            self._book = None
            self._holder.session_ended(reason, detail)


class VisitBook:
    """Who holds what on one Server's containers.

    `addresses`: of its containers. `follow_up` is called after the fleet has counted, for what may follow from it.
    """

    log = Logger()

    def __init__(
        self,
        fleet: Counting,
        addresses: Mapping[ContainerId, Address],
        clock: IReactorTime,
        follow_up: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._addresses = addresses
        self._seconds = clock.seconds
        self._follow_up = follow_up
        self._leases: dict[ContainerId, set[VisitLease]] = {}
        self._telling: dict[ContainerId, Deferred[Any]] = {}  # whose end somebody has not acknowledged yet

    def begin(self, key: bytes, holder: ILeaseHolder, container: ContainerId | None = None) -> VisitLease:
        """See `IRouting`. `key`: of the request's affinity; empty: none. `container`: where it is already."""
        try:
            if container is None:
                container = self._fleet.enter(self._seconds(), key)
            else:
                self._fleet.enter_again(self._seconds(), container)
        finally:
            self._follow_up()
        address = self._addresses.get(container)
        if address is None:  # adopted, and where it listens was never noted: nothing may stay in flight for that
            self._fleet.leave(self._seconds(), container)
            self._follow_up()
            raise errors.ContainerUnavailable(retry_after=1.0)
        lease = VisitLease(container, address, holder, self)
        self._leases.setdefault(container, set()).add(lease)
        return lease

    def end(self, container: ContainerId, reason: EndReason, detail: str | None) -> None:
        """The container stops: everybody who holds a lease on it is told."""
        told = []
        for lease in self._leases.pop(container, ()):
            safely(self.log, lease.revoke, reason, detail)
            if IToldHolder.providedBy(lease.holder):
                told.append(lease.holder.settled())
        if told:
            self._telling[container] = everybody = DeferredList(told)
            everybody.addCallback(lambda _: self._told(container))

    def _told(self, container: ContainerId) -> None:
        self._telling.pop(container, None)

    def when_told(self, container: ContainerId, then: Callable[[], None]) -> None:
        """Go on when everybody knows what became of this container: at once, where all are in this process."""
        telling = self._telling.get(container)
        if telling is None:
            then()
        else:
            telling.addCallback(lambda _: then())

    def held(self) -> list[VisitLease]:
        """All that there are."""
        return [lease for leases in self._leases.values() for lease in leases]

    # --- for the leases

    def drop(self, lease: VisitLease) -> None:
        """It is nobody's any more."""
        leases = self._leases.get(lease.container)
        if leases is not None:
            leases.discard(lease)
            if not leases:
                del self._leases[lease.container]

    def count(self, lease: VisitLease) -> None:
        """It counts."""
        self._fleet.enter_again(self._seconds(), lease.container)
        self._follow_up()

    def uncount(self, lease: VisitLease) -> None:
        """It does not count."""
        self._fleet.leave(self._seconds(), lease.container)
        self._follow_up()

"""Leases: requests of sessions in flight, each held by somebody, and the book of all those of one Server.

Knows the fleet only as far as counting goes, and nothing of why a session ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from sticky import errors
from sticky.core.session import Session
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.isticky import Address, ILease, ILeaseHolder
from sticky.observe.safely import safely


class Counting(Protocol):
    """What a fleet counts (`core.fleet.Fleet`)."""

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """One more in flight. Raises `errors.SessionEnded`."""

    def finish(self, now: float, container: ContainerId, session: Session) -> None:
        """One less."""


@implementer(ILease)
class Lease:
    """See `ILease`. Made for each request, so it is small and has no Deferred in it."""

    __slots__ = ("_book", "_core", "_counts", "_holder", "address", "container", "session")

    def __init__(
        self, core: Session, container: ContainerId, address: Address, holder: ILeaseHolder, book: LeaseBook
    ) -> None:
        self.session: SessionId = core.id
        self.container: ContainerId = container
        self.address: Address = address
        self._core: Session | None = core
        self._counts = True
        self._holder = holder
        self._book = book

    def release(self) -> None:
        """See `ILease`."""
        core = self._core
        if core is not None:
            self._core = None
            self._book.release(self, core, self._counts)

    def transfer(self, holder: ILeaseHolder) -> None:
        """See `ILease`."""
        self._holder = holder

    def suspend(self) -> None:
        """See `ILease`."""
        core = self._core
        if core is not None and self._counts:
            self._counts = False
            self._book.uncount(self, core)

    def resume(self) -> None:
        """See `ILease`."""
        core = self._core
        if core is not None and not self._counts:
            try:
                self._book.count(self)
            except errors.SessionEnded:
                if self._core is not None:
                    self._core = None
                    self._book.drop(self, core)
                raise
            self._counts = True

    def revoke(self, reason: EndReason, detail: str | None) -> None:
        """The session has ended: the lease is void, its holder is told. A no-op on one that was released."""
        if self._core is not None:
            self._core = None
            self._holder.session_ended(reason, detail)


class LeaseBook:
    """Who holds what of one Server's sessions.

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
        self._leases: dict[SessionId, set[Lease]] = {}

    def begin(self, claims: Claims, holder: ILeaseHolder) -> Lease:
        """See `IRouting`. Synchronous here: the ledger is in this process."""
        container = claims.container
        address = self._addresses.get(container)
        try:
            core = self._fleet.begin(self._seconds(), container, claims.session)
        finally:
            self._follow_up()
        if address is None:  # adopted, and where it listens was never noted: nothing may stay in flight for that
            self._fleet.finish(self._seconds(), container, core)
            raise errors.ContainerUnavailable(retry_after=1.0)
        lease = Lease(core, container, address, holder, self)
        leases = self._leases.get(core.id)
        if leases is None:
            self._leases[core.id] = {lease}
        else:
            leases.add(lease)
        return lease

    def end(self, session: SessionId, reason: EndReason, detail: str | None) -> None:
        """The session is over: everybody who holds a lease of it is told."""
        for lease in self._leases.pop(session, ()):
            safely(self.log, lease.revoke, reason, detail)

    # --- for the leases

    def release(self, lease: Lease, core: Session, counts: bool) -> None:
        """It is nobody's any more, and counts no longer: `drop` and `uncount` in one, for every request."""
        leases = self._leases.get(core.id)
        if leases is not None:
            if len(leases) == 1 and lease in leases:
                del self._leases[core.id]
            else:
                leases.discard(lease)
        if counts:
            self._fleet.finish(self._seconds(), lease.container, core)
            self._follow_up()

    def drop(self, lease: Lease, core: Session) -> None:
        """It is nobody's any more."""
        leases = self._leases.get(core.id)
        if leases is not None:
            leases.discard(lease)
            if not leases:
                del self._leases[core.id]

    def count(self, lease: Lease) -> None:
        """It counts. Raises `errors.SessionEnded`."""
        try:
            self._fleet.begin(self._seconds(), lease.container, lease.session)
        finally:
            self._follow_up()

    def uncount(self, lease: Lease, core: Session) -> None:
        """It does not count."""
        self._fleet.finish(self._seconds(), lease.container, core)
        self._follow_up()

"""Leases: requests of sessions in flight, each held by somebody, and the book of all those of one Server.

Knows the fleet only as far as counting goes, and nothing of why a session ends. A worker's leases have another book
(`sticky.workers.routing`), and the worker itself holds one of the daemon's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from sticky import errors
from sticky.core.session import Session
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.isticky import Address, IFarHolder, ILease, ILeaseHolder
from sticky.observe.safely import safely


class Counting(Protocol):
    """What a fleet counts (`core.fleet.Fleet`)."""

    @property
    def effects(self) -> Sized:
        """What has been decided and is to be carried out."""

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """One more in flight. Raises `errors.SessionEnded`. Nothing follows from it but `effects`."""

    def finish(self, now: float, container: ContainerId, session: Session, idle_for: float = 0.0) -> bool:
        """One less, since so many seconds. Whether something follows from it: effects, or an earlier deadline."""


class Counted(Protocol):
    """What leases of one session have in common: the core's session, or what a worker knows of it."""

    @property
    def id(self) -> SessionId:
        """The session's."""


class Book(Protocol):
    """Counts leases and knows their holders."""

    def release(self, lease: Lease, core: Any, counts: bool, idle_for: float) -> None:
        """It is nobody's any more, and counts no longer, since so many seconds."""

    def drop(self, lease: Lease, core: Any) -> None:
        """It is nobody's any more; it did not count."""

    def count(self, lease: Lease, core: Any) -> None:
        """It counts again. Raises `errors.SessionEnded`."""

    def uncount(self, lease: Lease, core: Any, idle_for: float) -> None:
        """It does not count, since so many seconds."""


@implementer(ILease)
class Lease:
    """See `ILease`. Made for each request, so it is small and has no Deferred in it."""

    __slots__ = ("_book", "_core", "_counts", "_holder", "address", "container", "session")

    def __init__(
        self, core: Counted, container: ContainerId, address: Address, holder: ILeaseHolder, book: Book
    ) -> None:
        self.session: SessionId = core.id
        self.container: ContainerId = container
        self.address: Address = address
        self._core: Counted | None = core
        self._counts = True
        self._holder = holder
        self._book = book

    def release(self, idle_for: float = 0.0) -> None:
        """See `ILease`. `idle_for`: seconds that nothing has been in flight, where it was kept for what might come."""
        core = self._core
        if core is not None:
            self._core = None
            self._book.release(self, core, self._counts, idle_for)

    def transfer(self, holder: ILeaseHolder) -> None:
        """See `ILease`."""
        self._holder = holder

    def suspend(self, idle_for: float = 0.0) -> None:
        """See `ILease`. `idle_for`: as for `release`."""
        core = self._core
        if core is not None and self._counts:
            self._counts = False
            self._book.uncount(self, core, idle_for)

    def resume(self) -> None:
        """See `ILease`."""
        core = self._core
        if core is not None and not self._counts:
            try:
                self._book.count(self, core)
            except errors.SessionEnded:
                if self._core is not None:
                    self._core = None
                    self._book.drop(self, core)
                raise
            self._counts = True

    def move(self, core: Counted, book: Book) -> None:
        """It is in this book from now on. A no-op on one that is over."""
        if self._core is not None:
            self._core = core
            self._book = book

    @property
    def counts(self) -> bool:
        """Whether it counts now."""
        return self._core is not None and self._counts

    @property
    def holder(self) -> ILeaseHolder:
        """Whoever is told when the session ends."""
        return self._holder

    def revoke(self, reason: EndReason, detail: str | None) -> None:
        """The session has ended: the lease is void, its holder is told. A no-op on one that was released."""
        if self._core is not None:
            self._core = None
            self._holder.session_ended(reason, detail)


class LeaseBook:
    """Who holds what of one Server's sessions.

    `addresses`: of its containers. `follow_up` is called after the fleet has counted, where something may follow from it.
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
        # Holders who have not acknowledged an end or a drain.
        self._telling: dict[ContainerId, set[Deferred[None]]] = {}

    def begin(self, claims: Claims, holder: ILeaseHolder) -> Lease:
        """See `IRouting`. Synchronous here: the ledger is in this process."""
        container = claims.container
        address = self._addresses.get(container)
        fleet = self._fleet
        try:
            core = fleet.begin(self._seconds(), container, claims.session)
        finally:
            if fleet.effects:
                self._follow_up()
        if address is None:  # adopted, and where it listens was never noted: nothing may stay in flight for that
            self._fleet.finish(self._seconds(), container, core)
            self._follow_up()
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
            self._tells(lease)

    # --- holders in other processes

    def drains(self, session: SessionId, reason: EndReason) -> None:
        """The session takes no new requests: those who let them in without asking are told."""
        for lease in list(self._leases.get(session, ())):
            if IFarHolder.providedBy(lease.holder):
                safely(self.log, lease.holder.session_drains, reason)
                self._tells(lease)

    def acknowledged(self, session: SessionId) -> Callable[[], list[Deferred[None]]]:
        """Call what this returns when the session has been ended: for when those who hold it now have heard of that."""
        far = [lease.holder for lease in self._leases.get(session, ()) if IFarHolder.providedBy(lease.holder)]
        return lambda: [holder.settled() for holder in far]

    def _tells(self, lease: Lease) -> None:
        if not IFarHolder.providedBy(lease.holder):
            return
        settled: Deferred[None] = lease.holder.settled()
        if not settled.called:
            waiting = self._telling.setdefault(lease.container, set())
            waiting.add(settled)
            settled.addCallback(lambda _: self._told(lease.container, settled))

    def _told(self, container: ContainerId, settled: Deferred[None]) -> None:
        waiting = self._telling[container]
        waiting.discard(settled)
        if not waiting:
            del self._telling[container]

    def when_told(self, container: ContainerId, then: Callable[[], None]) -> None:
        """Go on when everybody knows what became of this container's sessions: at once, where all are in this process."""
        waiting = self._telling.get(container)
        if waiting:
            one = next(iter(waiting))  # after it there may be others
            one.addCallback(lambda _: safely(self.log, self.when_told, container, then))
        else:
            then()

    def in_flight(self, session: Session) -> int:
        """Requests of the session; those in other processes as of their last word, up to a second ago."""
        far = self._far(session)
        return int(session.in_flight - len(far) + sum(holder.in_flight for holder in far))

    def idle_for(self, session: Session) -> float | None:
        """Seconds that nothing has been in flight, where a lease is only kept in case something comes; None elsewhere."""
        far = self._far(session)
        if not far or session.in_flight > len(far) or any(holder.in_flight for holder in far):
            return None
        return min((holder.idle_for for holder in far), default=None)

    def held(self) -> list[Lease]:
        """All that there are."""
        return [lease for leases in self._leases.values() for lease in leases]

    def _far(self, session: Session) -> list[Any]:
        """Holders in other processes whose leases count."""
        leases = self._leases.get(session.id, ())
        return [lease.holder for lease in leases if lease.counts and IFarHolder.providedBy(lease.holder)]

    # --- for the leases

    def release(self, lease: Lease, core: Session, counts: bool, idle_for: float) -> None:
        """It is nobody's any more, and counts no longer: `drop` and `uncount` in one, for every request."""
        leases = self._leases.get(core.id)
        if leases is not None:
            leases.discard(lease)
            if not leases:
                del self._leases[core.id]
        if counts and self._fleet.finish(self._seconds(), lease.container, core, idle_for):
            self._follow_up()

    def drop(self, lease: Lease, core: Session) -> None:
        """It is nobody's any more."""
        leases = self._leases.get(core.id)
        if leases is not None:
            leases.discard(lease)
            if not leases:
                del self._leases[core.id]

    def count(self, lease: Lease, core: Session) -> None:
        """It counts. Raises `errors.SessionEnded`."""
        try:
            self._fleet.begin(self._seconds(), lease.container, lease.session)
        finally:
            self._follow_up()

    def uncount(self, lease: Lease, core: Session, idle_for: float) -> None:
        """It does not count."""
        self._fleet.finish(self._seconds(), lease.container, core, idle_for)
        self._follow_up()

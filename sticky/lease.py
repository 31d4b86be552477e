"""A lease: one request of a session in flight, held by somebody. Knows the fleet only through the one call that gives it back."""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from sticky.core.session import Session
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.isticky import Address, ILease, ILeaseHolder


@implementer(ILease)
class Lease:
    """See `ILease`. Made for each request, so it is small and has no Deferred in it."""

    __slots__ = ("_core", "_finish", "_holder", "address", "container", "session")

    def __init__(
        self,
        core: Session,
        container: ContainerId,
        address: Address,
        holder: ILeaseHolder,
        finish: Callable[[Lease, Session], None],
    ) -> None:
        self.session: SessionId = core.id
        self.container: ContainerId = container
        self.address: Address = address
        self._core: Session | None = core
        self._holder = holder
        self._finish = finish

    def release(self) -> None:
        """See `ILease`."""
        core = self._core
        if core is not None:
            self._core = None
            self._finish(self, core)

    def transfer(self, holder: ILeaseHolder) -> None:
        """See `ILease`."""
        self._holder = holder

    def revoke(self, reason: EndReason, detail: str | None) -> None:
        """The session has ended: the lease is void, its holder is told. A no-op on one that was released."""
        if self._core is not None:
            self._core = None
            self._holder.session_ended(reason, detail)

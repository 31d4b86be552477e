"""Remembers how containers ended: stands between a Server and its backend and passes everything on. Must not know why.

What a backend reports at a container's end is said once, to the service; an operator asks later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from sticky.core.values import ContainerId, ServerName
from sticky.iinspection import EndedContainer
from sticky.isticky import (
    Address,
    ContainerSpec,
    Exit,
    IContainer,
    IContainerBackend,
    IContainerListener,
    ISnapshotBackend,
    Snapshot,
)

KEPT = 20  #: ended containers that are remembered for each Server

#: (status, signal) of an end that nobody needs to look at: done, asked by us, or a stranger's that an earlier daemon left.
_QUIET = ((0, None), (None, 15), (None, None))

#: What the end of a container is called that had to go for what it did not do, and how that is said.
CALLED = {
    "startup_timeout": "was not ready within startup_timeout",
    "unhealthy": "did not answer any more",
}


class Endings:
    """The latest ends of containers, by Server."""

    def __init__(self, clock: IReactorTime, kept: int = KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._ended: dict[ServerName, deque[tuple[float, ContainerId, Exit]]] = {}
        self._called: dict[ContainerId, str] = {}

    def call(self, container: ContainerId, detail: str) -> None:
        """It is about to be made to end: that is what its end will be called. `detail`: one of `CALLED`."""
        self._called[container] = detail

    def note(self, server: ServerName, container: ContainerId, exit: Exit) -> Exit:
        """One more has ended. Returns its end as it is to be called."""
        detail = self._called.pop(container, None)
        if detail is not None and exit.detail in ("exited", "killed"):  # else its backend knows better why
            exit = attrs.evolve(exit, detail=detail, message=f"{CALLED[detail]}; {exit.message}")
        ended = self._ended.setdefault(server, deque(maxlen=self._kept))
        ended.appendleft((self._clock.seconds(), container, exit))
        return exit

    def of(self, server: ServerName) -> tuple[EndedContainer, ...]:
        """Those of a Server, newest first."""
        now = self._clock.seconds()
        return tuple(
            EndedContainer(container, server, now - at, failed(exit), exit)
            for at, container, exit in self._ended.get(server, ())
        )


def failed(exit: Exit) -> bool:
    """Whether an operator should look at this end."""
    return exit.detail in ("failed", "startup_timeout", "unhealthy", "out_of_memory") or (
        (exit.status, exit.signal) not in _QUIET
    )


@implementer(IContainerBackend, ISnapshotBackend)
class Witness:
    """A backend like the one it is given, whose containers' ends are noted."""

    def __init__(self, backend: IContainerBackend, endings: Endings) -> None:
        self.name = backend.name
        self._backend = backend
        self._endings = endings

    def spawn(self, spec: ContainerSpec, listener: object) -> IContainer:
        """See `IContainerBackend`."""
        return self._backend.spawn(spec, _Listener(spec.server, IContainerListener(listener), self._endings))

    def warm(self, spec: ContainerSpec) -> None:
        """See `ISnapshotBackend`."""
        if ISnapshotBackend.providedBy(self._backend):
            self._backend.warm(spec)

    def cool(self, server: ServerName) -> None:
        """See `ISnapshotBackend`."""
        if ISnapshotBackend.providedBy(self._backend):
            self._backend.cool(server)

    def snapshot(self, server: ServerName) -> Snapshot | None:
        """See `ISnapshotBackend`."""
        if not ISnapshotBackend.providedBy(self._backend):
            return None
        found: Snapshot | None = self._backend.snapshot(server)
        return found

    def adopt(
        self, spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: IContainerListener
    ) -> IContainer | None:
        """See `IContainerBackend`."""
        return self._backend.adopt(spec, place, address, _Listener(spec.server, listener, self._endings))

    def orphans(self, known: Collection[ContainerId]) -> Collection[ContainerId]:
        """See `IContainerBackend`."""
        return self._backend.orphans(known)

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend`."""
        return self._backend.stop()


@implementer(IContainerListener)
@attrs.frozen(eq=False)
class _Listener:
    server: ServerName
    listener: IContainerListener
    endings: Endings

    def ready(self, container: ContainerId, address: Address) -> None:
        """See `IContainerListener`."""
        self.listener.ready(container, address)

    def exited(self, container: ContainerId, exit: Exit) -> None:
        """See `IContainerListener`."""
        self.listener.exited(container, self.endings.note(self.server, container, exit))

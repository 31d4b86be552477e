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

from sticky.core.values import ContainerId, ServerName, StopCause
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
    StopCause.STARTUP_TIMEOUT.value: "was not ready within startup_timeout",
    "unhealthy": "did not answer any more",
}
#: Why others had to go. Their end is called what it is.
STOPPED = {
    StopCause.SCALED_DOWN.value: "scaled down, nobody needed it",
    StopCause.SPENT.value: "its one session is over",
    StopCause.TOO_OLD.value: "too old (container_max_age)",
    StopCause.REPLACED.value: "replaced by a newer deployment",
    StopCause.REMOVED.value: "its Server was removed",
    StopCause.ASKED.value: "an operator stopped it",
    StopCause.DAEMON_STOPS.value: "the daemon stops",
    "earlier_daemon": "an earlier daemon had begun to stop it",
}


class Endings:
    """The latest ends of containers, by Server."""

    def __init__(self, clock: IReactorTime, kept: int = KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._ended: dict[ServerName, deque[tuple[float, ContainerId, Exit]]] = {}
        self._called: dict[ContainerId, tuple[str, str]] = {}

    def call(self, container: ContainerId, cause: str, more: str = "") -> None:
        """It is about to be made to end, and will be heard of: that is why. `cause`: one of `CALLED` or `STOPPED`, of which the
        first counts. `more`: what there is to say besides.
        """
        self._called.setdefault(container, (cause, more))

    def note(self, server: ServerName, container: ContainerId, exit: Exit) -> Exit:
        """One more has ended. Returns its end as it is to be called."""
        cause, more = self._called.pop(container, ("", ""))
        if cause and exit.detail in ("exited", "killed"):  # else its backend knows better why
            said = f"{CALLED.get(cause) or STOPPED[cause]}{more and f': {more}'}"
            exit = attrs.evolve(
                exit, detail=cause if cause in CALLED else exit.detail, message=f"{said}; {exit.message}"
            )
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

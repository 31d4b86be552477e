"""What each deployment of one Server runs, for as long as containers of it are there: a backend like any other.

Old containers keep the definition that they were started with, new ones have the newest. Knows no rule about when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from sticky.config.settings import ServerSettings
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import (
    Address,
    ContainerSpec,
    IContainer,
    IContainerBackend,
    IContainerListener,
    ISnapshotBackend,
    Snapshot,
)


@attrs.frozen(eq=False)
class Definition:
    """One deployment. `settings` of those that are live may be out of date; `spec` holds what its containers run."""

    deployment: DeploymentId
    settings: ServerSettings = attrs.field(repr=False)
    backend: IContainerBackend = attrs.field(repr=False)
    spec: Callable[[ContainerId, DeploymentId], ContainerSpec] = attrs.field(repr=False)


@implementer(IContainerBackend, ISnapshotBackend)
class Deployments:
    """The definitions of one Server by deployment. A deployment that nobody knows any more is taken for the newest.

    `backends`: any backend by its name, for containers that an earlier daemon ran with another one; None: not to be had.
    """

    log = Logger()

    def __init__(self, newest: Definition, backends: Callable[[str], IContainerBackend | None]) -> None:
        self.newest = newest
        self._backends = backends
        self._known = {newest.deployment: newest}

    def bring(self, newest: Definition, alive: Collection[DeploymentId]) -> None:
        """This is the newest from now on. Forgets those that are not `alive`: no container of theirs is left."""
        self.newest = newest
        kept = {name: known for name, known in self._known.items() if name in alive}
        self._known = {**kept, newest.deployment: newest}

    def of(self, deployment: DeploymentId) -> Definition:
        """Its definition."""
        return self._known.get(deployment, self.newest)

    def spec(self, container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
        """What to run for a container."""
        return self.of(deployment).spec(container, deployment)

    # --- IContainerBackend

    @property
    def name(self) -> str:
        """See `IContainerBackend`."""
        return self.newest.backend.name

    def spawn(self, spec: ContainerSpec, listener: object) -> IContainer:
        """See `IContainerBackend`."""
        return self.of(spec.deployment).backend.spawn(spec, listener)

    def warm(self, spec: ContainerSpec) -> None:
        """See `ISnapshotBackend`."""
        backend = self.of(spec.deployment).backend
        for known in self._known.values():
            if known.backend is not backend and ISnapshotBackend.providedBy(known.backend):
                known.backend.cool(spec.server)
        if ISnapshotBackend.providedBy(backend):
            backend.warm(spec)

    def cool(self, server: ServerName) -> None:
        """See `ISnapshotBackend`."""
        for known in self._known.values():
            if ISnapshotBackend.providedBy(known.backend):
                known.backend.cool(server)

    def snapshot(self, server: ServerName) -> Snapshot | None:
        """See `ISnapshotBackend`."""
        backend = self.newest.backend
        if not ISnapshotBackend.providedBy(backend):
            return None
        found: Snapshot | None = backend.snapshot(server)
        return found

    def adopt(
        self, spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: IContainerListener
    ) -> IContainer | None:
        """See `IContainerBackend`."""
        backend: IContainerBackend | None = self.of(spec.deployment).backend
        if backend is not None and spec.backend not in ("", backend.name):
            backend = self._backends(spec.backend)
        if backend is None:
            self.log.error(
                "container {container} cannot be taken over: there is no backend {backend} any more",
                container=spec.container,
                backend=spec.backend,
            )
            return None
        return backend.adopt(spec, place, address, listener)

    def orphans(self, known: Collection[ContainerId]) -> Collection[ContainerId]:
        """Nothing: backends are shared by Servers, and asked by the daemon."""
        return ()

    def stop(self) -> Deferred[None]:
        """Nothing, for the same reason."""
        return succeed(None)

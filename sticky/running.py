"""The containers of one Server that run, or are about to: carries out what the core asks and tells it what became of it.

Knows the backend, the journal and addresses; knows no session and no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.core.container import ContainerState
from sticky.core.effects import SpawnContainer
from sticky.core.events import ContainerExited, ContainerReady
from sticky.core.memory import Memory
from sticky.core.values import ContainerId, DeploymentId, ServerName
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
from sticky.journal.places import address_in, as_spawned, found_by, place_of
from sticky.journal.store import Placed, Unplaced
from sticky.journal.writer import Journal
from sticky.witness import failed


@implementer(IContainerListener)
class Running:
    """See the module. `spec` says what to run for a container of a deployment.

    `happened` takes the facts, `storage_failed` that a container cannot be spawned for want of a disk.
    """

    log = Logger()

    def __init__(
        self,
        server: ServerName,
        backend: IContainerBackend,
        spec: Callable[[ContainerId, DeploymentId], ContainerSpec],
        journal: Journal,
        happened: Callable[[ContainerReady | ContainerExited], None],
        storage_failed: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        self.addresses: dict[ContainerId, Address] = {}  #: of those that were ready
        self.last_failure: Exit | None = None  #: how the last one ended that an operator should look at
        self._server = server
        self._backend = backend
        self._spec = spec
        self._journal = journal
        self._happened = happened
        self._storage_failed = storage_failed
        self._intended: set[ContainerId] = set()  # to be spawned once the journal has that on disk
        self._running: dict[ContainerId, IContainer] = {}
        self._specs: dict[ContainerId, ContainerSpec] = {}  # of those that run, or are intended

    def warm(self, deployment: DeploymentId) -> None:
        """Containers of this deployment may be asked for from now on."""
        if ISnapshotBackend.providedBy(self._backend):
            self._backend.warm(self._spec(ContainerId("none"), deployment))

    def cool(self) -> None:
        """No more containers will be asked for."""
        if ISnapshotBackend.providedBy(self._backend):
            self._backend.cool(self._server)

    def snapshot(self) -> Snapshot | None:
        """What containers are forked from; None where they are not."""
        if not ISnapshotBackend.providedBy(self._backend):
            return None
        found: Snapshot | None = self._backend.snapshot(self._server)
        return found

    # --- what the core asks

    def spawn(self, effect: SpawnContainer) -> None:
        """Run a new one. Intent is durable before the deed: whatever runs is known to the next daemon."""
        try:
            spec = self._spec(effect.container, effect.deployment)
        except Exception:
            self._impossible(effect.container)
            return
        self._intended.add(effect.container)
        self._specs[effect.container] = spec
        self._note_place(effect.container)
        durable = self._journal.settled()
        durable.addCallbacks(
            lambda _: self._spawn(effect), lambda failure: self._not_durable(effect.container, failure)
        )
        durable.addErrback(self._unexpected)

    def terminate(self, container: ContainerId) -> None:
        """Ask it to end. One that has not begun never will."""
        if container in self._running:
            self._running[container].terminate()
        else:
            self._never_spawned(container)

    def lacks(self, container: ContainerId) -> str:
        """What it lacks to be ready, see `IContainer.waits_for`. Empty for one that does not run."""
        try:
            return self._running[container].waits_for() if container in self._running else ""
        except Exception:
            # A backend's own fault: what could not be said must not keep the container from being stopped.
            self.log.failure("container {container} cannot be asked what it waits for", container=container)
            return ""

    def halted(self, container: ContainerId) -> bool:
        """See `IContainer.halted`. False of one that does not run."""
        return container in self._running and self._running[container].halted()

    def has(self, container: ContainerId) -> bool:
        """Whether it runs, so that its end will be heard of."""
        return container in self._running

    def kill(self, container: ContainerId) -> None:
        """End it now. A no-op on one that is gone."""
        if container in self._running:
            self._running[container].kill()

    def kill_all(self) -> None:
        """End every one of them now."""
        for container in list(self._running.values()):
            container.kill()

    # --- across a restart

    def adopt(self, memory: Memory, places: Mapping[ContainerId, Mapping[str, Any]]) -> list[ContainerId]:
        """Take over what an earlier daemon left running; those that are gone, for whoever tells the core."""
        lost = []
        for container, box in memory.containers.items():
            place = places.get(container, {})
            # One that was starting is watched again: the report that it was ready may have been lost.
            address = None if box.state is ContainerState.STARTING else address_in(place)
            spec = as_spawned(self._spec(container, box.deployment), place)
            adopted = self._backend.adopt(spec, found_by(place), address, self)
            if adopted is None:
                self._journal.write((self._server, Unplaced(container)))
                lost.append(container)
                continue
            self._specs[container] = spec
            self.log.info("container {container} of {server} is adopted", container=container, server=self._server)
            self._running[container] = adopted
            if address is not None:
                self.addresses[container] = address
        return lost

    def places(self) -> Mapping[ContainerId, Mapping[str, Any]]:
        """Where they all are, for the journal."""
        return {container: self._place(container) for container in self._specs}

    # --- what the backend tells

    def ready(self, container: ContainerId, address: Address) -> None:
        """See `IContainerListener`."""
        self.log.info("container {container} of {server} is ready", container=container, server=self._server)
        self.addresses[container] = address
        self._note_place(container)
        self._happened(ContainerReady(container))

    def exited(self, container: ContainerId, exit: Exit) -> None:
        """See `IContainerListener`."""
        self._forget(container)
        if failed(exit):
            self.last_failure = exit
            self.log.warn(
                "container {container} of {server} ended: {message}{lines}",
                container=container,
                server=self._server,
                message=exit.message,
                lines="".join(f"\n    | {line}" for line in exit.last_lines),
            )
        else:
            self.log.info(
                "container {container} of {server} ended: {message}",
                container=container,
                server=self._server,
                message=exit.message,
            )
        self._happened(ContainerExited(container, exit.detail))
        self.addresses.pop(container, None)

    # --- inside

    def _spawn(self, effect: SpawnContainer) -> None:
        container = effect.container
        if container not in self._intended:
            return  # it was asked to end before it began
        self._intended.discard(container)
        self.log.info("container {container} of {server} starts", container=container, server=self._server)
        try:
            self._running[container] = self._backend.spawn(self._specs[container], self)
        except Exception:
            self._forget(container)
            self._impossible(container)
            return
        self._note_place(container)

    def _impossible(self, container: ContainerId) -> None:
        # A fault of ours or the backend's, not the program's: a start that failed, like any other, or the Server would wait for ever.
        self.log.failure(
            "container {container} of {server} could not be spawned", container=container, server=self._server
        )
        self._happened(ContainerExited(container, "failed"))

    def _not_durable(self, container: ContainerId, failure: Failure) -> None:
        self._never_spawned(container)
        self._storage_failed(failure)

    def _never_spawned(self, container: ContainerId) -> None:
        if container in self._intended:
            self._intended.discard(container)
            self._forget(container)
            self._happened(ContainerExited(container, "failed"))

    def _forget(self, container: ContainerId) -> None:
        self._running.pop(container, None)
        del self._specs[container]
        self._journal.write((self._server, Unplaced(container)))

    def _place(self, container: ContainerId) -> Mapping[str, Any]:
        running = self._running.get(container)
        found = {} if running is None else running.place
        return place_of(self._specs[container], found, self.addresses.get(container))

    def _note_place(self, container: ContainerId) -> None:
        self._journal.write((self._server, Placed(container, self._place(container))))

    def _unexpected(self, failure: Failure) -> None:
        self.log.failure("a container could not be spawned", failure)

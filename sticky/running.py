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
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerBackend, IContainerListener
from sticky.journal.places import address_in, found_by, place_of
from sticky.journal.store import Placed, Unplaced
from sticky.journal.writer import Journal
from sticky.witness import failed


@implementer(IContainerListener)
class Running:
    """See the module. `happened` takes the facts; `spec` says what to run for a container of a deployment."""

    log = Logger()

    def __init__(
        self,
        server: ServerName,
        backend: IContainerBackend,
        spec: Callable[[ContainerId, DeploymentId], ContainerSpec],
        journal: Journal,
        happened: Callable[[ContainerReady | ContainerExited], None],
    ) -> None:
        self.addresses: dict[ContainerId, Address] = {}  #: of those that were ready
        self._server = server
        self._backend = backend
        self._spec = spec
        self._journal = journal
        self._happened = happened
        self._intended: set[ContainerId] = set()  # to be spawned once the journal has that on disk
        self._running: dict[ContainerId, IContainer] = {}

    # --- what the core asks

    def spawn(self, effect: SpawnContainer) -> None:
        """Run a new one. Intent is durable before the deed: whatever runs is known to the next daemon."""
        self._intended.add(effect.container)
        durable = self._journal.settled()
        durable.addCallbacks(lambda _: self._spawn(effect), lambda _: self._never_spawned(effect.container))
        durable.addErrback(self._unexpected)

    def terminate(self, container: ContainerId) -> None:
        """Ask it to end. One that has not begun never will."""
        if container in self._running:
            self._running[container].terminate()
        else:
            self._never_spawned(container)

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
            adopted = self._backend.adopt(self._spec(container, box.deployment), found_by(place), address, self)
            if adopted is None:
                lost.append(container)
                continue
            self.log.info("container {container} of {server} is adopted", container=container, server=self._server)
            self._running[container] = adopted
            if address is not None:
                self.addresses[container] = address
        return lost

    def places(self) -> Mapping[ContainerId, Mapping[str, Any]]:
        """Where they all are, for the journal."""
        return {
            container: place_of(running.place, self.addresses.get(container))
            for container, running in self._running.items()
        }

    # --- what the backend tells

    def ready(self, container: ContainerId, address: Address) -> None:
        """See `IContainerListener`."""
        self.log.info("container {container} of {server} is ready", container=container, server=self._server)
        self.addresses[container] = address
        self._note_place(container)
        self._happened(ContainerReady(container))

    def exited(self, container: ContainerId, exit: Exit) -> None:
        """See `IContainerListener`."""
        self._running.pop(container, None)
        self._journal.write((self._server, Unplaced(container)))
        if failed(exit):
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
            self._running[container] = self._backend.spawn(self._spec(container, effect.deployment), self)
        except Exception:
            # A backend's own fault, not the program's: a start that failed, like any other, or the Server would wait for ever.
            self.log.failure(
                "container {container} of {server} could not be spawned", container=container, server=self._server
            )
            self._happened(ContainerExited(container, "failed"))
            return
        self._note_place(container)

    def _never_spawned(self, container: ContainerId) -> None:
        if container in self._intended:
            self._intended.discard(container)
            self._happened(ContainerExited(container, "failed"))

    def _note_place(self, container: ContainerId) -> None:
        place = place_of(self._running[container].place, self.addresses.get(container))
        self._journal.write((self._server, Placed(container, place)))

    def _unexpected(self, failure: Failure) -> None:
        self.log.failure("a container could not be spawned", failure)

"""The "docker" backend: each container on the Engine that its Server's options name. Must not know sessions.

Containers on an Engine outlive this process by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from zope.interface import implementer

from sticky.containers import logs
from sticky.containers.docker import recipe
from sticky.containers.docker.blocking import ask
from sticky.containers.docker.container import DockerContainer
from sticky.containers.docker.dock import Dock, Found, IDockReactor
from sticky.containers.docker.engine import Engine
from sticky.containers.docker.faults import EngineError, EngineRefused
from sticky.containers.docker.output import Copying
from sticky.containers.docker.recipe import DockerOptions
from sticky.containers.docker.verdicts import running
from sticky.containers.ports import Ports
from sticky.core.values import ContainerId
from sticky.errors import IllegalEvent
from sticky.isticky import (
    Address,
    ContainerSpec,
    Exit,
    IContainer,
    IContainerBackend,
    IContainerListener,
    IPreparedBackend,
)


@implementer(IContainerBackend, IPreparedBackend)
class DockerBackend:
    """Runs each container on a Docker Engine or Podman of this machine.

    `realm`: the mark of the state directory, on everything we create: by it a later daemon finds its own again, and two
    daemons on one Engine leave each other alone. `die_with_daemon`: nothing is left for a later one (after a crash the next
    daemon removes it). `ports`: where containers are reached on 127.0.0.1. `log_limit`: bytes a log file may hold.
    `logs_kept`: logs of ended containers that stay, for each Server. `wall`: Unix time. `ask`: as `blocking.ask`.
    """

    name = "docker"

    def __init__(
        self,
        reactor: IDockReactor,
        *,
        realm: str = "",
        die_with_daemon: bool = False,
        ports: Ports | None = None,
        log_limit: int = logs.LIMIT,
        logs_kept: int = logs.KEPT,
        wall: Callable[[], float] = time.time,
        ask: Callable[[str, str, Mapping[str, str]], Any] = ask,
    ) -> None:
        self._reactor = reactor
        self._realm = realm
        self._die_with_daemon = die_with_daemon
        self._ports = Ports() if ports is None else ports
        self._log_limit = log_limit
        self._logs_kept = logs_kept
        self._wall = wall
        self._ask = ask
        self._docks: dict[str, Dock] = {}
        self._sweeping = False
        self._log = Logger(namespace="sticky.containers")

    # --- before the first container

    def prepare(self, options: Sequence[Mapping[str, object]]) -> None:
        """See `IPreparedBackend`: which Engines there are."""
        for one in options:
            try:
                self._dock(DockerOptions.read(one).socket)
            except ValueError as error:
                self._log.warn("A Server's docker options: {problem}", problem=str(error))

    def adopt(
        self, spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: object
    ) -> IContainer | None:
        """See `IContainerBackend.adopt`. Asks the Engine and waits for its answer; where none comes the container is taken
        for alive, and looked at when the Engine is back.

        Its output is copied from this moment on.
        """
        try:
            options = DockerOptions.read(spec.options)
        except ValueError as error:
            self._log.warn("Container {container} is lost: {problem}", container=spec.container, problem=str(error))
            return None
        socket = place.get("socket")
        if isinstance(socket, str):
            options = attrs.evolve(options, socket=socket)
        dock = self._dock(options.socket)
        name = recipe.name(spec.container)
        if place.get("name") != name:
            dock.remove(name)
            return None
        try:
            if not running(self._ask(options.socket, f"/containers/{name}/json", {})["State"]):
                dock.remove(name)
                return None
        except EngineRefused as error:
            if error.not_found:
                return None
        except (EngineError, KeyError, TypeError) as error:
            self._log.warn("Container {container}: {problem}", container=spec.container, problem=str(error))
        container = self._new(spec, options, listener)
        container.take_up(address, self._wall())
        return container

    def orphans(self, known: Collection[ContainerId]) -> Collection[ContainerId]:
        """See `IContainerBackend.orphans`. On an Engine that does not answer they are removed, and logged, once it does."""
        self._sweeping = True
        found: set[ContainerId] = set()
        for dock in self._docks.values():
            dock.kept, dock.sweeping = frozenset(known), True
            dock.open()
            try:
                listed = dock.inventory_now(self._ask)
            except EngineError as error:
                self._log.warn("Containers of an earlier daemon are not known yet: {problem}", problem=str(error))
                continue
            found |= dock.sweep(listed)
        return frozenset(found)

    async def inventory(self) -> Sequence[Found]:
        """What the Engines that we know have of ours, running or not. Raises `EngineError` where one does not answer."""
        return [found for dock in self._docks.values() for found in await dock.inventory()]

    # --- IContainerBackend

    def spawn(self, spec: ContainerSpec, listener: object) -> IContainer:
        """See `IContainerBackend.spawn`. Raises `IllegalEvent` for an id that runs already."""
        try:
            options = DockerOptions.read(spec.options)
        except ValueError as error:
            return _Stillborn(spec, IContainerListener(listener), self._reactor, str(error))
        container = self._new(spec, options, listener)
        self._reactor.callLater(0, container.begin)
        return container

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend.stop`. What still runs goes on without us; the removal of what ended may take some seconds."""
        docks, self._docks = self._docks, {}
        if self._die_with_daemon:
            for dock in docks.values():
                dock.remove_all()
        if not docks:
            return succeed(None)
        return DeferredList([dock.close() for dock in docks.values()]).addCallback(lambda _: None)

    # --- inside

    def _new(self, spec: ContainerSpec, options: DockerOptions, listener: object) -> DockerContainer:
        dock = self._dock(options.socket)
        if spec.container in dock.containers:
            raise IllegalEvent(f"container {spec.container} runs already")
        container = DockerContainer(spec, options, IContainerListener(listener), dock)
        dock.add(container)
        dock.open()
        return container

    def _dock(self, socket: str) -> Dock:
        dock = self._docks.get(socket)
        if dock is None:
            engine = Engine(self._reactor, socket)
            dock = Dock(self._reactor, engine, self._realm, self._ports, self._copying, self._forgotten)
            dock.sweeping = self._sweeping
            self._docks[socket] = dock
        return dock

    def _copying(self, engine: Engine, spec: ContainerSpec) -> Copying:
        return Copying(self._reactor, self._wall, engine, spec, self._log_limit)

    def _forgotten(self, container: DockerContainer) -> None:
        spec = container.spec
        if spec.log == logs.log_path(spec.log.parent, spec.server, spec.container):
            live = {one.spec.log for dock in self._docks.values() for one in dock.containers.values()}
            logs.prune(spec.log.parent, spec.server, live, self._logs_kept)


@implementer(IContainer)
class _Stillborn:
    """A container whose options are wrong: it only ever tells that."""

    def __init__(self, spec: ContainerSpec, listener: IContainerListener, reactor: IDockReactor, problem: str) -> None:
        self.id = spec.container
        self.place: Mapping[str, object] = {}
        reactor.callLater(0, listener.exited, spec.container, Exit("failed", None, None, (), problem))

    def waits_for(self) -> str:
        """See `IContainer`."""
        return ""

    def halted(self) -> bool:
        """See `IContainer`."""
        return False

    def terminate(self) -> None:
        """See `IContainer`."""

    def kill(self) -> None:
        """See `IContainer`."""

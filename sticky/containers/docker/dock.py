"""One Engine and our containers on it: events to them, leftovers away, ports and removals. Must not know what a Server is.

Whenever the event stream opens (the first time, and after the Engine was away) the Engine's list is compared with what we
know: each container of ours is given notice, and what carries our label but nobody knows is removed, such as containers whose
creation was answered to nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from sticky.containers import endings
from sticky.containers.docker import recipe
from sticky.containers.docker.container import DockerContainer
from sticky.containers.docker.engine import Engine, IEngineReactor
from sticky.containers.docker.events import Events
from sticky.containers.docker.faults import EngineError, EngineRefused
from sticky.containers.docker.frames import Lines, Torn
from sticky.containers.docker.output import Copying
from sticky.containers.docker.recipe import DockerOptions, Network
from sticky.containers.docker.watching import LOOPBACK
from sticky.containers.knocking import IProbeReactor
from sticky.containers.ports import Ports
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, TCPAddress

PULL_TIMEOUT = 1800.0  #: seconds
REMOVE_TIMEOUT = 60.0
LAST_WORKS = 5.0  #: seconds that launches and removals may still take when we stop
LOOK_AGAIN = 1.0  #: seconds after a list that could not be had
#: Events after which a container is looked at. Podman says some of them in its own words.
_TELLING = frozenset({"die", "died", "stop", "destroy", "remove", "oom", "pause", "unpause"})


class IDockReactor(IEngineReactor, IProbeReactor):
    """What containers on an Engine need from a reactor."""


@attrs.frozen
class Found:
    """A container of ours that the Engine has."""

    container: ContainerId
    server: ServerName
    deployment: DeploymentId
    socket: str  #: the Engine's
    engine_id: str
    state: str  #: "created", "running", "exited", ... as the Engine says it
    address: Address | None  #: where it would answer


class Dock:
    """One Engine. `label`: our state directory's, on everything we create."""

    def __init__(
        self,
        reactor: IDockReactor,
        engine: Engine,
        label: str,
        ports: Ports,
        copying: Callable[[Engine, ContainerSpec], Copying],
        forgotten: Callable[[DockerContainer], object],
    ) -> None:
        self.reactor = reactor
        self.engine = engine
        self.label = label
        self.kept: frozenset[ContainerId] = frozenset()  #: what somebody else knows
        self.sweeping = False  #: whether what nobody knows is a leftover: not before all that can be were adopted
        self.containers: dict[ContainerId, DockerContainer] = {}
        self._ports = ports
        self._copying = copying
        self._forgotten = forgotten
        self._fixed: dict[int, ContainerId] = {}  # ports of the machine that programs insist on
        self._patient: set[Deferred[None]] = set()  # removals and launches: a stop waits for them a little
        self._works: set[Deferred[None]] = set()
        self._pulls: dict[str, list[Deferred[bool]]] = {}
        self._closed = False
        self._timer: IDelayedCall | None = None
        self._events = Events(reactor, engine, f"{recipe.HOME}={label}", self._opened, self._heard)
        self._log = Logger(namespace="sticky.containers")

    def open(self) -> None:
        """Listen to the Engine from now on. Again: nothing happens."""
        self._events.start()

    def close(self) -> Deferred[None]:
        """Listen no more; fires when what is under way is done, or its time is up. Containers that run go on."""
        self._closed = True
        self._events.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for container in list(self.containers.values()):
            container.leave()
        for work in list(self._works):
            work.cancel()
        rest = [*self._works, *self._patient]
        if not rest:
            return succeed(None)
        late = self.reactor.callLater(LAST_WORKS, self._lose_patience)

        def over(_: object) -> None:
            if late.active():
                late.cancel()

        return DeferredList(rest).addCallback(over)

    def add(self, container: DockerContainer) -> None:
        """One more container lies here."""
        self.containers[container.id] = container

    async def inventory(self) -> Sequence[Found]:
        """All containers of ours, running or not. Raises `EngineError`."""
        return self._found(await self.engine.request("GET", "/containers/json", self._ours()))

    def inventory_now(self, ask: Callable[[str, str, Mapping[str, str]], Any]) -> Sequence[Found]:
        """The same, at once, by `blocking.ask` or its like. Raises `EngineError`."""
        return self._found(ask(self.engine.socket, "/containers/json", self._ours()))

    def sweep(self, found: Sequence[Found]) -> frozenset[ContainerId]:
        """Remove those of an inventory that nobody knows; which they are."""
        left = [one for one in found if one.container not in self.containers and one.container not in self.kept]
        for one in left:
            self._log.info(
                "Removing container {container} of Server {server}, which an earlier daemon left",
                container=one.container,
                server=one.server,
            )
            self.remove(one.engine_id)
        return frozenset(one.container for one in left)

    # --- what containers ask

    def copying(self, spec: ContainerSpec) -> Copying:
        return self._copying(self.engine, spec)

    def acquire_port(self, spec: ContainerSpec, options: DockerOptions) -> int:
        """A port on 127.0.0.1. Raises `NoFreePort`, or ValueError for a second copy of what insists on one."""
        fixed = spec.port if options.network is Network.HOST else None
        if fixed is None:
            return self._ports.acquire()
        holder = self._fixed.get(fixed)
        if holder is not None:
            raise ValueError(endings.only_one_copy(spec, fixed, holder))
        self._fixed[fixed] = spec.container
        return fixed

    def release_port(self, port: int) -> None:
        self._fixed.pop(port, None)
        self._ports.release(port)

    def work(self, under_way: Deferred[None], *, patient: bool = False) -> None:
        """Something that is done for a container. When we stop it is cancelled; `patient`: only after some seconds."""
        works = self._patient if patient else self._works
        works.add(under_way)

        def done(_: object) -> None:
            works.discard(under_way)

        under_way.addBoth(done)

    def gone(self, container: DockerContainer) -> None:
        """It has told its end."""
        self.containers.pop(container.id, None)
        if container.port is not None:
            self.release_port(container.port)
        self._forgotten(container)

    def remove(self, engine_id: str) -> None:
        """Have the Engine forget it (an id or a name), in the background; it is killed if it still runs.

        Once we stop this is left to the next daemon.
        """
        if not self._closed:
            self.work(Deferred.fromCoroutine(self._remove(engine_id)), patient=True)

    def remove_all(self) -> None:
        """Have the Engine kill and forget everything that lies here."""
        for container in self.containers.values():
            if container.engine_id is not None:
                self.remove(container.engine_id)

    async def pull(self, image: str) -> None:
        """Bring an image. However many containers wait for it, it is asked for once. Raises `EngineError`."""
        while image in self._pulls:
            waiting: Deferred[bool] = Deferred()
            self._pulls[image].append(waiting)
            if await waiting:
                return
            # Whoever asked for it was stopped meanwhile: nothing is known of the image, so one of us asks again.
        self._pulls[image] = []
        outcome: bool | EngineError = False
        try:
            await self._pull(image)
            outcome = True
        except EngineError as error:
            outcome = error
            raise
        finally:
            for one in self._pulls.pop(image):
                if isinstance(outcome, EngineError):
                    one.errback(outcome)
                else:
                    one.callback(outcome)

    # --- inside

    def _ours(self) -> Mapping[str, str]:
        return {"all": "1", "filters": json.dumps({"label": [f"{recipe.HOME}={self.label}"]})}

    def _found(self, listed: object) -> Sequence[Found]:
        found = []
        for one in listed if isinstance(listed, list) else ():
            labels = one.get("Labels") if isinstance(one, Mapping) else None
            if not isinstance(labels, Mapping) or recipe.CONTAINER not in labels:
                continue
            port = recipe.port_of(labels)
            found.append(
                Found(
                    ContainerId(labels[recipe.CONTAINER]),
                    ServerName(labels.get(recipe.SERVER, "")),
                    DeploymentId(labels.get(recipe.DEPLOYMENT, "")),
                    self.engine.socket,
                    str(one.get("Id")),
                    str(one.get("State", "")).lower(),
                    None if port is None else TCPAddress(LOOPBACK, port),
                )
            )
        return found

    async def _pull(self, image: str) -> None:
        self._log.info("Pulling the image {image}", image=image)
        params = recipe.pull_parameters(image)
        answer = await self.engine.raw("POST", "/images/create", params, PULL_TIMEOUT)
        try:
            progress = Lines().feed(answer if answer.endswith(b"\n") else answer + b"\n")
        except Torn:
            progress = []
        for line in progress:
            if "error" in line:
                raise EngineRefused(500, f"cannot pull {image}: {line['error']}")

    async def _remove(self, engine_id: str) -> None:
        params = {"force": "1", "v": "1"}
        try:
            await self.engine.request("DELETE", f"/containers/{engine_id}", params, timeout=REMOVE_TIMEOUT)
        except EngineRefused as error:
            if not error.not_found and error.status != 409:  # gone already, or going
                self._log.warn("Container {id} stays behind: {problem}", id=engine_id[:12], problem=str(error))
        except EngineError as error:
            self._log.warn(
                "Container {id} is removed when the engine is back: {problem}", id=engine_id[:12], problem=str(error)
            )

    def _lose_patience(self) -> None:
        for work in list(self._patient):
            work.cancel()

    def _heard(self, action: str, engine_id: str, attributes: Mapping[str, Any]) -> None:
        if action not in _TELLING:
            return
        container = self.containers.get(attributes.get(recipe.CONTAINER, ""))
        if container is None:
            container = next((one for one in self.containers.values() if one.engine_id == engine_id), None)
        if container is not None:
            status = str(attributes.get("exitCode", attributes.get("containerExitCode", "")))
            ended = action in ("die", "died") and status.isdecimal()
            container.notice(int(status) if ended else None)

    def _opened(self) -> None:
        if self._timer is None:
            self.work(
                Deferred.fromCoroutine(self._compare()).addErrback(
                    lambda failure: self._log.failure("Comparing with the engine's list", failure)
                )
            )

    def _compare_later(self) -> None:
        self._timer = None
        self._opened()

    async def _compare(self) -> None:
        try:
            listed = await self.inventory()
        except EngineError as error:
            self._log.warn("The engine's list cannot be had: {problem}", problem=str(error))
            if self._events.running and self._timer is None:
                self._timer = self.reactor.callLater(LOOK_AGAIN, self._compare_later)
            return
        if self.sweeping:
            self.sweep(listed)
        for container in list(self.containers.values()):
            container.insist()
            container.notice()

"""Containers that exist only in memory: the verified fake for tests of whatever drives a backend. Must not start anything.

It passes the same conformance suite as the real backends. A test, or the backend's `program`, says what a container does.
Containers live on a `Machine`: a second backend on it is the next daemon, which can adopt what a `crash` of the first left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from sticky.core.values import ContainerId
from sticky.errors import IllegalEvent
from sticky.isticky import (
    Address,
    ContainerSpec,
    Exit,
    IContainer,
    IContainerBackend,
    IContainerListener,
    TCPAddress,
)

_FIRST_PORT = 20_000
_SIGTERM, _SIGKILL = 15, 9


class State(Enum):
    STARTING = "starting"  # spawned
    READY = "ready"  # said so to the listener
    ENDING = "ending"  # its end is decided, the listener hears of it in a moment
    GONE = "gone"  # said so to the listener


TRANSITIONS = {
    State.STARTING: frozenset({State.READY, State.ENDING}),
    State.READY: frozenset({State.ENDING}),
    State.ENDING: frozenset({State.GONE}),
    State.GONE: frozenset[State](),
}


@implementer(IContainer)
class MemoryContainer:
    """A container that a test plays. `signals` are the requests it got while it was there, in order: "TERM", "KILL"."""

    def __init__(self, backend: MemoryBackend, spec: ContainerSpec, listener: IContainerListener, port: int) -> None:
        self.id = spec.container
        self.spec = spec
        self.address: Address = TCPAddress(spec.host, port)
        self.state = State.STARTING
        self.signals: list[str] = []
        self.ignores_term = False
        self._backend: MemoryBackend | None = backend
        self._listener: IContainerListener | None = listener
        self._clock = backend.clock
        self._machine = backend.machine
        self._port = port
        self._place: Mapping[str, object] = {"number": port}

    @property
    def place(self) -> Mapping[str, object]:
        """See `IContainer`."""
        return self._place

    def waits_for(self) -> str:
        """See `IContainer`."""
        return f"nothing of it listens on port {self._port}" if self.state is State.STARTING else ""

    def halted(self) -> bool:
        """See `IContainer`."""
        return False

    def make_ready(self, address: Address | None = None) -> None:
        """It answers, on its own address if none is given. The listener hears of it at once, if there is one."""
        self._go(State.READY)
        if address is not None:
            self.address = address
        if self._listener is not None:
            self._listener.ready(self.id, self.address)

    def make_exit(
        self,
        detail: str = "exited",
        status: int | None = 0,
        signal: int | None = None,
        message: str = "",
        last_lines: tuple[str, ...] = (),
    ) -> None:
        """It ends by itself. The listener hears of it at once, if there is one."""
        self._go(State.ENDING)
        self._gone(Exit(detail, status, signal, last_lines, message or f"{detail} with status {status}"))

    def terminate(self) -> None:
        """See `IContainer`. It ends in a moment, unless it `ignores_term`."""
        self._signalled("TERM", _SIGTERM, obeyed=not self.ignores_term)

    def kill(self) -> None:
        """See `IContainer`."""
        self._signalled("KILL", _SIGKILL, obeyed=True)

    def end_soon(self, outcome: Exit) -> None:
        """Its end is decided now; the listener hears of it in the reactor's next turn."""
        self._go(State.ENDING)
        self._clock.callLater(0, self._gone, outcome)

    def refuse(self, problem: str) -> None:
        """It never runs; the listener hears of it in the reactor's next turn."""
        self._place = {}
        self.end_soon(Exit("failed", None, None, (), problem))

    def leave(self) -> None:
        """Its daemon died: it goes on, and nobody hears of it."""
        self._backend = self._listener = None

    def join(self, backend: MemoryBackend, listener: IContainerListener, known_ready: bool) -> None:
        """The next daemon takes it over."""
        self._backend, self._listener = backend, listener
        if self.state is State.READY and not known_ready:
            self._clock.callLater(0, self._say_ready, listener)

    def _say_ready(self, listener: IContainerListener) -> None:
        if self.state is State.READY and self._listener is listener:
            listener.ready(self.id, self.address)

    def _signalled(self, name: str, number: int, obeyed: bool) -> None:
        if self.state not in (State.STARTING, State.READY):
            return
        self.signals.append(name)
        if obeyed:
            self.end_soon(Exit("killed", None, number, (), f"ended by SIG{name}"))

    def _gone(self, outcome: Exit) -> None:
        self._go(State.GONE)
        self._machine.containers.pop(self.id, None)
        if self._backend is not None:
            self._backend.containers.pop(self.id, None)
        if self._listener is not None:
            self._listener.exited(self.id, outcome)

    def _go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalEvent(f"container {self.id} is {self.state.value}, it cannot be {state.value}")
        self.state = state


@attrs.define(eq=False)
class Machine:
    """Where containers are, whoever looks after them."""

    containers: dict[ContainerId, MemoryContainer] = attrs.field(factory=dict)  #: those that are not gone
    started: int = 0  #: how many there ever were


@implementer(IContainerBackend)
class MemoryBackend:
    """An `IContainerBackend` in memory.

    `refusal`: while set, whatever is spawned fails with this message. `program`: called in the reactor's next turn with
    each container that was spawned meanwhile, to play it. `machine`: where containers live, its own if none is given.
    """

    name = "memory"

    def __init__(
        self,
        clock: IReactorTime,
        program: Callable[[MemoryContainer], None] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.clock = clock
        self.program = program
        self.machine = Machine() if machine is None else machine
        self.refusal: str | None = None
        self.spawned: list[MemoryContainer] = []  #: all there ever were, in order
        self.containers: dict[ContainerId, MemoryContainer] = {}  #: those that are not gone
        self.stopped = False

    def spawn(self, spec: ContainerSpec, listener: object) -> MemoryContainer:
        """See `IContainerBackend.spawn`."""
        container = MemoryContainer(self, spec, IContainerListener(listener), _FIRST_PORT + self.machine.started)
        self.machine.started += 1
        self.machine.containers[spec.container] = container
        self.spawned.append(container)
        self.containers[spec.container] = container
        if self.refusal is not None:
            container.refuse(self.refusal)
        elif self.program is not None:
            self.clock.callLater(0, self._play, self.program, container)
        return container

    def adopt(
        self, spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: IContainerListener
    ) -> MemoryContainer | None:
        """See `IContainerBackend.adopt`. Raises `IllegalEvent` for an id that this backend runs already."""
        if spec.container in self.containers:
            raise IllegalEvent(f"container {spec.container} runs already")
        container = self.machine.containers.get(spec.container)
        if container is None:
            return None
        if container.state is State.ENDING or container.place != place:
            container.kill()
            return None
        self.containers[spec.container] = container
        container.join(self, IContainerListener(listener), address is not None)
        return container

    def orphans(self, known: Collection[ContainerId]) -> frozenset[ContainerId]:
        """As `ProcessBackend.orphans`."""
        found = [
            each for each in self.machine.containers.values() if each.id not in self.containers and each.id not in known
        ]
        for container in found:
            container.kill()
        return frozenset(container.id for container in found)

    def crash(self) -> None:
        """The daemon dies: nothing is heard here any more, and its containers go on."""
        for container in self.containers.values():
            container.leave()
        self.containers.clear()

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend.stop`."""
        self.stopped = True
        return succeed(None)

    @staticmethod
    def _play(program: Callable[[MemoryContainer], None], container: MemoryContainer) -> None:
        if container.state is State.STARTING:
            program(container)

"""Containers that exist only in memory: the verified fake for tests of whatever drives a backend. Must not start anything.

It passes the same conformance suite as the real backends. A test, or the backend's `program`, says what a container does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

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
        self._backend = backend
        self._listener = listener

    def make_ready(self, address: Address | None = None) -> None:
        """It answers, on its own address if none is given. The listener hears of it at once."""
        self._go(State.READY)
        if address is not None:
            self.address = address
        self._listener.ready(self.id, self.address)

    def make_exit(
        self,
        detail: str = "exited",
        status: int | None = 0,
        signal: int | None = None,
        message: str = "",
        last_lines: tuple[str, ...] = (),
    ) -> None:
        """It ends by itself. The listener hears of it at once."""
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
        self._backend.clock.callLater(0, self._gone, outcome)

    def _signalled(self, name: str, number: int, obeyed: bool) -> None:
        if self.state not in (State.STARTING, State.READY):
            return
        self.signals.append(name)
        if obeyed:
            self.end_soon(Exit("killed", None, number, (), f"ended by SIG{name}"))

    def _gone(self, outcome: Exit) -> None:
        self._go(State.GONE)
        self._backend.containers.pop(self.id, None)
        self._listener.exited(self.id, outcome)

    def _go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalEvent(f"container {self.id} is {self.state.value}, it cannot be {state.value}")
        self.state = state


@implementer(IContainerBackend)
class MemoryBackend:
    """An `IContainerBackend` in memory.

    `refusal`: while set, whatever is spawned fails with this message. `program`: called in the reactor's next turn with
    each container that was spawned meanwhile, to play it.
    """

    name = "memory"

    def __init__(self, clock: IReactorTime, program: Callable[[MemoryContainer], None] | None = None) -> None:
        self.clock = clock
        self.program = program
        self.refusal: str | None = None
        self.spawned: list[MemoryContainer] = []  #: all there ever were, in order
        self.containers: dict[ContainerId, MemoryContainer] = {}  #: those that are not gone
        self.stopped = False

    def spawn(self, spec: ContainerSpec, listener: object) -> MemoryContainer:
        """See `IContainerBackend.spawn`."""
        container = MemoryContainer(self, spec, IContainerListener(listener), _FIRST_PORT + len(self.spawned))
        self.spawned.append(container)
        self.containers[spec.container] = container
        if self.refusal is not None:
            container.end_soon(Exit("failed", None, None, (), self.refusal))
        elif self.program is not None:
            self.clock.callLater(0, self._play, self.program, container)
        return container

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend.stop`."""
        self.stopped = True
        return succeed(None)

    @staticmethod
    def _play(program: Callable[[MemoryContainer], None], container: MemoryContainer) -> None:
        if container.state is State.STARTING:
            program(container)

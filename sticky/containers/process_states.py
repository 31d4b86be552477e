"""The states of a container that is a process, and whom it deals with: what holds it, and the household that it is one of."""

from __future__ import annotations

import signal
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from sticky.isticky import Address

if TYPE_CHECKING:
    from sticky.containers.child import Child


class State(Enum):
    STARTING = "starting"  # launched, or about to be; not ready
    READY = "ready"  # said so to the listener
    SWEEPING = "sweeping"  # the main process has exited; what is left of the container is being ended
    GONE = "gone"  # said so to the listener


class Input(Enum):
    ANSWERED = "answered"  # it is ready
    EXITED = "exited"  # the main process exited
    REFUSED = "refused"  # it could not even be launched
    SWEPT = "swept"  # nothing is left


TRANSITIONS = {
    (State.STARTING, Input.ANSWERED): State.READY,
    (State.STARTING, Input.EXITED): State.SWEEPING,
    (State.STARTING, Input.REFUSED): State.GONE,
    (State.READY, Input.EXITED): State.SWEEPING,
    (State.SWEEPING, Input.SWEPT): State.GONE,
}


class Hold(Protocol):
    """How a container holds its main process: as its parent (`Reports`), or as a stranger (`Stranger`)."""

    def running(self) -> bool: ...

    def send(self, number: signal.Signals) -> None: ...

    def close_report(self) -> None: ...

    def release(self) -> None: ...


class Household(Protocol):
    """What a child tells the backend that runs it."""

    def answered(self, child: Child, address: Address) -> None: ...

    def port_problem(self, child: Child) -> str | None: ...

    def out_of_memory(self, child: Child) -> bool: ...

    def gone(self, child: Child) -> None: ...

"""Which fork server each Server has: one for its newest deployment, started with the Server, and again when it dies. Forks nothing."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from sticky.containers import confinement
from sticky.containers.census import read
from sticky.containers.isolation import Descendants, Isolation
from sticky.containers.ownership import CONTAINER_MARK
from sticky.containers.snapshots import ForkServer, State
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec, Snapshot

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  #: seconds before one that died is started again; doubles
_PAGE = resource.getpagesize()  # bytes

#: What only a container has. Whoever reads one of them before the fork learns that there is none, and not somebody else's.
_OF_CONTAINERS = frozenset({"PORT", "STICKY_PORT", "STICKY_READY_FD", "STICKY_READY_FILE", "MODAL_TASK_ID"})


def may_fork(isolation: Isolation) -> bool:
    """Whether a forked process can be what this asks for."""
    own = isolation.network or isolation.wrapped
    return not own and isolation.descendants is not Descendants.PID_NAMESPACE


def new_mark() -> ContainerId:
    """As long as every container's id: a fork writes its own over it."""
    return ContainerId(f"ct-{secrets.token_urlsafe(16)}")


@attrs.define(eq=False)
class Seat:
    """A Server's fork server, or the lack of one: how it is started, and when another one may be."""

    deployment: DeploymentId
    start: Callable[[], ForkServer] = attrs.field(repr=False)
    env: Mapping[str, str] = attrs.field(repr=False)  #: which forks have, too
    mark: ContainerId
    server: ForkServer | None = None  #: None: it could not be started at all
    problem: str = ""  #: why that was
    pause: float = FIRST_PAUSE
    again_at: float = 0.0
    again: IDelayedCall | None = None

    @property
    def warm(self) -> bool:
        """Whether it forks."""
        return self.server is not None and self.server.state is State.WARM

    def proven(self) -> None:
        """It has forked: its next death is a first one."""
        self.pause = FIRST_PAUSE


class Seats:
    """The fork servers of one backend. `told` hears of the end of each fork: pid, exit status, signal."""

    log = Logger(namespace="sticky.containers")

    def __init__(self, reactor: Any, told: Callable[[int, int | None, int | None], None]) -> None:
        self._reactor = reactor
        self._told = told
        self._by_server: dict[ServerName, Seat] = {}

    @property
    def marks(self) -> frozenset[ContainerId]:
        """Under which the fork servers themselves run: they are nobody's strays."""
        return frozenset(seat.mark for seat in self._by_server.values())

    def take(self, spec: ContainerSpec, env: Mapping[str, str], isolation: Isolation) -> Seat | None:
        """That of the spec's deployment, with a fork server that is there, or on its way, or was tried too short a time ago.

        In place of an earlier deployment's, which is ended. None where containers like this one cannot be forked.
        """
        if not spec.snapshot or not may_fork(isolation):
            self.leave(spec.server)
            return None
        seat = self._by_server.get(spec.server)
        if seat is None or seat.deployment != spec.deployment:
            self.leave(spec.server)
            seat = self._by_server[spec.server] = self._seat(spec, env, isolation)
            self._start(spec.server, seat)
        elif (seat.server is None or seat.server.state is State.DEAD) and self._reactor.seconds() >= seat.again_at:
            self._start(spec.server, seat)
        return seat

    def of(self, spec: ContainerSpec, env: Mapping[str, str], isolation: Isolation) -> Seat | None:
        """The same for one container: that of an earlier deployment, if there still is to be one, changes nothing."""
        seat = self._by_server.get(spec.server)
        return None if seat is not None and seat.deployment != spec.deployment else self.take(spec, env, isolation)

    def leave(self, name: ServerName) -> None:
        """End a Server's fork server. Its forks go on."""
        seat = self._by_server.pop(name, None)
        if seat is None:
            return
        if seat.again is not None and seat.again.active():
            seat.again.cancel()
        if seat.server is not None:
            seat.server.end()

    def leave_all(self) -> None:
        """End all of them."""
        for name in list(self._by_server):
            self.leave(name)

    def look(self, name: ServerName) -> Snapshot | None:
        """How it is with a Server's fork server; None where it has none."""
        seat = self._by_server.get(name)
        if seat is None:
            return None
        server = seat.server
        if server is None or server.state is State.DEAD:
            return Snapshot(State.DEAD.value, None, None, seat.problem if server is None else server.problem)
        try:
            fields = read(f"/proc/{server.pid}/statm").split()
        except OSError:
            fields = []  # no descriptors left to look with
        memory = int(fields[1]) * _PAGE if len(fields) > 1 else None
        return Snapshot(server.state.value, server.pid, memory, "")

    # --- inside

    def _seat(self, spec: ContainerSpec, env: Mapping[str, str], isolation: Isolation) -> Seat:
        mark = new_mark()
        shared = {name: value for name, value in env.items() if name not in _OF_CONTAINERS}
        shared[CONTAINER_MARK] = mark
        confined = ""
        if isolation.user is not None:
            # What runs user code before the fork must be who runs it afterwards; and who is not root raises no limit.
            who = confinement.user(isolation.user)
            confined = confinement.lines(spec, Isolation(user=isolation.user, rlimits=isolation.rlimits), None, who)

        def start() -> ForkServer:
            return ForkServer(
                self._reactor,
                spec.server,
                spec.snapshot,
                shared,
                spec.log.parent / f"{spec.server}-snapshot.log",
                spec.directory,
                self._told,
                lambda: self._died(spec.server, seat),
                confined,
            )

        seat = Seat(spec.deployment, start, shared, mark)
        return seat

    def _start(self, name: ServerName, seat: Seat) -> None:
        if seat.again is not None and seat.again.active():
            seat.again.cancel()
        seat.again = None
        if seat.again_at:
            seat.pause = min(seat.pause * 2, LONGEST_PAUSE)
        try:
            seat.server = seat.start()
        except (OSError, ValueError, TypeError) as error:  # TypeError: Twisted's, for NUL in an argument
            seat.server, seat.problem = None, str(error)
            seat.again_at = self._reactor.seconds() + seat.pause
            self.log.warn("the fork server of {server} could not be started: {error}", server=name, error=str(error))

    def _died(self, name: ServerName, seat: Seat) -> None:
        if self._by_server.get(name) is not seat or seat.server is None:
            return
        seat.again_at = self._reactor.seconds() + seat.pause
        if seat.server.unfit:
            return  # it would find the same in its way: when a container is wanted is soon enough to try
        self.log.warn(
            "the fork server of {server}: {why}; it is started again in {pause:g} s",
            server=name,
            why=seat.server.problem,
            pause=seat.pause,
        )
        seat.again = self._reactor.callLater(seat.pause, self._start, name, seat)

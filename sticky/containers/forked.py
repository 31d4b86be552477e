"""Containers that are forked instead of launched: by which fork server, and how each child's end is heard. Decides no life.

A forked container is a grandchild: its end shows on a pidfd, and how it ended its fork server tells, which reaps it. Should
that be dead too, nobody knows how.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from sticky.containers.adopted import Stranger
from sticky.containers.census import boot_id, look
from sticky.containers.child import Child
from sticky.containers.isolation import Descendants, Isolation
from sticky.containers.ownership import CONTAINER_MARK
from sticky.containers.place import Place
from sticky.containers.snapshots import FIRST_PAUSE, LONGEST_PAUSE, ForkServer, State
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, UNIXAddress

BACKLOG = 64  #: connections that wait until a sandbox takes them
TOLD_WITHIN = 0.5  #: seconds after a child's end in which its fork server may say how it was


@attrs.define(eq=False)
class _Seat:
    """A Server's fork server, and when another one may be started."""

    server: ForkServer
    mark: ContainerId
    deployment: DeploymentId  #: whose files and environment it has imported from
    pause: float
    again_at: float = 0.0
    again: IDelayedCall | None = None

    def leave(self) -> None:
        """It is nobody's any more."""
        if self.again is not None and self.again.active():
            self.again.cancel()
        self.server.end()


@attrs.define(eq=False)
class _Kin:
    """A forked child that lives."""

    child: Child
    how: tuple[int | None, int | None] | None = None
    timer: IDelayedCall | None = None


class Forking:
    """The fork servers of one backend."""

    log = Logger(namespace="sticky.containers")

    def __init__(self, reactor: Any, die_with_daemon: bool) -> None:
        self._reactor = reactor
        self._die_with_daemon = die_with_daemon
        self._seats: dict[ServerName, _Seat] = {}
        self._kin: dict[int, _Kin] = {}

    @property
    def marks(self) -> frozenset[ContainerId]:
        """Under which the fork servers themselves run: they are nobody's strays."""
        return frozenset(seat.mark for seat in self._seats.values())

    def launch(
        self,
        child: Child,
        candidates: Sequence[Address],
        env: Mapping[str, str],
        socket_path: str,
        output: int,
        isolation: Isolation,
    ) -> bool:
        """Fork the child. False where it has to be started from scratch; a fork server is then on its way for the next one."""
        spec = child.spec
        if not _may_fork(isolation) or len(spec.container) != len(_new_mark()):
            return False
        seat = self._seat(spec, env)
        if seat is None or seat.server.state is not State.WARM:
            return False
        asked = {
            "env": dict(env),
            "directory": str(spec.directory),
            "dies_with_us": self._die_with_daemon,
            "cgroups": [] if child.group is None else [str(path) for path in child.group.entrances],
            "rlimits": dict(isolation.rlimits),
        }
        # Opened here it takes connections before the child runs: nobody has to look whether it listens, nor wait for it.
        door = UNIXAddress(socket_path) if UNIXAddress(socket_path) in candidates else None
        with nullcontext() if door is None else _opened(socket_path) as opened:
            pid = seat.server.fork(asked, output, None if opened is None else opened.fileno())
        if pid is None:
            if door is not None:
                os.unlink(socket_path)
            return False
        seat.pause = FIRST_PAUSE
        self._born(child, pid, candidates, door)
        return True

    def warm(self, spec: ContainerSpec, env: Mapping[str, str], isolation: Isolation) -> None:
        """Have a fork server for containers like this one, where they can be forked; none of another kind."""
        if spec.snapshot and _may_fork(isolation):
            self._seat(spec, env)
        else:
            self.cool(spec.server)

    def cool(self, server: ServerName) -> None:
        """End a Server's fork server. Its children go on."""
        seat = self._seats.pop(server, None)
        if seat is not None:
            seat.leave()

    def stop(self) -> None:
        """End all fork servers. Their children are looked at no more; `die_with_daemon` says what becomes of them."""
        for server in list(self._seats):
            self.cool(server)
        for kin in self._kin.values():
            if kin.timer is not None:
                kin.timer.cancel()
        self._kin.clear()

    # --- fork servers

    def _seat(self, spec: ContainerSpec, env: Mapping[str, str]) -> _Seat | None:
        now = self._reactor.seconds()
        seat = self._seats.get(spec.server)
        same = seat is not None and (seat.deployment, seat.server.command) == (spec.deployment, spec.snapshot)
        if seat is not None and same and seat.server.state is not State.DEAD:
            return seat
        pause = FIRST_PAUSE
        if seat is not None and same:
            if now < seat.again_at:
                return None
            pause = min(seat.pause * 2, LONGEST_PAUSE)
        mark = _new_mark()
        try:
            server = ForkServer(
                self._reactor,
                spec.snapshot,
                {**env, CONTAINER_MARK: mark},
                spec.log.parent / f"{spec.server}-snapshot.log",
                spec.directory,
                self._told,
                lambda: self._died(spec, env, mark),
            )
        except OSError as error:
            self.log.warn("a fork server could not be started: {error}", error=str(error))
            return None
        self._seats[spec.server] = _Seat(server, mark, spec.deployment, pause)
        if seat is not None:
            seat.leave()
        return self._seats[spec.server]

    def _died(self, spec: ContainerSpec, env: Mapping[str, str], mark: ContainerId) -> None:
        seat = self._seats.get(spec.server)
        if seat is None or seat.mark != mark:
            return
        seat.again_at = self._reactor.seconds() + seat.pause
        if (
            not seat.server.problem
        ):  # else it would have the same problem again: when a container is wanted is soon enough
            seat.again = self._reactor.callLater(seat.pause, self._seat, spec, env)

    # --- children

    def _born(self, child: Child, pid: int, candidates: Sequence[Address], door: Address | None) -> None:
        try:
            boot, process = boot_id(), look(pid)
        except OSError:
            boot, process = "", None  # no descriptors left: nor for a pidfd, so that it counts as ended
        started = 1 if process is None else process.started
        place = Place(boot, pid, started, child.port or 1, tuple(candidates), True)
        try:
            descriptor: int | None = os.pidfd_open(pid)
        except OSError:
            descriptor = None  # it has ended already, or an old kernel: by looking
        hold = Stranger(self._reactor, place, descriptor)
        self._kin[pid] = _Kin(child)
        child.expect(candidates, hold)
        child.launched(pid)
        hold.watch(lambda: self._ended(pid))
        # Not from within: whoever is ready already must not be heard of before `spawn` has returned.
        if door is None:
            self._reactor.callLater(0, child.report_closed)
        else:
            self._reactor.callLater(0, child.opened, door)

    def _told(self, pid: int, status: int | None, number: int | None) -> None:
        kin = self._kin.get(pid)
        if kin is None:
            return
        kin.how = (status, number)
        if kin.timer is not None:
            kin.timer.cancel()
            self._gone(pid)

    def _ended(self, pid: int) -> None:
        kin = self._kin.get(pid)
        if kin is None:
            return
        if kin.how is not None:
            self._gone(pid)
        else:
            kin.timer = self._reactor.callLater(TOLD_WITHIN, self._gone, pid)

    def _gone(self, pid: int) -> None:
        kin = self._kin.pop(pid)
        kin.child.exited(*(kin.how or (None, None)))


def _may_fork(isolation: Isolation) -> bool:
    """Whether a forked process can be what this asks for."""
    own = isolation.network or isolation.wrapped or isolation.user
    return not own and isolation.descendants is not Descendants.PID_NAMESPACE


def _opened(path: str) -> socket.socket:
    """A listening socket for its owner alone. Raises OSError."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(path)
        os.chmod(path, 0o600)
        door.listen(BACKLOG)
    except OSError:
        door.close()
        raise
    return door


def _new_mark() -> ContainerId:
    """As long as every container's id: the child writes its own over it."""
    return ContainerId(f"ct-{secrets.token_urlsafe(16)}")

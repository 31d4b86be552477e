"""Containers that are forked instead of launched: what a fork is told, and how its end is heard. Decides no life.

A forked container is a grandchild: its end shows on a pidfd, and how it ended its fork server tells, which reaps it. Should
that be dead too, nobody knows how.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall

from sticky.containers.adopted import Stranger
from sticky.containers.census import boot_id, look
from sticky.containers.child import Child
from sticky.containers.isolation import Isolation
from sticky.containers.place import Place
from sticky.containers.reports import ReportPipe
from sticky.containers.seats import Seats, new_mark
from sticky.containers.snapshots import Forked, ForkServer, State
from sticky.core.values import ContainerId, ServerName
from sticky.isticky import Address, ContainerSpec, Snapshot, UNIXAddress

BACKLOG = 64  #: connections that wait until a sandbox takes them
#: Seconds after a child's end in which its fork server may say how it was: it gets little of a busy machine.
TOLD_WITHIN = 10.0
ASK_AGAIN = 0.1  #: seconds between two looks whether there still is one that may say it


class _Hold(Stranger):
    """Like one that an earlier daemon started, but for the report, which is ours to read."""

    def __init__(self, reactor: Any, place: Place, descriptor: int | None, report: ReportPipe | None) -> None:
        super().__init__(reactor, place, descriptor)
        self._report = report

    def close_report(self) -> None:
        """Give our end of the report pipe back. Again: nothing happens."""
        if self._report is not None:
            self._report.close()


@attrs.define(eq=False)
class _Kin:
    """A forked child that lives. `lifeline`: what ends it when it closes, if it is to die with us."""

    child: Child
    hold: _Hold
    lifeline: int | None
    server: ForkServer
    how: tuple[int | None, int | None] | None = None
    timer: IDelayedCall | None = None

    def forget(self) -> None:
        """It has gone, or is looked at no more."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None


class Forking:
    """Forks children of one backend, where their Server has a fork server that is warm."""

    def __init__(self, reactor: Any, die_with_daemon: bool) -> None:
        self._reactor = reactor
        self._die_with_daemon = die_with_daemon
        self._seats = Seats(reactor, self._told)
        self._kin: dict[int, _Kin] = {}

    @property
    def marks(self) -> frozenset[ContainerId]:
        """Under which the fork servers themselves run: they are nobody's strays."""
        return self._seats.marks

    def warm(self, spec: ContainerSpec, env: Mapping[str, str], isolation: Isolation) -> None:
        """Have a fork server for containers like this one, where they can be forked; none of another kind."""
        self._seats.take(spec, env, isolation)

    def cool(self, server: ServerName) -> None:
        """End a Server's fork server. Its children go on."""
        self._seats.leave(server)

    def look(self, server: ServerName) -> Snapshot | None:
        """How it is with a Server's fork server; None where it has none."""
        return self._seats.look(server)

    def launch(
        self,
        child: Child,
        candidates: Sequence[Address],
        env: Mapping[str, str],
        socket_path: str,
        output: int,
        isolation: Isolation,
    ) -> bool:
        """Fork the child. False where it has to be started from scratch; a fork server is then on its way for the next one.

        Raises OSError where it cannot be put into its cgroup.
        """
        spec = child.spec
        seat = self._seats.of(spec, env, isolation)
        if seat is None or not seat.warm or len(spec.container) != len(new_mark()):
            return False
        assert seat.server is not None
        entrances = [] if child.group is None else [str(path) for path in child.group.entrances]
        as_other = isolation.user is not None  # such a fork may not enter a cgroup by itself
        given = {"log": output}
        door = UNIXAddress(socket_path) if UNIXAddress(socket_path) in candidates else None
        with ExitStack() as theirs, ExitStack() as ours:
            if door is not None:
                # Opened here it takes connections before the fork runs: nobody has to look whether it listens, nor wait for it.
                given["door"] = theirs.enter_context(_opened(socket_path)).fileno()
                ours.callback(os.unlink, socket_path)
            report = ReportPipe(self._reactor, child) if spec.reports_ready else None
            if report is not None:
                given["report"] = report.theirs
                theirs.callback(report.begun)
                ours.callback(report.close)
            lifeline = _pipe(given, "lifeline", theirs) if self._die_with_daemon else None
            if lifeline is not None:
                ours.callback(os.close, lifeline)
            asked = {
                "env": {name: value for name, value in env.items() if seat.env.get(name) != value},
                "directory": str(spec.directory),
                "cgroups": [] if as_other else entrances,
                "rlimits": {} if as_other else dict(isolation.rlimits),
            }
            forked = seat.server.fork(asked, given, partial(_put_into, entrances if as_other else ()))
            if forked is None:
                return False
            ours.pop_all()
        seat.proven()
        self._born(child, seat.server, forked, candidates, report, lifeline, door)
        return True

    def stop(self) -> None:
        """End all fork servers. Their children are looked at no more; `die_with_daemon` says what becomes of them."""
        self._seats.leave_all()
        for kin in self._kin.values():
            kin.forget()
            kin.hold.close_report()
        self._kin.clear()

    # --- children

    def _born(
        self,
        child: Child,
        server: ForkServer,
        forked: Forked,
        candidates: Sequence[Address],
        report: ReportPipe | None,
        lifeline: int | None,
        door: Address | None,
    ) -> None:
        pid = forked.pid
        try:
            boot, process = boot_id(), look(pid)
        except OSError:
            boot, process = "", None  # no descriptors left
        started = 1 if process is None else process.started
        place = Place(boot, pid, started, child.port or 1, tuple(candidates), True)
        hold = _Hold(self._reactor, place, forked.descriptor, report)
        self._kin[pid] = _Kin(child, hold, lifeline, server)
        child.expect(candidates, hold)
        child.launched(pid)
        hold.watch(lambda: self._ended(pid))
        # Not from within: whoever is ready already must not be heard of before `spawn` has returned.
        if report is not None:
            report.read()
        elif door is not None:
            self._reactor.callLater(0, child.opened, door)
        else:
            self._reactor.callLater(0, child.report_closed)

    def _told(self, pid: int, status: int | None, number: int | None) -> None:
        kin = self._kin.get(pid)
        if kin is None:
            return
        kin.how = (status, number)
        if kin.timer is not None:
            self._gone(pid)

    def _ended(self, pid: int) -> None:
        kin = self._kin.get(pid)
        if kin is None:
            return
        self._wait(pid, kin, self._reactor.seconds() + TOLD_WITHIN)

    def _wait(self, pid: int, kin: _Kin, until: float) -> None:
        if kin.how is not None or kin.server.state is State.DEAD or self._reactor.seconds() >= until:
            self._gone(pid)
        else:
            kin.timer = self._reactor.callLater(ASK_AGAIN, self._wait, pid, kin, until)

    def _gone(self, pid: int) -> None:
        kin = self._kin.pop(pid)
        kin.forget()
        kin.child.exited(*(kin.how or (None, None)))


def _pipe(given: dict[str, int], name: str, theirs: ExitStack) -> int:
    """A pipe whose end is what a fork waits for. Returns the end that we keep."""
    given[name], writer = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, given[name])
    return writer


def _opened(path: str) -> socket.socket:
    """A listening socket for its owner alone. Raises OSError."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(door.fileno(), 0o600)  # what its name has from the first moment: the folder may be another user's
        door.bind(path)
        door.listen(BACKLOG)
    except OSError:
        door.close()
        raise
    return door


def _put_into(entrances: Sequence[str], pid: int) -> None:
    """A fork that has not begun yet enters its cgroup. Raises OSError; then it never will begin."""
    for entrance in entrances:
        with open(entrance, "w") as file:
            file.write(str(pid))

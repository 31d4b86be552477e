"""Containers as local child processes: the "process" backend. Must not know sessions, nor decide when a container ends.

The state of a child is driven by `processExited`: `processEnded` waits for whoever else holds the report pipe. One that an
earlier daemon left behind is taken over as `adopted.py` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from zope.interface import implementer

from sticky.containers import adopted, endings, log_watch, logs
from sticky.containers.adopted import IWatchingReactor, Stranger
from sticky.containers.cgroups import Cgroups
from sticky.containers.child import Child
from sticky.containers.clearance import Clearance, leave_runtime_folder
from sticky.containers.families import EVERY as FAMILIES_EVERY
from sticky.containers.families import Families
from sticky.containers.forked import Forking
from sticky.containers.isolation import INSIDE_PORT, Descendants, Isolation, scratch_root
from sticky.containers.killing import kill_all
from sticky.containers.knocking import IProbeReactor
from sticky.containers.launching import Launcher
from sticky.containers.log_watch import LogWatch
from sticky.containers.memory_ends import MemoryEnds
from sticky.containers.memory_limit import MemoryKills
from sticky.containers.ownership import carriers, listening_sockets, members, orphans
from sticky.containers.place import Place
from sticky.containers.ports import NoFreePort, Ports
from sticky.core.values import ContainerId, ServerName
from sticky.errors import IllegalEvent
from sticky.isticky import (
    Address,
    ContainerSpec,
    IContainerBackend,
    IContainerListener,
    IPreparedBackend,
    ISnapshotBackend,
    Snapshot,
    TCPAddress,
)


class IContainerReactor(IProbeReactor, IWatchingReactor, IReactorThreads):
    """What the backend needs from a reactor, which must be one that reaps children (SIGCHLD)."""


@implementer(IContainerBackend, IPreparedBackend, ISnapshotBackend)
class ProcessBackend:
    """Runs each container as a child process of this one, on this machine, under this user.

    `ports`: where containers listen. `environ`: of which a container inherits the little that semantics.md allows.
    `log_limit`: bytes a log may hold, looked at every `log_check` seconds. `logs_kept`: logs of
    ended containers that stay, for each Server. `family_check`: seconds between two looks at whom a container has started, where
    only that tells in the end. `die_with_daemon`: the kernel kills a container when this process dies;
    without it a later daemon can `adopt` it. `realm`: the mark of the state directory (`ownership.realm_of`), by which
    a later daemon tells its containers from another daemon's; without one there are no `orphans`. `memory_kills`: where the
    kernel counts whom it killed for want of memory. `cgroups`: where containers are kept together and limited; only with a realm
    are there any.

    What a spec's `options` may say: see `isolation.Isolation`.
    """

    name = "process"

    def __init__(
        self,
        reactor: IContainerReactor,
        *,
        ports: Ports | None = None,
        environ: Mapping[str, str] | None = None,
        log_limit: int = logs.LIMIT,
        log_check: float = log_watch.EVERY,
        logs_kept: int = logs.KEPT,
        family_check: float = FAMILIES_EVERY,
        die_with_daemon: bool = True,
        realm: str = "",
        memory_kills: MemoryKills | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._reactor = reactor
        self._ports = Ports() if ports is None else ports
        self._forking = Forking(reactor, die_with_daemon)
        self._launcher = Launcher(
            reactor, os.environ if environ is None else environ, die_with_daemon, realm, self._forking
        )
        self._logs = LogWatch(reactor, log_limit, log_check)
        self._logs_kept = logs_kept
        self._families = Families(reactor, family_check)
        self._realm = realm
        self._memory = MemoryEnds(reactor, MemoryKills() if memory_kills is None else memory_kills)
        self._cgroups = Cgroups(realm) if cgroups is None else cgroups
        self._clearance = Clearance(reactor, self._in_thread)
        self._scratch_roots: set[Path] = set()
        self._live: dict[ContainerId, Child] = {}
        self._on_fixed_port: dict[int, Child] = {}
        self._log = Logger(namespace="sticky.containers")

    def prepare(self, options: Sequence[Mapping[str, object]]) -> None:
        """See `IPreparedBackend`: where scratch folders are."""
        self._scratch_roots.update(scratch_root(one, self._realm) for one in options if "state_dir" in one)

    def spawn(self, spec: ContainerSpec, listener: object) -> Child:
        """See `IContainerBackend.spawn`. Raises `IllegalEvent` for an id that runs already."""
        if spec.container in self._live:
            raise IllegalEvent(f"container {spec.container} runs already")
        child = Child(spec, IContainerListener(listener), self._reactor, self, self._realm)
        self._live[spec.container] = child
        problem = self._one_copy_problem(spec)
        if problem is None:
            try:
                self._launch(child, Isolation.read(spec.options))
            except (
                OSError,
                ValueError,
                TypeError,
                NoFreePort,
            ) as error:  # TypeError: Twisted's, for NUL in an argument
                problem = f"cannot start {spec.command[0] if spec.command else 'an empty command'}: {error}"
        if problem is not None:
            child.refuse(problem)
        self._logs.add(child.id, spec.log)
        return child

    def warm(self, spec: ContainerSpec) -> None:
        """See `ISnapshotBackend`."""
        self._launcher.warm(spec, Isolation.read(spec.options))

    def cool(self, server: ServerName) -> None:
        """See `ISnapshotBackend`."""
        self._forking.cool(server)

    def snapshot(self, server: ServerName) -> Snapshot | None:
        """See `ISnapshotBackend`."""
        return self._forking.look(server)

    def adopt(
        self, spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: IContainerListener
    ) -> Child | None:
        """See `IContainerBackend.adopt`. Raises `IllegalEvent` for an id that runs already.

        It is the same if boot, pid, start time and the marks in its environment are. Of a program with `reports_ready` that
        was not ready yet the report is the file `READY_FILE` in its scratch folder: the pipe went with the earlier daemon.
        """
        if spec.container in self._live:
            raise IllegalEvent(f"container {spec.container} runs already")
        where = self._understood(spec.container, place)
        hold = None if where is None else adopted.find(self._reactor, spec.container, where, self._realm)
        if where is None or hold is None:
            self._clear_away(spec, where)
            return None
        child = Child(spec, IContainerListener(listener), self._reactor, self, self._realm)
        self._live[child.id] = child
        child.group = self._cgroups.existing(child.id)
        if not where.own_network:
            self._ports.reserve(where.port)
        child.adopt(hold, where, address)
        self._watch_memory(child, where.pid)
        self._watch_family(child)
        self._hear_of_its_end(child, hold)
        if address is not None:
            self.answered(child, address)
        self._logs.add(child.id, spec.log)
        return child

    def orphans(self, known: Collection[ContainerId]) -> frozenset[ContainerId]:
        """Kill whatever runs with the mark of this realm in a container that is neither known nor ours by now.

        To be called once everything was adopted that could be. Returns whose processes were found. They have got SIGKILL; one
        that the kernel does not let go of may take a while. Their scratch folders and empty cgroups go too.
        """
        found: set[ContainerId] = set()
        alive = {*known, *self._live, *self._forking.marks}

        def look() -> set[int]:
            strays = orphans(self._realm, alive)
            found.update(strays)
            return set[int]().union(*strays.values())

        kill_all(look)
        for container, group in self._cgroups.strays(alive).items():
            if group.members():
                found.add(container)
            group.kill()
            self._clearance.remove(group)
        for root in self._scratch_roots:
            self._clearance.clear_scratch(root, alive)
        if found:
            self._log.warn(
                "Killed what was left of containers that nobody knows: {containers}", containers=sorted(found)
            )
        return frozenset(found)

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend.stop`. Containers that still run are not watched any more; what then: `die_with_daemon`."""
        self._logs.stop()
        self._families.stop()
        self._forking.stop()
        for child in self._live.values():
            child.leave()
        self._memory.stop()
        cleared = self._clearance.stop()
        self._cgroups.close()

        def leave(_: object) -> None:
            for root in self._scratch_roots:
                leave_runtime_folder(root)

        return cleared.addCallback(leave)

    # --- taking over

    def _understood(self, container: ContainerId, place: Mapping[str, object]) -> Place | None:
        if not place:
            return None
        try:
            return Place.parse(place)
        except ValueError as error:
            self._log.warn(
                "The place of container {container} is damaged: {what}", container=container, what=str(error)
            )
            return None

    def _hear_of_its_end(self, child: Child, hold: Stranger) -> None:
        hold.watch(lambda: child.exited(None, None))

    def _clear_away(self, spec: ContainerSpec, place: Place | None) -> None:
        """A container that cannot be taken over: nothing of it may run, nor its folder stay."""
        # While the main process is a zombie its number is taken, so that its session's members are its own; after that
        # they could be anybody's, and only the marks tell.
        if place is not None and adopted.remains(place):
            kill_all(lambda: members(spec.container, place.pid, self._realm, leader_exited=True))
        else:
            kill_all(lambda: carriers(spec.container, self._realm))
        group = self._cgroups.existing(spec.container)
        if group is not None:
            group.kill()
            self._clearance.remove(group)
        if place is None or place.scratch_is_ours:
            self._clearance.remove_folder(spec.scratch)

    # --- starting

    def _launch(self, child: Child, isolation: Isolation) -> None:
        child.own_network, child.wrapped = isolation.network, isolation.wrapped
        child.port = child.spec.port or INSIDE_PORT if isolation.network else self._ports.acquire()
        if isolation.limited or isolation.descendants in (None, Descendants.CGROUP):
            child.group = self._cgroups.make(child.id, isolation)
        child.descendants = _sure_by(isolation, child)
        self._launcher.launch(child, child.port, isolation)
        if child.pid is not None:
            self._watch_memory(child, child.pid)
            self._watch_family(child)

    def _watch_memory(self, child: Child, pid: int) -> None:
        own = None if child.group is None else child.group.memory_counter
        if own is None:
            self._memory.share(child.id, pid, child.group)
        else:
            self._memory.own(child.id, own, child.ran_out)

    def _watch_family(self, child: Child) -> None:
        if child.descendants is Descendants.BEST_EFFORT:
            self._families.add(child)

    def _one_copy_problem(self, spec: ContainerSpec) -> str | None:
        """A copy of this very program is known to listen on the fixed port: a second one could never be ready."""
        alone = spec.port is None or spec.options.get("network")
        holder = None if alone or spec.port is None else self._on_fixed_port.get(spec.port)
        if holder is None or spec.port is None or not holder.same_program(spec):
            return None
        return endings.only_one_copy(spec, spec.port, holder.id)

    # --- what children tell

    def answered(self, child: Child, address: Address) -> None:
        """A child is ready. If it ignores PORT, its siblings that are about to fail on that are told why."""
        if not isinstance(address, TCPAddress) or address.port != child.spec.port or child.spec.port == child.port:
            return  # with a network of its own the two are the same
        self._on_fixed_port[address.port] = child
        for other in list(self._live.values()):
            if other is not child and other.same_program(child.spec):
                other.give_up(endings.only_one_copy(other.spec, address.port, child.id))

    def port_problem(self, child: Child) -> str | None:
        """Who took the port of a child that ended without ever being ready."""
        for port in () if child.own_network else (child.port, child.spec.port):
            if port is None:
                continue
            holder = self._on_fixed_port.get(port)
            if holder is not None and holder.same_program(child.spec):
                return endings.only_one_copy(child.spec, port, holder.id)
            if holder is not None:
                return endings.port_taken(port, f"container {holder.id} of Server {holder.spec.server}")
            if port == child.port and listening_sockets(TCPAddress(child.spec.host, port)):
                return endings.port_taken(port, None)
        return None

    def out_of_memory(self, child: Child) -> bool:
        """Whether it was the kernel that killed it, for want of memory."""
        return self._memory.explain(child.id)

    def gone(self, child: Child) -> None:
        """Nothing of a child runs any more: forget it and what it held."""
        self._memory.forget(child.id)
        self._families.remove(child)
        if child.group is not None:
            self._clearance.remove(child.group)
        self._live.pop(child.id, None)
        if child.port is not None and not child.own_network:
            self._ports.release(child.port)
        for port, holder in list(self._on_fixed_port.items()):
            if holder is child:
                del self._on_fixed_port[port]
        spec = child.spec
        if child.scratch_is_ours:
            self._clearance.remove_folder(spec.scratch)
        self._logs.remove(child.id)
        if spec.log == logs.log_path(spec.log.parent, spec.server, spec.container):
            logs.prune(spec.log.parent, spec.server, {live.spec.log for live in self._live.values()}, self._logs_kept)

    def _in_thread(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Deferred[Any]:
        pool = self._reactor.getThreadPool()
        return deferToThreadPool(self._reactor, pool, function, *arguments, **named)


def _sure_by(isolation: Isolation, child: Child) -> Descendants:
    if child.group is not None and isolation.descendants is not Descendants.PID_NAMESPACE:
        return Descendants.CGROUP
    return isolation.descendants or Descendants.BEST_EFFORT

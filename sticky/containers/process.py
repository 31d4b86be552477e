"""Containers as local child processes: the "process" backend. Must not know sessions, nor decide when a container ends.

A child gets its own session and process group by `spawn.py`, which also reports why a program cannot be started. Its state
is driven by `processExited`: `processEnded` waits for whoever else holds the report pipe.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorProcess
from twisted.logger import Logger
from zope.interface import implementer

from sticky.containers import endings, logs
from sticky.containers.child import Child
from sticky.containers.environment import environment, filled, placeholders
from sticky.containers.knocking import IProbeReactor
from sticky.containers.ownership import listening_sockets
from sticky.containers.ports import NoFreePort, Ports
from sticky.containers.spawn import DROPPED, KEEP_REPORT, REPORT_FD
from sticky.core.values import ContainerId
from sticky.errors import IllegalEvent
from sticky.isticky import (
    Address,
    ContainerSpec,
    IContainerBackend,
    IContainerListener,
    TCPAddress,
    UNIXAddress,
)

_LAUNCHER = str(Path(__file__).with_name("spawn.py"))
_LONGEST_SOCKET_PATH = 107  # bytes: sun_path without its closing NUL (unix(7))


class IContainerReactor(IProbeReactor, IReactorProcess):
    """What the backend needs from a reactor."""


@implementer(IContainerBackend)
class ProcessBackend:
    """Runs each container as a child process of this one, on this machine, under this user.

    `ports`: where containers listen. `environ`: of which a container inherits the little that semantics.md allows.
    `log_limit`: bytes a log may hold, looked at every `log_check` seconds. `logs_kept`: logs of
    ended containers that stay, for each Server.
    """

    name = "process"

    def __init__(
        self,
        reactor: IContainerReactor,
        *,
        ports: Ports | None = None,
        environ: Mapping[str, str] | None = None,
        log_limit: int = logs.LIMIT,
        log_check: float = 5.0,
        logs_kept: int = logs.KEPT,
    ) -> None:
        self._reactor = reactor
        self._ports = Ports() if ports is None else ports
        self._environ = dict(os.environ if environ is None else environ)
        self._log_limit = log_limit
        self._log_check = log_check
        self._logs_kept = logs_kept
        self._live: dict[ContainerId, Child] = {}
        self._on_fixed_port: dict[int, Child] = {}
        self._log_timer: IDelayedCall | None = None
        self._log = Logger(namespace="sticky.containers")

    def spawn(self, spec: ContainerSpec, listener: object) -> Child:
        """See `IContainerBackend.spawn`. Raises `IllegalEvent` for an id that runs already."""
        if spec.container in self._live:
            raise IllegalEvent(f"container {spec.container} runs already")
        child = Child(spec, IContainerListener(listener), self._reactor, self)
        self._live[spec.container] = child
        problem = self._one_copy_problem(spec)
        if problem is None:
            try:
                self._launch(child)
            except (
                OSError,
                ValueError,
                TypeError,
                NoFreePort,
            ) as error:  # TypeError: Twisted's, for NUL in an argument
                problem = f"cannot start {spec.command[0] if spec.command else 'an empty command'}: {error}"
        if problem is not None:
            child.refuse(problem)
        self._watch_logs()
        return child

    def stop(self) -> Deferred[None]:
        """See `IContainerBackend.stop`. Containers that still run are no longer watched, and end with this process."""
        self._leave_logs()
        for child in self._live.values():
            child.unwatch()
        return succeed(None)

    # --- starting

    def _launch(self, child: Child) -> None:
        spec = child.spec
        if not spec.command:
            raise ValueError("there is nothing to run")
        child.port = port = self._ports.acquire()
        candidates: list[Address] = [TCPAddress(spec.host, port)]
        path = str(spec.scratch / "http.sock")
        if "socket" in placeholders(spec.command):
            if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
                raise ValueError(f"the socket's path {path} is longer than {_LONGEST_SOCKET_PATH} bytes")
            candidates.insert(0, UNIXAddress(path))
        if spec.port is not None and spec.port != port:
            candidates.append(TCPAddress(spec.host, spec.port))
        if not spec.scratch.exists():
            spec.scratch.mkdir(mode=0o700, parents=True)
            child.scratch_is_ours = True
        values = {
            "port": str(port),
            "host": spec.host,
            "socket": path,
            "container_id": spec.container,
            "url": spec.url,
        }
        command = filled(spec.command, values)
        env = environment(spec, port, REPORT_FD if spec.reports_ready else None, self._environ)
        report = KEEP_REPORT if spec.reports_ready else ""
        launcher = [sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid()), report, env.get("LC_CTYPE", DROPPED)]
        launcher += [str(spec.directory), *command]
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            output = logs.open_log(spec.log)
            try:
                child.expect(candidates)
                self._reactor.spawnProcess(
                    child.protocol,
                    os.fsencode(sys.executable),
                    [os.fsencode(argument) for argument in launcher],
                    {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
                    # No path: with one Twisted forks instead of using posix_spawn. The launcher changes the directory.
                    childFDs={0: nothing, 1: output, 2: output, REPORT_FD: "r"},
                )
            finally:
                os.close(output)
        finally:
            os.close(nothing)

    def _one_copy_problem(self, spec: ContainerSpec) -> str | None:
        """A copy of this very program is known to listen on the fixed port: a second one could never be ready."""
        holder = None if spec.port is None else self._on_fixed_port.get(spec.port)
        if holder is None or spec.port is None or not holder.same_program(spec):
            return None
        return endings.only_one_copy(spec, spec.port, holder.id)

    # --- what children tell

    def answered(self, child: Child, address: Address) -> None:
        """A child is ready. If it ignores PORT, its siblings that are about to fail on that are told why."""
        if address != TCPAddress(child.spec.host, child.spec.port or 0) or child.spec.port == child.port:
            return
        self._on_fixed_port[address.port] = child
        for other in list(self._live.values()):
            if other is not child and other.same_program(child.spec):
                other.give_up(endings.only_one_copy(other.spec, address.port, child.id))

    def port_problem(self, child: Child) -> str | None:
        """Who took the port of a child that ended without ever being ready."""
        for port in (child.port, child.spec.port):
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

    def gone(self, child: Child) -> None:
        """Nothing of a child runs any more: forget it and what it held."""
        self._live.pop(child.id, None)
        if not self._live:
            self._leave_logs()
        if child.port is not None:
            self._ports.release(child.port)
        for port, holder in list(self._on_fixed_port.items()):
            if holder is child:
                del self._on_fixed_port[port]
        spec = child.spec
        if child.scratch_is_ours:
            shutil.rmtree(spec.scratch, ignore_errors=True)
        logs.bound(spec.log, self._log_limit)
        if spec.log == logs.log_path(spec.log.parent, spec.server, spec.container):
            logs.prune(spec.log.parent, spec.server, {live.spec.log for live in self._live.values()}, self._logs_kept)

    # --- logs

    def _watch_logs(self) -> None:
        if self._log_timer is None:
            self._log_timer = self._reactor.callLater(self._log_check, self._bound_logs)

    def _leave_logs(self) -> None:
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log_timer = None

    def _bound_logs(self) -> None:
        self._log_timer = None
        for child in self._live.values():
            if logs.bound(child.spec.log, self._log_limit):
                self._log.warn(
                    "The log of container {container} passed {limit} bytes; its older part was dropped",
                    container=child.id,
                    limit=self._log_limit,
                )
        self._watch_logs()

"""Launches a container's program: its addresses, folder, environment and log, then a child that becomes it (`launchers.py`).

Must not know what becomes of it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.interfaces import IReactorFDSet

from sticky.containers import confinement, lean, logs
from sticky.containers.child import READY_FILE, Child
from sticky.containers.environment import environment, filled, placeholders
from sticky.containers.forked import Forking
from sticky.containers.isolation import RUNTIME_FOLDER, Isolation
from sticky.containers.launchers import command_line
from sticky.containers.reports import Reports
from sticky.containers.spawn import OUTLIVES, REPORT_FD
from sticky.isticky import Address, ContainerSpec, TCPAddress, UNIXAddress

_LONGEST_SOCKET_PATH = 107  # bytes: sun_path without its closing NUL (unix(7))
_LOOPBACK = ("127.0.0.1", "localhost")  # a program told "localhost" may take ::1 alone, as Node does since version 17


class Launcher:
    """Launches programs in this environment. `die_with_daemon` and `realm`: see `ProcessBackend`."""

    def __init__(
        self, reactor: IReactorFDSet, environ: Mapping[str, str], die_with_daemon: bool, realm: str, forking: Forking
    ) -> None:
        self._reactor = reactor
        self._environ = dict(environ)
        self._parent = os.getpid() if die_with_daemon else OUTLIVES
        self._realm = realm
        self._forking = forking
        self._also_ipv6 = _has_ipv6_loopback()

    def launch(self, child: Child, port: int, isolation: Isolation) -> None:
        """Start it on this port. Raises OSError, and ValueError where the spec cannot be run at all."""
        spec = child.spec
        socket_path = str(spec.scratch / "http.sock")
        candidates = self._candidates(spec, port, socket_path)
        who = None if isolation.user is None else confinement.user(isolation.user)
        make_kept(isolation, who)
        if not spec.scratch.exists():
            _make_scratch(spec.scratch, who)
            child.scratch_is_ours = True
        values = {
            "port": str(port),
            "host": spec.host,
            "socket": socket_path,
            "container_id": spec.container,
            "url": spec.url,
        }
        command = filled(spec.command, values)
        if not command or not command[0]:
            raise ValueError("there is nothing to run")
        env = self._environment(spec, port, who)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            output = logs.open_log(spec.log)
            try:
                if spec.snapshot and self._forking.launch(child, candidates, env, socket_path, output, isolation):
                    return
                confined = confinement.lines(spec, isolation, child.group, who)
                arguments = command_line(self._parent, spec.reports_ready, env, spec.directory, confined, command)
                reports = Reports(child)
                child.expect(candidates, reports)
                lean.start(self._reactor, reports, arguments, env, {0: nothing, 1: output, 2: output, REPORT_FD: "r"})
            finally:
                os.close(output)
        finally:
            os.close(nothing)

    def warm(self, spec: ContainerSpec, isolation: Isolation) -> None:
        """See `ISnapshotBackend`."""
        try:
            who = None if isolation.user is None else confinement.user(isolation.user)
            make_kept(isolation, who)
        except (ValueError, OSError):
            return  # whom there is not, or a folder that cannot be made; the first container says so
        self._forking.warm(spec, self._environment(spec, 0, who), isolation)

    def _environment(self, spec: ContainerSpec, port: int, who: confinement.User | None) -> dict[str, str]:
        env = environment(
            spec,
            port,
            REPORT_FD if spec.reports_ready else None,
            self._environ,
            realm=self._realm,
            ready_file=spec.scratch / READY_FILE if spec.reports_ready else None,
        )
        if who is not None:
            env.update({name: value for name, value in who.variables.items() if name not in spec.env})
        return env

    def _candidates(self, spec: ContainerSpec, port: int, socket_path: str) -> list[Address]:
        ports = [port] if spec.port in (None, port) else [port, spec.port]
        found: list[Address] = [TCPAddress(spec.host, each) for each in ports]
        if self._also_ipv6 and spec.host in _LOOPBACK:
            found += [TCPAddress("::1", each) for each in ports]
        if "socket" in placeholders(spec.command):
            if len(os.fsencode(socket_path)) > _LONGEST_SOCKET_PATH:
                raise ValueError(f"the socket's path {socket_path} is longer than {_LONGEST_SOCKET_PATH} bytes")
            found.insert(0, UNIXAddress(socket_path))
        return found


def make_kept(isolation: Isolation, who: confinement.User | None) -> None:
    """The folder that outlives the container, its user's own; what it is in is nobody's to replace. Raises OSError."""
    if not isolation.kept:
        return
    folder = Path(isolation.kept)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o711 if each != folder and who is not None else 0o700, exist_ok=True)
    if who is not None and folder.lstat().st_uid != who.uid:
        os.chown(folder, who.uid, who.gid, follow_symlinks=False)


def _make_scratch(scratch: Path, who: confinement.User | None) -> None:
    scratch.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if who is not None:
        for folder in (scratch.parent, scratch.parent.parent):
            if folder.stat().st_uid == os.geteuid() and folder.is_relative_to(RUNTIME_FOLDER):
                folder.chmod(0o711)  # the folders' names are no secret, and each is its user's own
    scratch.mkdir(mode=0o700)
    if who is not None:
        os.chown(scratch, who.uid, who.gid)


def _has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True

"""Which processes belong to a container, and whose socket listens: read from /proc. Must not signal or change anything.

A container's processes are those of its session or process group, their descendants, and whoever carries its marks in the
environment (a program that put itself into the background keeps those). Zombies do not count. The main process is a subreaper
where nothing better is to be had (prctl(2)): as long as it lives, whoever hides from all that is still its descendant.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from glob import glob
from pathlib import Path

from sticky.containers.census import Census, Process, environ, look, read
from sticky.containers.listeners import Listener, tcp_listeners, unix_listeners
from sticky.core.values import ContainerId
from sticky.isticky import Address, TCPAddress
from sticky.networks import inside

CONTAINER_MARK, REALM_MARK = "STICKY_CONTAINER_ID", "STICKY_STATE"  #: variables that every container's environment has


def realm_of(state_dir: Path) -> str:
    """The mark of the containers of one state directory: the same for every daemon on it, another one for any other.

    By device and inode besides the path, so that the same path in two mount namespaces makes two realms. Raises OSError.
    """
    where = state_dir.resolve()
    status = where.stat()
    return hashlib.sha256(f"{status.st_dev}:{status.st_ino}:{where}".encode()).hexdigest()[:16]


def marks(container: ContainerId, realm: str) -> frozenset[bytes]:
    """What the environment of each process of a container holds. An empty realm is none."""
    found = {f"{CONTAINER_MARK}={container}"} | ({f"{REALM_MARK}={realm}"} if realm else set())
    return frozenset(mark.encode() for mark in found)


def owns_listener(container: ContainerId, leader: int, address: Address, realm: str = "") -> bool:
    """Whether everything that takes connections on the address belongs to the container.

    Everything: with SO_REUSEPORT a foreign server can share a port, and would get part of the container's requests.
    """
    foreign = listening_sockets(address) if isinstance(address, TCPAddress) else unix_listeners(address.path, leader)
    if not foreign:
        return False
    foreign -= sockets(leader)  # the usual case, without a look at every process of the machine
    if not foreign:
        return True
    for pid in members(container, leader, realm):
        foreign -= sockets(pid)
        if not foreign:
            return True
    return False


def listening_sockets(address: TCPAddress) -> set[int]:
    """The inodes of the sockets that a connection to the address would reach."""
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        with inside(address.network):
            listeners = tcp_listeners(address.port)
    except OSError:
        return set()  # a network namespace that is gone
    # The kernel prefers the most specific address.
    exact = {listener.inode for listener in listeners if listener.host in (host, f"::ffff:{host}")}
    return exact or {listener.inode for listener in listeners if listener.host in ("0.0.0.0", "::")}


def listens_on(leader: int, network: str = "") -> list[Listener]:
    """Where the process and those that it started listen by TCP; a network of its own is nobody else's.

    Those whose parent has ended are not looked for: that would be a look at every process of the machine.
    """
    try:
        with inside(network):
            found = tcp_listeners()
    except OSError:
        return []  # the process is gone, or its network
    if network:
        return found
    theirs = sockets(leader).union(*map(sockets, offspring(leader)))
    return [listener for listener in found if listener.inode in theirs]


def offspring(pid: int) -> set[int]:
    """Whom a process started, and those too; nobody where the kernel keeps no lists of children."""
    found: set[int] = set()
    asked = [pid]
    while asked:
        for path in glob(f"/proc/{asked.pop()}/task/*/children"):
            more = {int(child) for child in read(path).split()} - found
            found |= more
            asked += more
    return found


def sockets(pid: int) -> set[int]:
    """The inodes of a process's sockets; none where we may not look."""
    found: set[int] = set()
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(f"{folder}/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def started_by(leader: int) -> frozenset[Process]:
    """Whom a process has started, as far as their parents still live; nobody where no descriptors are left to look with."""
    try:
        found = [look(pid) for pid in offspring(leader)]
    except OSError:
        return frozenset()
    return frozenset(process for process in found if process is not None)


def members(
    container: ContainerId,
    leader: int,
    realm: str = "",
    *,
    leader_exited: bool = False,
    known: Collection[Process] = (),
) -> list[int]:
    """The living processes of a container, ourselves excepted.

    `leader_exited`: the main process was reaped, so that a process with its number is a stranger. `known`: seen in it before.
    """
    census = Census.take()
    found = census.led_by(leader) | ({leader} & census.processes.keys())
    for process in known:
        now = census.processes.get(process.pid)
        if now is not None and now.started == process.started:
            found.add(process.pid)
    if leader_exited:
        found.discard(leader)
    found |= census.descendants(found)
    wanted = marks(container, realm)
    found |= {pid for pid in census.processes.keys() - found if wanted <= environ(pid)}
    found.discard(os.getpid())
    return sorted(found)


def carriers(container: ContainerId, realm: str) -> set[int]:
    """The living processes with the marks of a container whose main process is unknown, and what they started."""
    census = Census.take()
    wanted = marks(container, realm)
    found = {pid for pid in census.processes if wanted <= environ(pid)}
    return (found | census.descendants(found)) - _family(census)


def bearers(container: ContainerId) -> set[int]:
    """The living processes with a container's mark, whoever started them. Ours to look at, not to end."""
    wanted = marks(container, "")
    return {pid for pid in Census.take().processes if wanted <= environ(pid)}


def _family(census: Census) -> set[int]:
    """Ourselves, who started us, and what we started: a daemon may itself run in somebody's container."""
    us = os.getpid()
    return {us} | census.ancestors(us) | census.descendants({us})


def group_members(group: int, among: Collection[int] | None = None) -> set[int]:
    """The living processes of one process group. `among`: they all are among these, so that no others are looked at."""
    return {process.pid for process in Census.take(among).processes.values() if process.group == group}


def orphans(realm: str, known: Collection[ContainerId]) -> Mapping[ContainerId, set[int]]:
    """The living processes of the realm's containers that are not known: those with the marks, and what these lead or started."""
    if not realm:
        return {}
    census = Census.take()
    family = _family(census)
    found: dict[ContainerId, set[int]] = {}
    taken = set(family)
    kept = {name.encode() for name in known}
    for pid in census.processes.keys() - family:
        container = _marked(pid, realm)
        if container is not None and container not in kept:
            found.setdefault(ContainerId(container.decode("utf-8", "replace")), set()).add(pid)
        if container is not None:
            taken.add(pid)
    for pids in found.values():
        led = set[int]().union(*(census.led_by(pid) for pid in pids))
        pids |= (led | census.descendants(pids | led)) - taken
    return found


def _marked(pid: int, realm: str) -> bytes | None:
    lines = environ(pid)
    if f"{REALM_MARK}={realm}".encode() not in lines:
        return None
    prefix = f"{CONTAINER_MARK}=".encode()
    return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), None)

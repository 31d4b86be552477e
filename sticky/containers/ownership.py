"""Which processes belong to a container, and whose socket listens: read from /proc. Must not signal or change anything.

A container's processes are those of its session or process group, their descendants, and whoever carries its id in the
environment (a program that put itself into the background keeps that). Zombies do not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sticky.containers.listeners import tcp_listeners, unix_listeners
from sticky.core.values import ContainerId
from sticky.isticky import Address, TCPAddress


def owns_listener(container: ContainerId, leader: int, address: Address) -> bool:
    """Whether everything that takes connections on the address belongs to the container.

    Everything: with SO_REUSEPORT a foreign server can share a port, and would get part of the container's requests.
    """
    foreign = listening_sockets(address)
    if not foreign:
        return False
    foreign -= sockets(leader)  # the usual case, without a look at every process of the machine
    if not foreign:
        return True
    for pid in members(container, leader):
        foreign -= sockets(pid)
        if not foreign:
            return True
    return False


def listening_sockets(address: Address) -> set[int]:
    """The inodes of the sockets that a connection to the address would reach."""
    if not isinstance(address, TCPAddress):
        return unix_listeners(address.path)
    host = "127.0.0.1" if address.host == "localhost" else address.host
    listeners = tcp_listeners(address.port)
    # The kernel prefers the most specific address.
    exact = {listener.inode for listener in listeners if listener.host in (host, f"::ffff:{host}")}
    return exact or {listener.inode for listener in listeners if listener.host in ("0.0.0.0", "::")}


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


def members(container: ContainerId, leader: int, *, leader_exited: bool = False) -> list[int]:
    """The living processes of a container, ourselves excepted.

    `leader_exited`: the main process was reaped, so that a process with its number is a stranger.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    for pid, parent, group, session in _processes():
        parents[pid] = parent
        if leader in (group, session) or (pid == leader and not leader_exited):
            found.add(pid)
    found.discard(leader if leader_exited else 0)
    others = {pid for pid in parents if pid not in found}
    mark = f"STICKY_CONTAINER_ID={container}".encode()
    for pid in others:
        if (not leader_exited and _descends(pid, leader, parents)) or mark in _read(f"/proc/{pid}/environ").split(
            b"\0"
        ):
            found.add(pid)
    found.discard(os.getpid())
    return sorted(found)


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    steps = 0
    while pid > 1 and steps < len(parents):  # the listing is no snapshot: a reused pid could close a circle
        pid = parents.get(pid, 0)
        steps += 1
        if pid == ancestor:
            return True
    return False


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Process, parent, process group and session of everything that is alive."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The command's name, in brackets, may itself hold brackets and spaces (proc_pid_stat(5)).
            fields = _read(f"/proc/{name}/stat").rpartition(b") ")[2].split(b" ", 4)
            if len(fields) == 5 and fields[0] not in (b"Z", b"X"):
                yield int(name), int(fields[1]), int(fields[2]), int(fields[3])


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(descriptor, 262_144):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        return b""  # the process went away meanwhile
    finally:
        os.close(descriptor)

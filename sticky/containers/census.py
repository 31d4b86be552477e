"""What runs on this machine: one look at /proc. Must not know what a container is, nor signal anything.

A look is no snapshot: processes come and go while it is taken. Zombies are not in it. Where no descriptor is left to look with,
everything here raises OSError: a process that cannot be looked at must not be taken for one that is gone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from sticky.exhaustion import is_ours

STOPPED, TRACED = "T", "t"  #: states: stopped by a signal, and by whoever traces it
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@attrs.frozen
class Process:
    """One line of the process table (proc_pid_stat(5))."""

    pid: int
    state: str  #: one letter; Z and X are dead
    parent: int
    group: int
    session: int
    started: int  #: clock ticks after boot; with the pid and the boot it names a process for ever


def boot_id() -> str:
    """Which boot of the machine this is; empty where the kernel does not say. Raises OSError as `read` does."""
    return read(_BOOT_ID).decode("ascii", "replace").strip()


def look(pid: int) -> Process | None:
    """One process, a zombie too; None if there is none."""
    # The command's name, in brackets, may itself hold brackets and spaces.
    fields = read(f"/proc/{pid}/stat").rpartition(b") ")[2].split(b" ", 20)
    if len(fields) < 20:
        return None
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def environ(pid: int) -> frozenset[bytes]:
    """The `NAME=value` lines a process was started with; none where we may not look, or where it wrote over them."""
    return frozenset(read(f"/proc/{pid}/environ").split(b"\0"))


@attrs.frozen
class Census:
    """Every process that is alive, by its pid."""

    processes: Mapping[int, Process]

    @classmethod
    def take(cls, among: Collection[int] | None = None) -> Census:
        """Of all, or of these. A look at all is dear: 20 ms on a busy machine."""
        return cls({process.pid: process for process in _living(_pids() if among is None else among)})

    def led_by(self, leader: int) -> set[int]:
        """The members of the session and of the process group that bear the leader's number."""
        return {process.pid for process in self.processes.values() if leader in (process.group, process.session)}

    def descendants(self, roots: Collection[int]) -> set[int]:
        """Whoever was started by the roots, directly or not, as far as their parents still live."""
        found = set(roots)
        while more := {pid for pid, process in self.processes.items() if process.parent in found} - found:
            found |= more
        return found - set(roots)

    def ancestors(self, pid: int) -> set[int]:
        """The parent, its parent and so on."""
        found: set[int] = set()
        while (process := self.processes.get(pid)) and process.parent not in found:
            pid = process.parent
            found.add(pid)
        return found


def read(path: str) -> bytes:
    """A small file of /proc; empty if it is gone or not for us. Raises OSError where we can open nothing just now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if is_ours(error):
            raise
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


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _living(pids: Iterable[int]) -> Iterator[Process]:
    for pid in pids:
        process = look(pid)
        if process is not None and process.state not in ("Z", "X"):
            yield process

"""Control groups, versions 1 and 2: one for each container below `sticky/<realm>`, with its limits. Must not know containers' lives.

At the top of each hierarchy, or below what was delegated to the daemon, and not below the daemon's own group: version 2 allows no
limits below a group that has processes itself. Version 1 has a hierarchy for each controller, and machines mix the two. What only
keeps track of processes prefers version 1's freezer, which a new process enters at once (see `Group.entrances`) and which stops
what forks before it is killed; then version 2, where one write kills all that is in a group (Linux 5.14) or stops it (5.2).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from sticky.containers.census import read
from sticky.containers.hierarchies import Hierarchy, hierarchies
from sticky.containers.isolation import Isolation
from sticky.containers.killing import kill_all
from sticky.core.values import ContainerId

_PERIOD = 100_000  # microseconds, the kernel's default
_LEAST_QUOTA = 1_000  # microseconds, the kernel's minimum
_NEEDS = (("memory", "memory"), ("cpu", "cpu"), ("pids", "pids"))  # what is limited, and the controller that does it
_TRACKERS = ("freezer", "", "pids", "memory", "cpu")  # the best one first; "" is version 2's own tree
_FREEZERS = (("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0"))  # version 1, 2: file, on, off


@attrs.frozen
class Group:
    """The group of one container: a folder in each hierarchy that takes part."""

    folders: tuple[Path, ...]

    @property
    def entrances(self) -> tuple[Path, ...]:
        """A process with one thread that writes "0" into each of these is in.

        Version 1 has a file for threads beside the one for processes: a thread that moves itself takes no lock that waits
        for every processor, as a process does (measured: 0.07 ms against 6 to 14). Version 2 moves whole processes only.
        """
        return tuple(_entrance(folder) for folder in self.folders)

    @property
    def memory_counter(self) -> Path | None:
        """What counts whom the kernel killed for want of memory; None without a limit."""
        for folder in self.folders:
            for name, limit in (("memory.oom_control", "memory.limit_in_bytes"), ("memory.events", "memory.max")):
                if os.path.exists(f"{folder}/{name}") and os.path.exists(f"{folder}/{limit}"):
                    return folder / name
        return None

    @property
    def unified(self) -> Path | None:
        """Its folder in version 2's own tree, which decides about all resources that version 2 controls; None: it has none."""
        return next((folder for folder in self.folders if (folder / "cgroup.events").exists()), None)

    def members(self) -> set[int]:
        """The living processes in it. Who has just died may still be among them."""
        found: set[int] = set()
        for folder in self.folders:
            found.update(map(int, read(str(folder / "cgroup.procs")).split()))
        return found - {0}  # of another pid namespace

    def kill(self) -> None:
        """SIGKILL to all that is in it, what is forked meanwhile too."""
        for folder in self.folders:
            try:
                _write(folder / "cgroup.kill", "1")
                return
            except OSError:
                continue
        freezers = [
            (folder / name, on, off)
            for folder in self.folders
            for name, on, off in _FREEZERS
            if (folder / name).exists()
        ]
        for freezer, on, _ in freezers:
            _attempt(freezer, on)
        try:
            kill_all(self.members)  # a group takes a moment to freeze: what was forked meanwhile is found too
        finally:
            for freezer, _, off in freezers:
                _attempt(freezer, off)

    def remove(self) -> bool:
        """Whether nothing of it is left; False as long as it has a process that the kernel does not let go of."""
        for folder in self.folders:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return False
        return True


class Cgroups:
    """The groups of one state directory's containers. Without a realm, or without the rights, there are none.

    `mountinfo` and `own`: of the daemon, as /proc/PID/mountinfo and /proc/PID/cgroup have it; None: this process.
    """

    def __init__(self, realm: str, mountinfo: str | None = None, own: str | None = None) -> None:
        if mountinfo is None:
            mountinfo = read("/proc/self/mountinfo").decode("utf-8", "surrogateescape")
        if own is None:
            own = read("/proc/self/cgroup").decode("utf-8", "surrogateescape")
        self._realm = realm
        self._hierarchies = hierarchies(mountinfo, own) if realm else {}
        self._tracker: Hierarchy | None = None
        self._sought = False

    def tracker(self) -> Hierarchy | None:
        """The hierarchy that keeps track of containers that have no limits. None: there is none that we may use."""
        if not self._sought:
            self._sought = True
            candidates = [self._hierarchies.get(name) for name in _TRACKERS]
            self._tracker = next((each for each in candidates if each is not None and self._tracks(each)), None)
        return self._tracker

    def problem(self, isolation: Isolation) -> tuple[str, str] | None:
        """The first limit that cannot be had here, and why."""
        for limit, controller in _NEEDS:
            if getattr(isolation, limit) is None:
                continue
            hierarchy = self._hierarchies.get(controller)
            if hierarchy is None:
                return limit, f"this machine has no cgroup controller {controller!r} (neither version 1 nor 2)"
            try:
                self._prepare(hierarchy, controller)
            except OSError as error:
                what = f"the cgroup {hierarchy.folder(self._realm)} cannot be used: {error.strerror}"
                return limit, f"{what}; {_remedy(hierarchy, error)}"
        return None

    def make(self, container: ContainerId, isolation: Isolation) -> Group | None:
        """A new, empty group with the limits that are asked for. None: nothing needs one. Raises OSError."""
        limits: dict[Hierarchy, dict[str, str]] = {}
        tracker = self.tracker()
        if tracker is not None:
            limits[tracker] = {}
        for limit, controller in _NEEDS:
            value = getattr(isolation, limit)
            if value is None:
                continue
            hierarchy = self._hierarchies.get(controller)
            if hierarchy is None:
                raise OSError(f"this machine has no cgroup controller {controller!r}")
            self._prepare(hierarchy, controller)
            limits.setdefault(hierarchy, {}).update(_LIMITS[limit](value, hierarchy.version))
        group = Group(tuple(hierarchy.folder(self._realm) / container for hierarchy in limits))
        try:
            for folder, files in zip(group.folders, limits.values(), strict=True):
                os.makedirs(folder, exist_ok=True)
                for name, value in files.items():
                    _set(folder / name, value)
        except OSError:
            group.remove()
            raise
        return group if group.folders else None

    def existing(self, container: ContainerId) -> Group | None:
        """The group that an earlier daemon made."""
        folders = [folder / container for folder in self._folders()]
        found = tuple(folder for folder in folders if folder.is_dir())
        return Group(found) if found else None

    def strays(self, known: Collection[ContainerId]) -> Mapping[ContainerId, Group]:
        """The groups of containers that are not known."""
        names: set[str] = set()
        for folder in self._folders():
            try:
                names.update(entry.name for entry in os.scandir(folder) if entry.is_dir())
            except OSError:
                continue
        groups = {ContainerId(name): self.existing(ContainerId(name)) for name in sorted(names - set(known))}
        return {container: group for container, group in groups.items() if group is not None}

    def close(self) -> None:
        """Remove the realm's own folders, unless something is in them."""
        for folder in self._folders():
            for each in (folder, folder.parent):
                try:
                    os.rmdir(each)
                except OSError:
                    break
        self._sought = False

    def _folders(self) -> list[Path]:
        return [hierarchy.folder(self._realm) for hierarchy in dict.fromkeys(self._hierarchies.values())]

    def _tracks(self, hierarchy: Hierarchy) -> bool:
        folder = hierarchy.folder(self._realm)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return False
        usable = os.access(folder / "cgroup.procs", os.W_OK)
        ends = ("cgroup.kill", "cgroup.freeze")
        return usable and (hierarchy.version == 1 or any((folder / name).exists() for name in ends))

    def _prepare(self, hierarchy: Hierarchy, controller: str) -> None:
        """The realm's folder, and in version 2 the controller for all below it. Raises OSError."""
        folder = hierarchy.folder(self._realm)
        os.makedirs(folder, exist_ok=True)
        if hierarchy.version == 1:
            if not os.access(folder / "cgroup.procs", os.W_OK):
                raise PermissionError(1, "not writable")
            return
        for level in (hierarchy.base, folder.parent, folder):
            if controller not in read(str(level / "cgroup.subtree_control")).decode().split():
                _write(level / "cgroup.subtree_control", f"+{controller}")


def _remedy(hierarchy: Hierarchy, error: OSError) -> str:
    if hierarchy.version == 2 and error.errno == errno.EBUSY:  # "no internal processes"
        return (
            f"there are processes in {hierarchy.base} itself, and version 2 divides a group's resources only where there are "
            "none (systemd: DelegateSubgroup=daemon beside Delegate=yes)"
        )
    if hierarchy.version == 2:
        return (
            f"it takes root and a writable {hierarchy.mount}, or a group of the daemon's own (systemd: Delegate=yes and "
            "DelegateSubgroup=daemon)"
        )
    return f"it takes root and a writable {hierarchy.mount}"


def _entrance(folder: Path) -> Path:
    threads = folder / "tasks"
    return threads if threads.exists() else folder / "cgroup.procs"


def _memory(value: int, version: int) -> Mapping[str, str]:
    if version == 1:
        return {"memory.limit_in_bytes": str(value), "memory.memsw.limit_in_bytes?": str(value)}
    # All of it or nothing: a container without its biggest process is no service.
    return {"memory.max": str(value), "memory.swap.max?": "0", "memory.oom.group": "1"}


def _cpu(value: float, version: int) -> Mapping[str, str]:
    quota = max(_LEAST_QUOTA, round(value * _PERIOD))
    if version == 1:
        return {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(quota)}
    return {"cpu.max": f"{quota} {_PERIOD}"}


def _pids(value: int, version: int) -> Mapping[str, str]:
    return {"pids.max": str(value)}


_LIMITS = {"memory": _memory, "cpu": _cpu, "pids": _pids}


def _set(file: Path, value: str) -> None:
    """A name with ? is of a file that not every kernel has."""
    if not file.name.endswith("?"):
        _write(file, value)
        return
    file = file.with_name(file.name[:-1])
    if file.exists():
        _write(file, value)


def _attempt(file: Path, value: str) -> None:
    try:
        _write(file, value)
    except OSError:
        pass


def _write(file: Path, value: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)

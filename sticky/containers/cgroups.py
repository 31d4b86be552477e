"""Control groups, versions 1 and 2: one for each container below `sticky/<realm>`, with its limits. Must not know containers' lives.

At the top of each hierarchy and not below the daemon's own group: version 2 allows no limits below a group that has processes
itself, as the daemon's has. Version 1 has a hierarchy for each controller, and machines mix the two. What only keeps track of
processes prefers version 1's freezer, which a new process enters at once (see `Group.entrances`) and which stops what forks
before it is killed; then version 2, where one write kills all that is in a group (Linux 5.14).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from sticky.containers.census import read
from sticky.containers.isolation import Isolation
from sticky.containers.killing import kill_all
from sticky.core.values import ContainerId

TOP = "sticky"
_PERIOD = 100_000  # microseconds, the kernel's default
_LEAST_QUOTA = 1_000  # microseconds, the kernel's minimum
_NEEDS = (("memory", "memory"), ("cpu", "cpu"), ("pids", "pids"))  # what is limited, and the controller that does it
_TRACKERS = ("freezer", "", "pids", "memory", "cpu")  # the best one first; "" is version 2's own tree
_OCTAL = re.compile(r"\\([0-7]{3})")


@attrs.frozen
class Hierarchy:
    """One tree of groups."""

    mount: Path
    version: int

    def folder(self, realm: str) -> Path:
        return self.mount / TOP / realm


def hierarchies(mountinfo: str) -> Mapping[str, Hierarchy]:
    """The hierarchy of each controller, by proc_pid_mountinfo(5); version 2's own tree is the one called ""."""
    found: dict[str, Hierarchy] = {}
    second: Hierarchy | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options, *_) = left.split(" "), [*right.split(" "), "", "", ""]
        if kind not in ("cgroup", "cgroup2") or len(fields) < 5:
            continue
        mount = Path(_OCTAL.sub(lambda match: chr(int(match.group(1), 8)), fields[4]))
        if kind == "cgroup2":
            second = Hierarchy(mount, 2)
            continue
        for controller in options.split(","):
            found.setdefault(controller, Hierarchy(mount, 1))
    if second is not None:
        found[""] = second
        for controller in read(str(second.mount / "cgroup.controllers")).decode().split():
            found[controller] = second  # a controller is in one hierarchy only
    return found


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
                if (folder / name).exists() and (folder / limit).exists():
                    return folder / name
        return None

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
        freezers = [folder / "freezer.state" for folder in self.folders if (folder / "freezer.state").exists()]
        for freezer in freezers:
            _attempt(freezer, "FROZEN")
        try:
            kill_all(self.members)  # a group takes a moment to freeze: what was forked meanwhile is found too
        finally:
            for freezer in freezers:
                _attempt(freezer, "THAWED")

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
    """The groups of one state directory's containers. Without a realm, or without the rights, there are none."""

    def __init__(self, realm: str, mountinfo: str | None = None) -> None:
        if mountinfo is None:
            mountinfo = read("/proc/self/mountinfo").decode("utf-8", "surrogateescape")
        self._realm = realm
        self._hierarchies = hierarchies(mountinfo) if realm else {}
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
                return limit, f"{what}; it takes root and a writable {hierarchy.mount}"
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
        return usable and (hierarchy.version == 1 or (folder / "cgroup.kill").exists())

    def _prepare(self, hierarchy: Hierarchy, controller: str) -> None:
        """The realm's folder, and in version 2 the controller for all below it. Raises OSError."""
        folder = hierarchy.folder(self._realm)
        os.makedirs(folder, exist_ok=True)
        if hierarchy.version == 1:
            if not os.access(folder / "cgroup.procs", os.W_OK):
                raise PermissionError(1, "not writable")
            return
        for level in (hierarchy.mount, folder.parent, folder):
            if controller not in read(str(level / "cgroup.subtree_control")).decode().split():
                _write(level / "cgroup.subtree_control", f"+{controller}")


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

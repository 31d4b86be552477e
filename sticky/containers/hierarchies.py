"""The trees of control groups of this machine, and below which group of each ours may be. Must not make any group.

By proc_pid_mountinfo(5), proc_pid_cgroup(5) and systemd's CGROUP_DELEGATION.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import attrs

from sticky.containers.census import read

TOP = "sticky"
_OCTAL = re.compile(r"\\([0-7]{3})")
_UNITS = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")
_DELEGATED = ("user.delegate", "trusted.delegate")  # by systemd; the first one since version 251, for everybody to read


@attrs.frozen
class Hierarchy:
    """One tree of groups."""

    mount: Path
    version: int
    base: Path = attrs.field()  #: below this group ours are: the top, or one that was delegated to our unit

    @base.default
    def _top(self) -> Path:
        return self.mount

    @property
    def delegated(self) -> bool:
        return self.base != self.mount

    def folder(self, realm: str) -> Path:
        """Below this one the containers of a state directory are."""
        return self.base / TOP / realm


def hierarchies(mountinfo: str, own: str) -> Mapping[str, Hierarchy]:
    """The hierarchy of each controller; version 2's own tree is the one called "". `own`: a process's /proc/PID/cgroup."""
    found: dict[str, Hierarchy] = {}
    second: Hierarchy | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options, *_) = left.split(" "), [*right.split(" "), "", "", ""]
        if kind not in ("cgroup", "cgroup2") or len(fields) < 5:
            continue
        shown, mount = (_OCTAL.sub(lambda match: chr(int(match.group(1), 8)), field) for field in fields[3:5])
        if kind == "cgroup2":
            second = Hierarchy(Path(mount), 2, _base(Path(mount), PurePosixPath(shown), own))
            continue
        for controller in options.split(","):
            found.setdefault(controller, Hierarchy(Path(mount), 1))
    if second is not None:
        found[""] = second
        for controller in read(str(second.base / "cgroup.controllers")).decode().split():
            found[controller] = second  # a controller is in one hierarchy only
    return found


def _base(mount: Path, shown: PurePosixPath, own: str) -> Path:
    """The group of version 2 below which ours are.

    One that systemd has delegated to our unit keeps containers within what limits the unit, and takes no root. But nothing can
    be limited below it as long as a process is in it itself, as the daemon is unless systemd has put it into a subgroup
    (DelegateSubgroup=): whoever may use the top as well takes that then.
    """
    group = _delegated(mount, shown, own)
    if group is None:
        return mount
    inhabited = bool(read(str(group / "cgroup.procs")).split())
    return mount if inhabited and os.access(mount, os.W_OK) else group


def _delegated(mount: Path, shown: PurePosixPath, own: str) -> Path | None:
    """The group that is ours to divide, if there is one. `shown`: what of the hierarchy is mounted."""
    path = next((PurePosixPath(line[3:]) for line in own.splitlines() if line.startswith("0::")), None)
    if path is None or not path.is_relative_to(shown):
        return None
    group = mount / path.relative_to(shown)
    # The parent of a whole unit is the service manager's own, delegated to that and not to us.
    candidates = [group] if group.suffix in _UNITS else [group, group.parent]
    return next((each for each in candidates if mount in each.parents and _is_ours(each)), None)


def _is_ours(group: Path) -> bool:
    return any(_attribute(group, name) == b"1" for name in _DELEGATED) and all(
        os.access(each, os.W_OK) for each in (group, group / "cgroup.procs")
    )


def _attribute(group: Path, name: str) -> bytes:
    try:
        return os.getxattr(group, name)
    except OSError:
        return b""

"""What `spawn.py` is told of a Server's isolation: a line for each thing. Must not start anything.

Also who another user is, and what a file system of its own looks like, as the arguments of bubblewrap.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sticky.containers.cgroups import Group
from sticky.containers.isolation import RUNTIME_FOLDER, Descendants, Isolation
from sticky.isticky import ContainerSpec

BUBBLEWRAP = "bwrap"
_TEMPORARY = ("/tmp", "/var/tmp")


@attrs.frozen
class User:
    """Who a program runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def variables(self) -> Mapping[str, str]:
        """What programs believe about themselves; the daemon's own HOME is closed to another user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def user(text: str) -> User:
    """`name`, `uid`, `name:group` or `uid:gid`. Raises ValueError for whom the machine does not know."""
    who, colon, group = text.partition(":")
    try:
        found = pwd.getpwuid(int(who)) if who.isdigit() else pwd.getpwnam(who)
    except KeyError:
        raise ValueError(f"there is no user {who!r} on this machine") from None
    if not colon:
        groups = tuple(sorted(os.getgrouplist(found.pw_name, found.pw_gid)))
        return User(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)
    try:
        gid = grp.getgrgid(int(group)).gr_gid if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {group!r} on this machine") from None
    return User(found.pw_name, found.pw_uid, gid, (gid,), found.pw_dir)


def bubblewrap() -> str | None:
    """Where it is installed."""
    return shutil.which(BUBBLEWRAP)


def lines(spec: ContainerSpec, isolation: Isolation, group: Group | None, who: User | None) -> str:
    """For `spawn.py`. Raises ValueError for what cannot be said."""
    said = [f"cgroup {entrance}" for entrance in group.entrances] if group is not None else []
    if group is None and isolation.descendants is not Descendants.PID_NAMESPACE:
        said.append("subreaper yes")  # so that whoever hides has a parent by which it is found
    if isolation.network:
        said.append("network yes")
    if isolation.descendants is Descendants.PID_NAMESPACE:
        said.append("pid_namespace yes")
    if isolation.wrapped:
        program = bubblewrap()
        if program is None:
            raise ValueError(f"{BUBBLEWRAP} is not installed (Debian package: bubblewrap)")
        said += [f"wrap {argument}" for argument in (program, *_file_system(spec, isolation))]
    said += [f"rlimit {name} {value}" for name, value in isolation.rlimits.items()]
    if who is not None:
        said.append(f"user {who.uid} {who.gid} {' '.join(map(str, who.groups))}".rstrip())
    if any(len(line.splitlines()) != 1 for line in said):
        raise ValueError("a path has a line break in it")
    return "\n".join(said)


def _file_system(spec: ContainerSpec, isolation: Isolation) -> Iterator[str]:
    """The machine's, without the state directory, with a /tmp and /dev of its own; what lies in those and is needed comes back."""
    yield "--die-with-parent"
    yield from (("--ro-bind" if isolation.read_only else "--bind"), "/", "/")
    yield from ("--dev", "/dev")
    private = [folder for folder in _TEMPORARY if os.path.isdir(folder)]
    for folder in private:
        yield from ("--perms", "1777", "--tmpfs", folder)
    reading = "--ro-bind" if isolation.read_only else "--bind"
    for path in _needed(spec):
        if any(_below(path, folder) for folder in private):
            yield from (reading, path, path)
    others = [str(spec.scratch.parent)] if spec.scratch.is_relative_to(RUNTIME_FOLDER) else []
    for folder in (isolation.state_dir, *others):
        if os.path.isdir(folder):
            yield from ("--tmpfs", folder)
    for path in (*isolation.writable, *([isolation.kept] if isolation.kept else [])):
        yield from ("--bind", path, path)
    yield from ("--bind", str(spec.scratch), str(spec.scratch))


def _needed(spec: ContainerSpec) -> Sequence[str]:
    """The working directory, the program, and Python with what we are, for the launcher and the runtime."""
    ours = str(Path(__file__).resolve().parents[2])
    program = spec.command[0] if spec.command and os.path.isabs(spec.command[0]) else ""
    needed = [str(spec.directory), sys.prefix, sys.base_prefix, ours, os.path.dirname(program)]
    return [path for path in dict.fromkeys(needed) if path and os.path.isdir(path)]


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

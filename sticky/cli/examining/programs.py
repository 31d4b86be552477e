"""Whether containers' programs are there, as whom they run, and whether that user can read the daemon's secrets (docs/security.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sticky.cli.examining.findings import Finding, Grade, user_name
from sticky.config.programs import absent
from sticky.config.settings import ServerSettings

_WALL = "Set `user` or `isolation` if you do not trust the program (docs/isolation.md)."
_READS = "and can read the state directory with its keys"


def there(servers: Sequence[ServerSettings]) -> Iterator[Finding]:
    """Whether their programs are where a daemon with our environment would look for them."""
    for server in servers:
        problem = absent(server, os.environ)
        if problem:
            yield Finding(Grade.FAIL, "program", f"of {server.name}: {problem}", "Install it, or mend `command`.")


def engines(servers: Sequence[ServerSettings]) -> Iterator[Finding]:
    """Whether the Engines of those that run in Docker are there for us, and have their images."""
    from sticky.possible import DOCKER, absent_engines

    problems = {server.name: problem for server, problem in absent_engines(servers)}
    for server in servers:
        if server.backend != DOCKER or not server.docker:
            continue
        if server.name in problems:
            text, advice = f"of {server.name}: {problems[server.name]}", "See docs/docker.md; sticky check asks again."
            yield Finding(Grade.FAIL, "engine", text, advice)
        else:
            yield Finding(Grade.OK, "engine", f"of {server.name} answers at {server.docker['socket']}")


def of_settings(servers: Sequence[ServerSettings]) -> Iterator[Finding]:
    """As a configuration says. The daemon is taken to run as who asks."""
    me = user_name(os.geteuid())
    for server in servers:
        who = f"of {server.name} run as"
        isolation = server.isolation or {}
        if server.backend == "docker":
            yield Finding(Grade.OK, "containers", f"{who} the image says, in Docker, without the state directory")
        elif server.backend != "process":
            yield Finding(Grade.OK, "containers", f"{who} the backend {server.backend} says")
        elif server.user is not None:
            yield Finding(Grade.OK, "containers", f"{who} {server.user}, for whom the state directory is closed")
        elif isolation.get("read_only") or isolation.get("private_tmp"):
            yield Finding(Grade.OK, "containers", f"{who} {me}, who is kept from the state directory there")
        else:
            grade = Grade.WARN if os.geteuid() == 0 else Grade.OK
            yield Finding(grade, "containers", f"{who} {me}, {_READS}", _WALL)


def that_run(servers: Sequence[Mapping[str, Any]], state_dir: Path) -> Iterator[Finding]:
    """As the kernel says of those of a daemon that runs."""
    owner = state_dir.stat().st_uid
    for server in servers:
        seen = {_who(one["pid"], owner) for one in server["containers"] if one["pid"]} - {None}
        for uid, reads in sorted(one for one in seen if one is not None):
            what = _READS if reads else "and cannot read the state directory"
            grade = Grade.WARN if reads and uid == 0 else Grade.OK
            text = f"of {server['name']} run as {user_name(uid)}, {what}"
            yield Finding(grade, "containers", text, _WALL if reads else "")


def _who(pid: int, owner: int) -> tuple[int, bool] | None:
    """(user, whether that one can read the owner's files), None if it has ended."""
    process = Path("/proc", str(pid))
    try:
        uid = process.stat().st_uid
        inside = os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt")
    except FileNotFoundError:
        return None
    return uid, uid in (0, owner) and not inside

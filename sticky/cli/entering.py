"""`sticky containers exec`: a command in a running container, as the program there sees the world. Replaces this process.

A child process is entered by its namespaces, with its environment, folder and user; a Docker container by `docker exec`. The
command carries the container's mark in its environment, so that it ends with the container at the latest.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, container_argument, daemon
from sticky.cli.problems import Problem, Status

NOT_FOUND = 127  #: exit status for a command that is not there, as a shell's
NOT_RUN = 126  #: for one that cannot be run
_NAMESPACES = ("user", "mnt", "net", "ipc", "uts", "cgroup")
_OPTIONS = {"mnt": "mount"}  # of nsenter, where they are not the namespace's name
#: What was the runtime's own.
_NOT_OURS = ("STICKY_READY_FD", "STICKY_READY_FILE")


def add_to(group: click.Group) -> None:
    """Register the command."""

    @command(
        group,
        "exec",
        "sticky containers exec ct-8sKd -- ps aux\nsticky containers exec ct-8sKd -- sh",
    )
    @container_argument
    @click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
    @daemon
    def exec_(container: str, words: tuple[str, ...], admin: Admin) -> int:
        """Run a command in a container: its namespaces, environment, folder and user.

        Exits as the command does; 126 if it cannot be run, 127 if there is none. Works where the daemon runs.
        """
        _ = admin.local  # a process of this machine is entered
        servers = admin.status()["servers"]
        boxes = [(one, server["backend"]) for server in servers for one in server["containers"]]
        found = [box for box in boxes if box[0]["id"] == container]
        found = found or [box for box in boxes if box[0]["id"].startswith(container)]
        if len(found) > 1:
            raise Problem(f"several containers begin with {container!r}", Status.USAGE, "Write more of the id.")
        if not found or len(container) < 4:
            raise Problem(
                f"no container {container!r} is running", Status.NOT_FOUND, "List them: sticky containers list"
            )
        ((box, backend),) = found
        sys.stdout.flush()
        enter(box, backend, words)


def enter(box: Mapping[str, Any], backend: str, words: Sequence[str]) -> NoReturn:
    """Become the command. Raises `Problem` where that cannot be."""
    if backend == "docker":
        terminal = ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
        _become(["docker", "exec", "--interactive", *terminal, f"sticky-{box['id']}", *words], os.environ, "docker.io")
    if box["pid"] is None:
        raise Problem(f"{box['id']} runs on the backend {backend}, which has no process to enter", Status.FAILED)
    target = Path("/proc", str(_program(int(box["pid"]))))
    try:
        environ = dict(
            os.fsdecode(entry).split("=", 1)
            for entry in (target / "environ").read_bytes().split(b"\0")
            if b"=" in entry
        )
        foreign = [name for name in _NAMESPACES if _namespace(target, name) != _namespace(Path("/proc/self"), name)]
        other_pids = _namespace(target, "pid") != _namespace(Path("/proc/self"), "pid")
        owner = target.stat()
    except FileNotFoundError:
        raise Problem(f"{box['id']} has ended", Status.NOT_FOUND) from None
    except PermissionError:
        raise Problem(
            f"{box['id']} cannot be entered: its process {box['pid']} is another user's",
            Status.FAILED,
            "Run the command as root (sudo).",
        ) from None
    environ = {name: value for name, value in environ.items() if name not in _NOT_OURS}
    options = [f"--{_OPTIONS.get(name, name)}={target}/ns/{name}" for name in foreign]
    if other_pids:
        options.append(f"--pid={target}/ns/pid")
    stranger = owner.st_uid != os.geteuid()
    if not options and not stranger:
        os.chdir(target / "cwd")
        _become(list(words), environ)
    if stranger:
        options += [f"--setuid={owner.st_uid}", f"--setgid={owner.st_gid}"]
    elif "user" in foreign:
        options.append("--preserve-credentials")
    _become(["nsenter", *options, f"--wd={target}/cwd", "--", *words], environ, "util-linux")


def _program(pid: int) -> int:
    """Where a container has processes' numbers of its own, its leader stays outside and has one child inside."""
    try:
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        inside = _namespace(Path("/proc", child), "pid") != _namespace(Path("/proc", str(pid)), "pid")
    except (OSError, ValueError):
        return pid
    return int(child) if inside else pid


def _namespace(process: Path, name: str) -> str:
    return os.readlink(process / "ns" / name)


def _become(words: Sequence[str], environ: Mapping[str, str], tool: str = "") -> NoReturn:
    """`tool`: the package of our own tool that this is; else it is the container's command, on the container's PATH."""
    path = shutil.which(words[0], path=None if tool else environ.get("PATH"))
    if path is None and tool:
        raise Problem(f"there is no {words[0]} on the PATH", Status.FAILED, f"Install it: apt install {tool}")
    if path is None:
        raise Problem(f"there is no command {words[0]!r} in the container", NOT_FOUND)
    try:
        os.execve(path, list(words), environ)
    except OSError as error:
        raise Problem(f"{words[0]} cannot be run: {error.strerror}", NOT_RUN) from None

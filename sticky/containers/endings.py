"""What an operator is told about the end of a container: one line of text for each way to end. Pure, but for one look at a file."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from sticky.isticky import ContainerSpec


def cannot_start(step: str, number: int, command: str, directory: Path) -> str:
    """Why the program could not be started: the step of `spawn.py` that failed, and its errno."""
    if step == "chdir":
        return f"cannot use the working directory {directory}: {os.strerror(number)}"
    if step != "exec":
        return f"cannot start {command}: {os.strerror(number)} ({step})"
    if number == errno.ENOENT and "/" in command and (directory / command).exists():
        return f"cannot start {command}: the interpreter named in its first line (#!) does not exist"
    if number == errno.ENOENT:
        return f"command not found: {command}"
    if number == errno.EACCES:
        return f"command is not executable: {command}"
    if number == errno.ENOEXEC:
        return f"cannot start {command}: neither a program of this machine nor a script that begins with #!"
    return f"cannot start {command}: {os.strerror(number)}"


def ended(status: int | None, number: int | None, was_ready: bool) -> str:
    """How the program ended by itself or by a signal; both None where only its parent is told."""
    when = "" if was_ready else " before it was ready"
    if number is None and status is None:
        return f"ended{when}; its exit status is not known to a daemon that took it over from an earlier one"
    if number is None:
        return f"exited with status {status}{when}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"ended by {name}{when}"


def out_of_memory(was_ready: bool) -> str:
    """The kernel's doing."""
    return f"killed by the kernel{'' if was_ready else ' before it was ready'}: out of memory"


def only_one_copy(spec: ContainerSpec, port: int, holder: str) -> str:
    """A program that listens where all its copies would."""
    return (
        f"the program of Server {spec.server} listens on the fixed port {port}, which container {holder} has already, "
        "so only one copy can run: let it listen on the port in the environment variable PORT "
        "(or {port} in its command), or set max_containers = 1"
    )


def port_taken(port: int, holder: str | None) -> str:
    """Somebody else listens where this container should have."""
    by = "another program" if holder is None else holder
    return f"port {port} is in use by {by}"

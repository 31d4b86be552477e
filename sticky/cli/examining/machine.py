"""What a machine must be like for a daemon to do well: its limits, ports, clock and cgroups, and who we are there."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sticky.cli.examining.findings import Finding, Grade, user_name
from sticky.containers.census import read
from sticky.containers.cgroups import Cgroups

#: Open files: two for each request in flight, two for each WebSocket, some for each container.
ENOUGH_FILES: Final = 16_384
CONTAINER_PORTS: Final = range(20_000, 30_000)  #: where containers listen


def user() -> Iterator[Finding]:
    """As whom the daemon would run."""
    name = user_name(os.geteuid())
    if os.geteuid() == 0:
        yield Finding(
            Grade.WARN,
            "user",
            "root: containers run as root too",
            "Run the daemon as a user of its own, or use a backend that isolates its containers.",
        )
    else:
        yield Finding(
            Grade.OK,
            "user",
            f"{name}; containers of the process backend run as the same user and can read the state directory",
        )


def open_files() -> Iterator[Finding]:
    """RLIMIT_NOFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < ENOUGH_FILES:
        advice = f"ulimit -n {ENOUGH_FILES}" if hard < 0 or hard >= ENOUGH_FILES else "Raise the hard limit first, too"
        text = f"{soft} (a connection takes two on its way to a container)"
        yield Finding(Grade.WARN, "open files", text, f"{advice}; with systemd: LimitNOFILE={ENOUGH_FILES}")
    else:
        yield Finding(Grade.OK, "open files", "no limit" if soft < 0 else str(soft))


def processes() -> Iterator[Finding]:
    """RLIMIT_NPROC."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < 512:
        yield Finding(Grade.WARN, "processes", f"this user may have {soft}", "ulimit -u 4096; with systemd: TasksMax=")
    else:
        yield Finding(Grade.OK, "processes", "no limit" if soft < 0 else str(soft))


def ports() -> Iterator[Finding]:
    """Whether the kernel gives containers' ports to outgoing connections."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    lost = range(max(low, CONTAINER_PORTS.start), min(high + 1, CONTAINER_PORTS.stop))
    if len(lost):
        yield Finding(
            Grade.WARN,
            "ports",
            f"outgoing connections may take {lost.start} to {lost.stop - 1}, where containers listen",
            'sysctl -w net.ipv4.ip_local_port_range="32768 60999"',
        )
    else:
        yield Finding(Grade.OK, "ports", f"containers have {CONTAINER_PORTS.start} to {CONTAINER_PORTS.stop - 1}")


def backlog() -> Iterator[Finding]:
    """Connections that nobody has accepted yet."""
    waiting = int(Path("/proc/sys/net/core/somaxconn").read_text())
    if waiting < 1024:
        text = f"{waiting} connections may wait to be accepted"
        yield Finding(Grade.WARN, "backlog", text, "sysctl -w net.core.somaxconn=4096")
    else:
        yield Finding(Grade.OK, "backlog", str(waiting))


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2), as far as it is looked at: asked with modes 0 it changes nothing."""

    _fields_ = [("modes", ctypes.c_uint), ("rest", ctypes.c_byte * 252)]


def clock() -> Iterator[Finding]:
    """Whether somebody keeps it right."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(_Timex(0)))
    if state == 5:  # TIME_ERROR: nobody keeps it right
        yield Finding(
            Grade.WARN,
            "clock",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, and nothing keeps it right (or a container hides what does)",
            "Run chrony or systemd-timesyncd: tokens carry times, though five minutes do not matter.",
        )
    else:
        yield Finding(Grade.OK, "clock", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")


def cgroup(daemon: int | None) -> Iterator[Finding]:
    """Where a daemon of this user may keep its containers: the one that answers, else one that was started here.

    By a folder of our own beside those of daemons, which does not stay.
    """
    own = None if daemon is None else read(f"/proc/{daemon}/cgroup").decode("utf-8", "surrogateescape")
    cgroups = Cgroups(f"doctor-{os.getpid()}", own=own)
    try:
        tracker = cgroups.tracker()
        if tracker is not None:
            text = f"version {tracker.version}, {tracker.base}: nothing that a container started outlives it"
            yield Finding(Grade.OK, "cgroup", text)
            return
    finally:
        cgroups.close()
    yield Finding(
        Grade.WARN,
        "cgroup",
        "none that the daemon may write to: what a container's programs leave behind is found by a search of /proc, at best",
        "With systemd: Delegate=yes and DelegateSubgroup=daemon in the daemon's unit.",
    )

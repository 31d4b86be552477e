"""What a machine and a state directory must be like for a daemon to do well. Each check gives findings; none changes anything."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final

import attrs

from sticky.cli.client import Admin
from sticky.cli.problems import Problem
from sticky.config.loading import load
from sticky.config.settings import Settings
from sticky.containers.census import read
from sticky.containers.cgroups import Cgroups
from sticky.containers.plugins import installed
from sticky.errors import ConfigError

ENOUGH_FILES: Final = (
    16_384  #: open files: two for each request in flight, two for each WebSocket, some for each container
)
ENOUGH_DISK: Final = 512 * 2**20  #: bytes: 10 MiB of log for each container, and the journal
SOON: Final = timedelta(days=21)  #: before its expiry a certificate is worth a warning
CONTAINER_PORTS: Final = range(20_000, 30_000)  #: where containers listen


class Grade(Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    found: str
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def examine(admin: Admin, config: Path | None) -> list[Finding]:
    """Everything, in order of what is to be mended first. A check that fails itself is a finding."""
    settings, findings = _settings(config)
    daemon, about = _daemon(admin)
    findings = [*about, *findings]
    checks: list[Check] = [
        lambda: _state_dir(admin.local.state_dir),
        _user,
        _open_files,
        _processes,
        _ports,
        _backlog,
        _clock,
        lambda: _cgroup(daemon),
    ]
    if settings is not None:
        checks += [lambda: _listeners(settings, daemon is not None), lambda: _certificates(settings)]
    for check in checks:
        try:
            findings += check()
        except OSError as error:
            findings.append(Finding(Grade.WARN, "doctor", f"a check could not be made: {error}"))
    return findings


def _settings(config: Path | None) -> tuple[Settings | None, list[Finding]]:
    if config is None:
        return None, []
    try:
        settings = load(file=config, app=None, flags={}, cwd=Path.cwd(), environ=os.environ, backends=installed())
    except ConfigError as error:
        return None, [Finding(Grade.FAIL, "configuration", str(error), "Mend it, then run sticky check.")]
    findings = [Finding(Grade.OK, "configuration", f"{config} is right")]
    findings += [Finding(Grade.WARN, "configuration", warning) for warning in settings.warnings]
    return settings, findings


def _daemon(admin: Admin) -> tuple[int | None, list[Finding]]:
    """Its pid; None if it does not answer."""
    try:
        found = admin.status()
    except Problem as problem:
        return None, [Finding(Grade.WARN, "daemon", problem.text, problem.advice)]
    daemon = found["daemon"]
    findings = [Finding(Grade.OK, "daemon", f"sticky {daemon['version']} answers, pid {daemon['pid']}")]
    for server in found["servers"]:
        if server["failures"]["in_a_row"]:
            times = server["failures"]["in_a_row"]
            text = f"containers of {server['name']} fail to start ({times} in a row)"
            findings.append(Finding(Grade.FAIL, "containers", text, "Why: sticky status"))
    return int(daemon["pid"]), findings


def _state_dir(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(Grade.OK, "state directory", f"{path} is not there yet; the daemon makes it")
        return
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if not path.is_dir():
        yield Finding(Grade.FAIL, "state directory", f"{path} is no directory", "Choose another one with --state-dir.")
    elif mode & 0o022:
        yield Finding(Grade.FAIL, "state directory", f"others can write to {path}", f"chmod 700 {path}")
    elif mode & 0o055:
        yield Finding(Grade.WARN, "state directory", f"others can look into {path}", f"chmod 700 {path}")
    elif found.st_uid not in (os.geteuid(), 0):
        owner = _user_name(found.st_uid)
        yield Finding(Grade.WARN, "state directory", f"{path} belongs to {owner}", f"Run the daemon as {owner}.")
    else:
        yield Finding(Grade.OK, "state directory", f"{path}, mode {mode:04o}")
    for name in ("signing-key", "proxy-token"):
        secret = path / name
        if secret.exists() and secret.stat().st_mode & 0o077:
            yield Finding(Grade.FAIL, "secrets", f"others can read {secret}", f"chmod 600 {secret}, and make a new one")
    free = shutil.disk_usage(path).free
    grade = Grade.OK if free >= ENOUGH_DISK else Grade.WARN if free > 2**24 else Grade.FAIL
    advice = "" if grade is Grade.OK else "Make room: without it nothing new can be started or ended."
    yield Finding(grade, "disk", f"{free // 2**20} MiB free for the state directory", advice)
    longest = len(os.fsencode(path / "admin.sock"))
    if longest > 107:
        text = f"the path of the admin socket has {longest} bytes, more than the 107 that a socket may have"
        yield Finding(Grade.WARN, "state directory", text, "Use a shorter --state-dir, or set daemon.admin.")


def _user() -> Iterator[Finding]:
    name = _user_name(os.geteuid())
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


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < ENOUGH_FILES:
        advice = f"ulimit -n {ENOUGH_FILES}" if hard < 0 or hard >= ENOUGH_FILES else "Raise the hard limit first, too"
        text = f"{soft} (a connection takes two on its way to a container)"
        yield Finding(Grade.WARN, "open files", text, f"{advice}; with systemd: LimitNOFILE={ENOUGH_FILES}")
    else:
        yield Finding(Grade.OK, "open files", "no limit" if soft < 0 else str(soft))


def _processes() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < 512:
        yield Finding(Grade.WARN, "processes", f"this user may have {soft}", "ulimit -u 4096; with systemd: TasksMax=")
    else:
        yield Finding(Grade.OK, "processes", "no limit" if soft < 0 else str(soft))


def _ports() -> Iterator[Finding]:
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


def _backlog() -> Iterator[Finding]:
    waiting = int(Path("/proc/sys/net/core/somaxconn").read_text())
    if waiting < 1024:
        text = f"{waiting} connections may wait to be accepted"
        yield Finding(Grade.WARN, "backlog", text, "sysctl -w net.core.somaxconn=4096")
    else:
        yield Finding(Grade.OK, "backlog", str(waiting))


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2), as far as it is looked at: asked with modes 0 it changes nothing."""

    _fields_ = [("modes", ctypes.c_uint), ("rest", ctypes.c_byte * 252)]


def _clock() -> Iterator[Finding]:
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


def _cgroup(daemon: int | None) -> Iterator[Finding]:
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


def _listeners(settings: Settings, daemon_answers: bool) -> Iterator[Finding]:
    if daemon_answers:
        yield Finding(Grade.OK, "listeners", "not tried: the daemon has them")
        return
    for endpoint in settings.daemon.listen:
        kind, _, rest = endpoint.removeprefix("haproxy:").partition(":")
        port = rest.partition(":")[0].removeprefix("port=")
        if kind not in ("tcp", "ssl") or not port.isdigit() or port == "0":
            continue
        host = next((part.removeprefix("interface=") for part in rest.split(":") if part.startswith("interface=")), "")
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, int(port)))
        except OSError as error:
            advice = "Choose another port, or stop what has it: ss -ltnp"
            if isinstance(error, PermissionError):
                advice = "Ports below 1024 need CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities=)."
            yield Finding(Grade.FAIL, "listeners", f"{endpoint}: {error.strerror}", advice)
        else:
            yield Finding(Grade.OK, "listeners", f"port {port} is free")


def _certificates(settings: Settings) -> Iterator[Finding]:
    from cryptography.x509 import load_pem_x509_certificate

    for endpoint in settings.daemon.listen:
        for part in endpoint.replace("\\:", "\0").split(":"):
            name, _, value = part.replace("\0", ":").partition("=")
            path = Path(value.replace("\\", ""))
            if name == "privateKey" and path.exists() and path.stat().st_mode & 0o077:
                yield Finding(Grade.WARN, "TLS", f"others can read the private key {path}", f"chmod 600 {path}")
            if name == "certKey":
                ends = load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
                left = ends - datetime.now(UTC)
                grade = Grade.FAIL if left <= timedelta() else Grade.WARN if left < SOON else Grade.OK
                advice = "" if grade is Grade.OK else "Renew it and restart the daemon."
                yield Finding(grade, "TLS", f"{path} is good until {ends:%Y-%m-%d}", advice)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

"""Can this machine, and this daemon on it, do what a Server's isolation asks for: looked at before anything starts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping

import attrs

from sticky.containers import confinement
from sticky.containers.census import read
from sticky.containers.cgroups import Cgroups
from sticky.containers.isolation import Descendants, Isolation, key_of

_SYS_ADMIN, _SETUID, _SETGID, _CHOWN, _SYS_RESOURCE = 21, 7, 6, 0, 24  # capabilities(7)
_ENOUGH_FOR_PYTHON = 16 << 20  # bytes; the launcher takes 9 MiB before the program begins
_TRIAL = 10.0  # seconds for bubblewrap to show that it works


def capabilities() -> int:
    """The effective ones of this process, a bit for each."""
    found = re.search(rb"^CapEff:\s*([0-9a-f]+)$", read("/proc/self/status"), re.MULTILINE)
    return int(found.group(1), 16) if found else 0


def wraps() -> str | None:
    """Why bubblewrap cannot be used here; None if it can. Runs it once."""
    program = confinement.bubblewrap()
    if program is None:
        return "bwrap is not installed (Debian package: bubblewrap)"
    try:
        tried = subprocess.run(
            [program, "--ro-bind", "/", "/", "--dev", "/dev", "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TRIAL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap cannot be run: {error}"
    if tried.returncode == 0:
        return None
    said = tried.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"status {tried.returncode}"]
    return f"bwrap does not work here, for this user: {said[0]}"


def problem(options: Mapping[str, object], realm: str) -> tuple[str, str] | None:
    """What of a Server's isolation cannot be had here: the setting, and what is missing. Blocks for some milliseconds."""
    cgroups = Cgroups(realm)
    try:
        found = Machine(cgroups).problem(Isolation.read(options))
    except ValueError as error:
        return "isolation", str(error)
    finally:
        cgroups.close()
    return None if found is None else (key_of(found[0]), found[1])


@attrs.frozen
class Machine:
    """What is asked of it; tests ask another one."""

    cgroups: Cgroups
    capabilities: Callable[[], int] = capabilities
    wraps: Callable[[], str | None] = wraps

    def problem(self, isolation: Isolation) -> tuple[str, str] | None:
        """The first thing that cannot be had, as a field of `Isolation`, and what is missing for it. Blocks for some ms."""
        if isolation.network and not self._may(_SYS_ADMIN):
            return "network", "a network namespace takes root (CAP_SYS_ADMIN), and this daemon has not got it"
        if isolation.memory is not None and isolation.memory < _ENOUGH_FOR_PYTHON:
            return "memory", "is too little to start anything in; allowed: 16Mi and more"
        found = self.cgroups.problem(isolation)
        if found is not None:
            return found
        if isolation.descendants is Descendants.CGROUP and self.cgroups.tracker() is None:
            return "descendants", "there is no cgroup hierarchy that this daemon may write to: it takes root"
        if isolation.descendants is Descendants.PID_NAMESPACE and not self._may(_SYS_ADMIN):
            return "descendants", "a pid namespace takes root (CAP_SYS_ADMIN), and this daemon has not got it"
        return self._about_user(isolation) or self._about_rlimits(isolation) or self._about_files(isolation)

    def _may(self, *wanted: int) -> bool:
        have = self.capabilities()
        return all(have >> number & 1 for number in wanted)

    def _about_user(self, isolation: Isolation) -> tuple[str, str] | None:
        if isolation.user is None:
            return None
        try:
            confinement.user(isolation.user)
        except ValueError as error:
            return "user", str(error)
        if not self._may(_SETUID, _SETGID, _CHOWN):
            return "user", "another user takes root (CAP_SETUID, CAP_SETGID, CAP_CHOWN), and this daemon has not got it"
        return None

    def _about_rlimits(self, isolation: Isolation) -> tuple[str, str] | None:
        import resource

        for name, value in isolation.rlimits.items():
            number = getattr(resource, f"RLIMIT_{name.upper()}", None)
            if number is None:
                return "rlimits", f"this system has no limit {name}"
            hard = resource.getrlimit(number)[1]
            if hard != resource.RLIM_INFINITY and value > hard and not self._may(_SYS_RESOURCE):
                return "rlimits", f"{name} = {value} is above this daemon's own hard limit, which is {hard}"
        return None

    def _about_files(self, isolation: Isolation) -> tuple[str, str] | None:
        if isolation.writable and not isolation.wrapped:
            return "writable", "is of no use without read_only or private_tmp"
        if not isolation.wrapped:
            return None
        for path in isolation.writable:
            if not os.path.exists(path):
                return "writable", f"there is no {path}"
        problem = self.wraps()
        return None if problem is None else ("read_only" if isolation.read_only else "private_tmp", problem)

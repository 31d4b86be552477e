"""What Servers ask of their backends, and whether this machine, and this process on it, can do that. Starts and opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sticky.config.settings import ServerSettings, Settings
from sticky.containers import abilities, isolation
from sticky.containers.ownership import realm_of
from sticky.errors import ConfigError
from sticky.sockets import SHARED_KINDS, shareable

PROCESS = "process"  #: the backend of child processes, whose options are settings of their own
_NOT_YET = "no-state-directory"


def realm(settings: Settings) -> str:
    """The mark of this state directory's containers, by whatever path it is reached. Raises OSError."""
    try:
        return realm_of(settings.daemon.state_dir)
    except FileNotFoundError:
        return _NOT_YET  # nothing runs before a daemon has made it


def options(server: ServerSettings, settings: Settings) -> Mapping[str, object]:
    """What only its backend understands of a Server's settings."""
    if server.backend != PROCESS:
        return server.docker or {}
    return isolation.options(
        settings.daemon.state_dir,
        isolation=server.isolation,
        memory=server.memory,
        cpu=server.cpu,
        pids=server.pids,
        rlimits=server.rlimits,
        user=server.user,
        kept=packages_of(server, settings) if server.sandbox and server.sandbox["packages"] else None,
    )


def packages_of(server: ServerSettings, settings: Settings) -> Path:
    """Where a Server's sandboxes keep what they have installed."""
    return isolation.kept_folder(settings.daemon.state_dir, realm(settings), server.user, "packages")


def check_possible(settings: Settings) -> None:
    """Raises `ConfigError` for what this machine, or this process on it, cannot do; OSError for a state directory out of reach."""
    for endpoint in settings.daemon.listen:
        if settings.daemon.workers > 1 and not shareable(endpoint):
            kinds = ", ".join(f"{kind}:" for kind in SHARED_KINDS)
            raise ConfigError(
                "daemon", "listen", f"{endpoint} cannot be shared by several workers; allowed: {kinds} or workers = 1"
            )
    for server in settings.servers:
        ours = server.backend == PROCESS
        problem = abilities.problem(options(server, settings), realm(settings)) if ours else None
        if problem is not None:
            raise ConfigError(f"Server {server.name}", *problem)

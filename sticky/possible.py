"""What Servers ask of their backends, and whether this machine, and this process on it, can do that. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from sticky.config.settings import ServerSettings, Settings
from sticky.containers import abilities, isolation
from sticky.containers.docker import blocking
from sticky.containers.docker.faults import EngineError, EngineRefused, no_image
from sticky.containers.ownership import realm_of
from sticky.errors import ConfigError
from sticky.sockets import SHARED_KINDS, shareable

DOCKER = "docker"
PROCESS = "process"  #: the backend of child processes, whose options are settings of their own
_NOT_YET = "no-state-directory"


def realm(settings: Settings) -> str:
    """The mark of this state directory's containers, by whatever path it is reached. Raises OSError."""
    return realm_of(settings.daemon.state_dir)


def options(server: ServerSettings, settings: Settings) -> Mapping[str, object]:
    """What only its backend understands of a Server's settings. Raises as `realm`."""
    return _options(server, settings, realm(settings))


def _options(server: ServerSettings, settings: Settings, mark: str) -> Mapping[str, object]:
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
        kept=_packages_of(server, settings, mark) if server.sandbox and server.sandbox["packages"] else None,
    )


def packages_of(server: ServerSettings, settings: Settings) -> Path:
    """Where a Server's sandboxes keep what they have installed. Raises as `realm`."""
    return _packages_of(server, settings, realm(settings))


def _packages_of(server: ServerSettings, settings: Settings, mark: str) -> Path:
    return isolation.kept_folder(settings.daemon.state_dir, mark, server.user, "packages")


def check_possible(settings: Settings) -> None:
    """Raises `ConfigError` for what this machine, or this process on it, cannot do; OSError for a state directory out of reach."""
    for endpoint in settings.daemon.listen:
        if settings.daemon.workers > 1 and not shareable(endpoint):
            kinds = ", ".join(f"{kind}:" for kind in SHARED_KINDS)
            raise ConfigError(
                "daemon", "listen", f"{endpoint} cannot be shared by several workers; allowed: {kinds} or workers = 1"
            )
    try:
        mark = realm(settings)
    except FileNotFoundError:
        mark = _NOT_YET  # nothing runs before a daemon has made it
    for server in settings.servers:
        ours = server.backend == PROCESS
        problem = abilities.problem(_options(server, settings, mark), mark) if ours else None
        if problem is not None:
            raise ConfigError(f"Server {server.name}", *problem)


def absent_engines(servers: Sequence[ServerSettings]) -> Iterator[tuple[ServerSettings, str]]:
    """Servers whose containers could not start now, because their Engine is not there, not for us, or lacks their image; and why.

    Nothing is refused for that, it may come yet. Asks each Engine, which takes `blocking.TIMEOUT` seconds at most for each question.
    """
    answers: dict[str, str] = {}
    for server in servers:
        if server.backend != DOCKER or not server.docker:
            continue
        socket, image = str(server.docker["socket"]), str(server.docker["image"])
        if socket not in answers:
            answers[socket] = _problem_of_engine(socket)
        problem = answers[socket]
        if not problem and not server.docker.get("pull"):
            problem = _problem_of_image(socket, image)
        if problem:
            yield server, problem


def _problem_of_engine(socket: str) -> str:
    try:
        blocking.ask(socket, "/version", {})
    except EngineError as error:
        return str(error)
    return ""


def _problem_of_image(socket: str, image: str) -> str:
    try:
        blocking.ask(socket, f"/images/{quote(image, safe='/:@')}/json", {})
    except EngineRefused as error:
        return no_image(image) if error.not_found else ""
    except EngineError:
        return ""  # an Engine that is there and does not say
    return ""

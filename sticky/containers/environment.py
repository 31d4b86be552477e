"""What a container is told: its environment and the placeholders of its command. Pure; must not know how it is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sticky.isticky import ContainerSpec

PLACEHOLDERS = frozenset({"port", "host", "socket", "container_id", "url"})

#: What the daemon's environment hands on, besides LC_*. Nothing else: it may hold the daemon's secrets.
INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})

#: What a spec's own `env` cannot replace: readiness and the search for strays rely on it.
FIXED = frozenset(
    {
        "PORT",
        "STICKY_PORT",
        "STICKY_HOST",
        "STICKY_CONTAINER_ID",
        "STICKY_STATE",
        "STICKY_READY_FD",
        "STICKY_READY_FILE",
    }
)

#: Output goes to a file, where Python would keep what is printed back until a block of it is full: nobody would see it in time.
UNBUFFERED = "PYTHONUNBUFFERED"

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"  #: where the daemon itself has no PATH, so that a lookup means something

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def environment(
    spec: ContainerSpec,
    port: int,
    ready_fd: int | None,
    inherited: Mapping[str, str],
    *,
    realm: str = "",
    ready_file: Path | None = None,
) -> dict[str, str]:
    """The whole environment of a container. `ready_fd`, `ready_file`: where its runtime reports, if it does.

    `realm`: the mark of the state directory that it belongs to, if it has one.
    """
    result = {name: value for name, value in inherited.items() if name in INHERITED or name.startswith("LC_")}
    result.setdefault("PATH", DEFAULT_PATH)
    result[UNBUFFERED] = inherited.get(UNBUFFERED, "1")  # an empty one has Python buffer
    ours = {
        "PORT": str(port),
        "STICKY_PORT": str(port),
        "STICKY_HOST": spec.host,
        "STICKY_URL": spec.url,
        "STICKY_CONTAINER_ID": spec.container,
        "STICKY_SERVER": spec.server,
        "STICKY_DEPLOYMENT": spec.deployment,
        "STICKY_APP": spec.app,
        "MODAL_TASK_ID": spec.container,
        "MODAL_IS_REMOTE": "1",
    }
    if ready_fd is not None:
        ours["STICKY_READY_FD"] = str(ready_fd)
    if ready_file is not None:
        ours["STICKY_READY_FILE"] = str(ready_file)
    if realm:
        ours["STICKY_STATE"] = realm
    result.update(ours)
    result.update({name: value for name, value in spec.env.items() if name not in FIXED})
    return result


def filled(command: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The command with its placeholders replaced; `{{` and `}}` are braces; an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group()[0]
        return values.get(name, match.group())

    return [_BRACES.sub(replace, argument) for argument in command]


def placeholders(command: Iterable[str]) -> set[str]:
    """The names in braces that a command uses, known or not."""
    return {match.group(1) for argument in command for match in _BRACES.finditer(argument) if match.group(1)}

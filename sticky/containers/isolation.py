"""What a Server's child processes are kept from, and how much they may take: a value. Pure; must not know how it is done.

It travels as a spec's `options`: names as in the configuration, only what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

#: Where other users' containers have their scratch folders: the state directory is closed to them.
RUNTIME_FOLDER = Path("/run/sticky")
#: Where containers of other users keep what outlives them.
CACHE_FOLDER = Path("/var/cache/sticky")
INSIDE_PORT = 8000  #: where a program in a network of its own listens, if its Server names no port

_TABLE = ("network", "read_only", "private_tmp", "writable", "descendants")  # in [servers.NAME.isolation]


class Descendants(Enum):
    """How it is made sure that nothing of a container stays. The value is for operators."""

    CGROUP = "cgroup"  # everything in its cgroup is killed, whatever it did to hide
    PID_NAMESPACE = "pid_namespace"  # the kernel kills everything in it when its first process ends
    BEST_EFFORT = "best_effort"  # session, process group, parents, and marks in the environment


@attrs.frozen(kw_only=True)
class Isolation:
    """What is asked for. The default is a plain child process."""

    network: bool = False  #: a network namespace of its own, with nothing but its loopback
    read_only: bool = False  #: nothing can be written but scratch folder, `writable` and /tmp, which is private then
    private_tmp: bool = False
    writable: tuple[str, ...] = ()  #: paths
    descendants: Descendants | None = None  #: None: a cgroup where there is one
    memory: int | None = None  #: bytes, swap included
    cpu: float | None = None  #: processors
    pids: int | None = None  #: processes and threads
    rlimits: Mapping[str, int] = attrs.field(factory=dict)  #: names in lower case, without RLIMIT_
    user: str | None = None
    state_dir: str = ""  #: hidden from whom sees a file system of its own
    kept: str = ""  #: a folder of its user's that outlives it: made where it is missing, and never hidden

    @classmethod
    def read(cls, options: Mapping[str, object]) -> Isolation:
        """From a spec's options. Raises ValueError for what is none of ours."""
        values: dict[str, Any] = dict(options)
        if values.get("descendants") is not None:
            values["descendants"] = Descendants(values["descendants"])
        if "writable" in values:
            values["writable"] = tuple(values["writable"])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"unknown option of the process backend: {error}") from None

    @property
    def limited(self) -> bool:
        """Whether it takes a cgroup, whatever becomes of descendants."""
        return not (self.memory is None and self.cpu is None and self.pids is None)

    @property
    def wrapped(self) -> bool:
        """Whether it sees a file system of its own."""
        return self.read_only or self.private_tmp


def options(
    state_dir: Path,
    *,
    isolation: Mapping[str, object] | None = None,
    memory: int | None = None,
    cpu: float | None = None,
    pids: int | None = None,
    rlimits: Mapping[str, int] | None = None,
    user: str | None = None,
    kept: Path | None = None,
) -> Mapping[str, object]:
    """A spec's options from a Server's settings: those that say something, and where the daemon keeps its secrets."""
    asked = {"memory": memory, "cpu": cpu, "pids": pids, "rlimits": rlimits, "user": user, **(isolation or {})}
    asked["kept"] = "" if kept is None else str(kept)
    return {"state_dir": str(state_dir), **{name: value for name, value in asked.items() if value}}


def scratch_root(options: Mapping[str, object], realm: str) -> Path:
    """Where a Server's containers have their scratch folders: each one below, by its name."""
    return RUNTIME_FOLDER / realm if options.get("user") else Path(str(options["state_dir"])) / "run"


def kept_folder(state_dir: Path, realm: str, user: str | None, name: str) -> Path:
    """Where containers of a user keep something under this name: the state directory is closed to other users."""
    return state_dir / name if user is None else CACHE_FOLDER / realm / quote(user, safe="") / name


def key_of(name: str) -> str:
    """How the configuration calls a field of `Isolation`."""
    return f"isolation.{name}" if name in _TABLE else name

"""What we ask the Engine to create: options, environment, limits, labels, as the API's JSON. Pure; must not do any I/O.

Also how our containers are known again: by name and by labels, whoever restarts in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from sticky.containers.environment import environment, filled, placeholders
from sticky.core.values import ContainerId
from sticky.isticky import ContainerSpec

DEFAULT_SOCKET = "/var/run/docker.sock"
DEFAULT_PORT = 8000  #: where a program in a container with a network of its own listens, if its Server names no port

CONTAINER, SERVER, DEPLOYMENT = "sticky.container", "sticky.server", "sticky.deployment"
PORT = "sticky.port"  #: label: where we reach it on 127.0.0.1
HOME = "sticky.state-dir"  #: label: the mark of the state directory, so that two daemons on one Engine leave each other alone

EVERYWHERE = "0.0.0.0"  #: with a network of its own, 127.0.0.1 is not where published ports arrive


class Network(Enum):
    PUBLISH = "publish"  # a network of its own; its port is published on 127.0.0.1
    HOST = "host"  # the machine's network, without isolation


@attrs.frozen(kw_only=True)
class DockerOptions:
    """The settings of a Server's `docker` table, as `sticky.config` has read them."""

    image: str
    network: Network = Network.PUBLISH
    memory: int | None = None  #: bytes, swap included
    cpus: float | None = None
    pids: int | None = None
    user: str | None = None
    workdir: str | None = None
    read_only: bool = False
    mounts: tuple[str, ...] = ()  #: source:target or source:target:ro; a source without a slash is a volume's name
    init: bool = True
    pull: bool = False
    socket: str = DEFAULT_SOCKET

    @classmethod
    def read(cls, options: Mapping[str, object]) -> DockerOptions:
        """From a spec's options. Raises ValueError where they are not of this backend."""
        values: dict[str, Any] = dict(options)
        if not values.get("image"):
            raise ValueError("there is no image: give [servers.NAME.docker] with image")
        if "network" in values:
            values["network"] = Network(values["network"])
        if "mounts" in values:
            values["mounts"] = tuple(values["mounts"])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"unknown docker option: {error}") from None


def name(container: ContainerId) -> str:
    """What the Engine calls it."""
    return f"sticky-{container}"


def inside_port(spec: ContainerSpec, options: DockerOptions, outside: int) -> int:
    """Where the program itself listens, which is what its PORT says."""
    return outside if options.network is Network.HOST else spec.port or DEFAULT_PORT


def creation(spec: ContainerSpec, options: DockerOptions, label: str, outside: int) -> dict[str, Any]:
    """The body of POST /containers/create. `outside`: the port on 127.0.0.1. Raises ValueError for what cannot be had."""
    if spec.reports_ready:
        raise ValueError("a Python app runs as a child process, not in an image: give a command and an image instead")
    if "socket" in placeholders(spec.command):
        raise ValueError("{socket} cannot be used with backend docker: use {port}")
    port = inside_port(spec, options, outside)
    host = spec.host if options.network is Network.HOST else EVERYWHERE
    env = environment(attrs.evolve(spec, host=host), port, None, {})
    if "PATH" not in spec.env:
        del env["PATH"]  # the image's own is the right one
    body: dict[str, Any] = {
        "Image": options.image,
        "Env": [f"{key}={value}" for key, value in env.items()],
        "Labels": {
            CONTAINER: spec.container,
            SERVER: spec.server,
            DEPLOYMENT: spec.deployment,
            PORT: str(outside),
            HOME: label,
        },
        "Tty": False,
        "HostConfig": _host(options, port, outside),
    }
    if spec.command:
        values = {
            "port": str(port),
            "host": host,
            "container_id": spec.container,
            "url": spec.url,
        }
        body["Cmd"] = filled(spec.command, values)
    if options.network is Network.PUBLISH:
        body["ExposedPorts"] = {f"{port}/tcp": {}}
    if options.user is not None:
        body["User"] = options.user
    if options.workdir is not None:
        body["WorkingDir"] = options.workdir
    return body


def _host(options: DockerOptions, port: int, outside: int) -> dict[str, Any]:
    host: dict[str, Any] = {
        "Init": options.init,
        "AutoRemove": False,  # its exit status and last lines are read first
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        "ReadonlyRootfs": options.read_only,
        "Mounts": [_mount(text) for text in options.mounts],
    }
    if options.network is Network.HOST:
        host["NetworkMode"] = "host"
    else:
        host["PortBindings"] = {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(outside)}]}
    if options.read_only:
        host["Tmpfs"] = {"/tmp": "rw,nosuid,nodev"}
    if options.memory is not None:
        host["Memory"] = host["MemorySwap"] = options.memory
    if options.cpus is not None:
        host["NanoCpus"] = round(options.cpus * 1_000_000_000)
    if options.pids is not None:
        host["PidsLimit"] = options.pids
    return host


def _mount(text: str) -> dict[str, Any]:
    # A Mount, not a Bind: for a source that does not exist a Bind makes a directory of root's.
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"the mount {text} is not of the form source:/target or source:/target:ro")
    kind = "bind" if "/" in source else "volume"
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": mode == "ro"}


def port_of(labels: object) -> int | None:
    """Where a container with these labels is reached on 127.0.0.1."""
    text = labels.get(PORT) if isinstance(labels, Mapping) else None
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def pull_parameters(image: str) -> dict[str, str]:
    """The query of POST /images/create. Without a tag an Engine would bring all tags of a name."""
    if "@" in image or ":" in image.rpartition("/")[2]:
        return {"fromImage": image}
    return {"fromImage": image, "tag": "latest"}

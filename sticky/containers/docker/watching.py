"""When a container on an Engine is ready: which address is asked, how, and whose socket may answer. Must not know its life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import Deferred

from sticky.containers.docker.holding import lasts
from sticky.containers.docker.recipe import DockerOptions, Network
from sticky.containers.knocking import IProbeReactor, Knocker, http_status
from sticky.containers.ownership import owns_listener
from sticky.containers.readiness import Readiness
from sticky.core.values import ContainerId
from sticky.isticky import Address, ContainerSpec, TCPAddress

LOOPBACK = "127.0.0.1"


def watch(
    reactor: IProbeReactor,
    spec: ContainerSpec,
    options: DockerOptions,
    port: int,
    pid: int | None,
    knocker: Knocker,
    found: Callable[[Address], None],
) -> Readiness:
    """Not started yet. `port`: on 127.0.0.1. `pid`: the container's first process on this machine, if that is known."""
    path = spec.ready_path

    def status(address: Address) -> Deferred[int]:
        return http_status(reactor, address, path or "/")

    def stays(address: Address) -> Deferred[int]:
        return lasts(reactor, TCPAddress(LOOPBACK, port))

    def owned(address: Address) -> bool:
        return options.network is Network.PUBLISH or _owned(spec.container, pid, address)

    probe: Callable[[Address], Deferred[int]] | None = None
    if path is not None:
        probe = status
    elif options.network is Network.PUBLISH:
        probe = stays
    return Readiness(reactor, [TCPAddress(LOOPBACK, port)], knocker.knock, owned, probe, found)


def _owned(container: ContainerId, pid: int | None, address: Address) -> bool:
    """Whose socket it is, where we may see that: not another user's process, nor one that the Engine counts elsewhere.

    (A published port is the Engine's own promise and needs no such look.)
    """
    if pid is None:
        return True
    try:
        seen = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return True
    ours = f"STICKY_CONTAINER_ID={container}".encode() in seen.split(b"\0")
    return not ours or owns_listener(container, pid, address)

"""When a container on an Engine is ready: which address is asked, how, and whose socket may answer. Must not know its life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import Deferred

from sticky import networks
from sticky.containers.docker.holding import lasts
from sticky.containers.docker.recipe import EVERYWHERE, DockerOptions, Network, inside_port
from sticky.containers.knocking import IProbeReactor, Knocker, http_status
from sticky.containers.lacking import lacking
from sticky.containers.listeners import Listener
from sticky.containers.ownership import bearers, listens_on, owns_listener
from sticky.containers.readiness import Readiness
from sticky.core.values import ContainerId
from sticky.isticky import Address, ContainerSpec, TCPAddress

LOOPBACK = "127.0.0.1"
_RESOLVER = "127.0.0.11"  # the Engine's own, in networks that somebody has made


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


def lacks(spec: ContainerSpec, options: DockerOptions, port: int, refusal: str | None) -> str:
    """What it lacks to be ready, see `IContainer.waits_for`; a look at every process of the machine. `port`: on 127.0.0.1."""
    shared = options.network is Network.HOST
    host = spec.host if shared else EVERYWHERE
    found: list[Listener] = []
    for pid in bearers(spec.container):
        try:
            network = "" if shared else networks.of(pid)
            if network and networks.ours(network):
                continue  # a process that has the mark in its environment, and is not in the container
        except OSError:
            continue
        found += listens_on(pid, network)
        if network and found:
            break  # all of them have the same
    theirs = [listener for listener in found if listener.host != _RESOLVER]
    return lacking(spec, host, inside_port(spec, options, port), refusal, theirs)


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

"""Ties the rooms together: from validated settings to a daemon that is not started yet. Holds no rule and opens nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.threads import deferToThreadPool
from twisted.logger import globalLogPublisher

from sticky import parts
from sticky.admin.door import TokenDoor
from sticky.admin.service import AdminService
from sticky.autoscaling import FILE as autoscaler_file
from sticky.autoscaling import Autoscaling
from sticky.config.settings import ServerSettings, Settings
from sticky.config.sources import Sources
from sticky.containers.describe import Questions
from sticky.containers.knocking import Knocker, http_status
from sticky.containers.plugins import installed
from sticky.control.calls import ControlCalls
from sticky.core.container import ContainerState
from sticky.core.proxy_tokens import FailureLimit
from sticky.core.values import ServerName
from sticky.daemon import Daemon, Servers
from sticky.deploying import Applied, Deployer, Making
from sticky.deployments import Definition, Deployments
from sticky.edge.collector import settle
from sticky.edge.context import EdgeContext, EdgeFactory
from sticky.edge.dialling import Dialler
from sticky.edge.fast_loop import accelerate
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.limits import EdgeSettings
from sticky.edge.site import Sites
from sticky.edge.turns import Turn
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from sticky.edge.wire import Names
from sticky.hangup import on_hangup
from sticky.health import Health, Patient
from sticky.inspection import Inspection, reachable
from sticky.irestarting import Restarts
from sticky.journal.service import JournalService, NoJournalService
from sticky.journal.writer import Picture
from sticky.keyring import KeyRing
from sticky.keys import make_state_dir
from sticky.listeners import Listeners
from sticky.minting import Minting
from sticky.observe.watching import WithRequests
from sticky.operating import Operating
from sticky.possible import check_possible
from sticky.restarting import CommandLine, Restarter, command_line
from sticky.service import ServerService
from sticky.sockets import for_endpoints
from sticky.stepping_down import Edge, SteppingDown
from sticky.succession import activated, environment_at_start, inherited
from sticky.successor import Successor
from sticky.token_store import TokenStore
from sticky.witness import Endings
from sticky.workers.front import WorkerFront
from sticky.workers.pool import Workers
from sticky.workers.proxies import Proxies
from sticky.workers.switch import ControlSwitch
from sticky.workers.views import views as worker_views


def monotonic(reactor: Any) -> None:
    """Give the reactor a clock that no operator can step: its own is the wall clock, and every deadline hangs on it.

    To be called before anything is scheduled.
    """
    reactor.seconds = time.monotonic


def assemble(
    settings: Settings,
    sources: Sources,
    reactor: Any,
    turn: Turn | None = None,
    command: CommandLine | None = None,
    left: Callable[[], None] = lambda: None,
    over: Callable[[], None] = lambda: None,
) -> Daemon:
    """The whole daemon. Creates the state directory and its keys; raises `ConfigError` if they cannot be used.

    `command`: how to start another one like it; without it there is no restart. `left` is called when that has replaced this one,
    `over` when the last client has gone, too.
    """
    state_dir = settings.daemon.state_dir
    make_state_dir(state_dir)
    autoscaling = Autoscaling(None if settings.daemon.ephemeral else state_dir / autoscaler_file)
    autoscaling.recall(settings)
    ring = KeyRing(state_dir, time.time)
    verifier = ring.verifier
    store = TokenStore(state_dir)
    names = Names(settings.daemon.brand)
    endings = Endings(reactor)
    check_possible(settings)
    backends = parts.Backends(settings, reactor, endings)
    journal = _journal(settings, reactor, lambda: servers.picture())
    listeners: Listeners

    def public_url(server: ServerSettings) -> str:
        return reachable(next(iter(listeners.urls), ""), server)

    def definitions(settings: Settings, edition: int, *, late: bool = True) -> Mapping[ServerName, Definition]:
        backends.take(settings, late=late)
        return {
            server.name: parts.definition(
                server,
                settings,
                backends[server.backend],
                parts.deployment_of(server, ring.fingerprint, edition),
                public_url,
            )
            for server in settings.servers
        }

    def service(deployments: Deployments) -> ServerService:
        return parts.service(
            deployments, autoscaling.policy(deployments.newest.settings), ring.sign, reactor, journal, endings
        )

    def with_backends(definition: Definition) -> Deployments:
        return Deployments(definition, backends.get)

    deployments = {name: with_backends(one) for name, one in definitions(settings, 0, late=False).items()}
    servers = Servers([service(one) for one in deployments.values()])
    health = Health(reactor, lambda: _patients(servers, deployments), Knocker().knock, partial(http_status, reactor))
    failures = FailureLimit()
    control = ControlCalls(
        sessions=servers,
        proxy_tokens=parts.proxy_tokens(settings, store),
        verifier=verifier,
        names=names,
        clock=reactor,
        wall=time.time,
        failures=failures,
    )
    switch = ControlSwitch(control)
    dialler = Dialler(reactor, health.doubt)
    access = parts.access_log(settings, reactor)
    limits = parts.limits(settings.daemon)
    relays = WebSocketRelays(dialler, RelayTimes(connect_timeout=limits.connect_timeout), heads=limits.heads)
    sites = Sites([parts.site(server) for server in settings.servers])
    context = EdgeContext(
        EdgeSettings(limits=limits, trusted_proxies=TrustedProxies(settings.daemon.trusted_proxies)),
        sites,
        names,
        verifier,
        servers,
        switch,
        dialler,
        wall=time.time,
        websocket_relay=relays.relay,
        access=access,
        failures=failures,
        turn=turn,
    )
    now = [settings]  # what was published last
    proxies = Proxies(
        reactor, servers, servers.resume, control, lambda: parts.proxy_config(now[0], ring.hexes), health.doubt
    )
    servers.everybody = proxies.complete
    alone = settings.daemon.workers == 1
    listeners = Listeners(
        reactor,
        settings.daemon.listen,
        EdgeFactory(context) if alone else None,
        state_dir,
        _public_urls(settings),
        settings.daemon.workers,
    )
    workers = Workers(reactor, settings.daemon.workers, proxies, lambda: listeners.sockets)
    front: Service = listeners if alone else WorkerFront(listeners, proxies, workers)
    inspection = Inspection(
        servers=servers,
        settings=settings,
        endings=endings,
        minting=Minting(ring.sign, time.time),
        url=public_url,
        listen=lambda: listeners.urls,
        clock=reactor,
        workers=lambda: worker_views(workers.workers, proxies.members, reactor.seconds()),
    )

    def publish(settings: Settings) -> Deferred[tuple[str, ...]]:
        tokens = parts.proxy_tokens(settings, store)  # the one thing here that can fail
        sites.replace([parts.site(server) for server in settings.servers])
        control.proxy_tokens = tokens
        listeners.publish(_public_urls(settings))
        inspection.replace(settings)
        autoscaling.deployed(settings)
        now[0] = settings
        return proxies.configure()

    def in_thread(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    restarts = Restarts()
    questions = Questions()
    deployer = Deployer(
        Applied(settings, sources),
        servers,
        deployments,
        Making(partial(_load, questions), definitions, service, publish, with_backends, in_thread),
        restarts.may_change,
    )
    operating = Operating(
        servers=servers,
        autoscaling=autoscaling,
        store=store,
        ring=ring,
        settings=lambda: deployer.settings,
        own_token=lambda: parts.own_token(deployer.settings),
        admitted=lambda: control.proxy_tokens,
        wall=time.time,
        now=reactor.seconds,
        keys_changed=proxies.configure,
        may_change=restarts.may_change,
    )
    door = TokenDoor(lambda: control.proxy_tokens, frozenset(settings.daemon.admin_hosts), failures, reactor, time.time)
    admin = AdminService(
        settings.daemon.admin,
        inspection,
        reactor,
        partial(_check, questions),
        WithRequests(globalLogPublisher, access),
        deployer,
        operating,
        settings.daemon.admin_listen,
        door,
        restarts,
    )
    daemon = Daemon(
        servers,
        front,
        backends.made,
        relays.close_all if alone else proxies.close_websockets,
        relays.cut_all if alone else workers.stopService,
        reactor,
        settings.daemon.shutdown_timeout,
        journal,
        admin,
        health,
        partial(on_hangup, deployer.hangup, reactor),
        backends.remember,
    )
    stepping_down = SteppingDown(
        daemon,
        servers,
        journal,
        admin,
        health,
        backends.made,
        listeners,
        settings.daemon.listen,
        proxies,
        workers,
        Edge(context, relays, switch, verifier, lambda: ring.hexes) if alone else None,
        reactor,
        settings.daemon.drain_timeout,
        left,
        over,
    )
    daemon.abandon = questions.abandon
    if command is not None:
        restarts.by = restarter = Restarter(stepping_down, command, reactor)
        daemon.decide = restarter.decide
    found = inherited(os.environ)
    if found is not None:
        daemon.predecessor = Successor(found, listeners, admin, proxies, None if alone else workers, reactor)
    elif given := activated(environment_at_start()):
        listeners.inherited = for_endpoints(settings.daemon.listen, given)
    return daemon


def _public_urls(settings: Settings) -> Mapping[str, Callable[[str], str]]:
    return {server.name: partial(reachable, settings=server) for server in settings.servers}


def _patients(servers: Servers, deployments: Mapping[ServerName, Deployments]) -> Iterator[Patient]:
    """Every container that takes sessions."""
    for name, server in servers.by_name.items():
        for box in server.fleet.capacity.containers.values():
            address = server.containers.addresses.get(box.id)
            if box.state is ContainerState.READY and address is not None:
                path = deployments[name].of(box.deployment).settings.ready_path
                unhealthy, halted = partial(server.unhealthy, box.id), partial(server.containers.halted, box.id)
                yield Patient(box.id, address, path, unhealthy, halted)


def impatient(daemon: Daemon, reactor: Any) -> None:
    """While the daemon stops, a second SIGTERM or SIGINT means: kill now (twistd itself would only log an error)."""

    def kill(*_: object) -> None:
        reactor.callFromThread(daemon.kill)

    def stopping() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, kill)

    reactor.addSystemEventTrigger("before", "shutdown", stopping)


def _load(questions: Questions, sources: Sources) -> Settings:
    """What these say now, with this daemon's own environment. Blocks; raises `ConfigError`, `InvalidError`."""
    settings = sources.read(questions.describe, os.environ, installed())
    check_possible(settings)
    return settings


def _check(questions: Questions, file: Path | None, app: str | None, cwd: Path) -> Settings:
    """What these would run here. As `_load`."""
    return _load(questions, Sources(file, app, {}, cwd))


def _journal(settings: Settings, reactor: Any, picture: Callable[[], Picture]) -> JournalService | NoJournalService:
    if settings.daemon.ephemeral:
        return NoJournalService(settings.daemon.state_dir)
    return JournalService(settings.daemon.state_dir, reactor, picture)


def make_service(settings: Settings, sources: Sources, twistd: MutableMapping[str, Any]) -> IService:
    """For twistd: the daemon on the installed reactor. `twistd` has that one's own options."""
    from twisted.internet import reactor

    monotonic(reactor)
    turn = accelerate(reactor)
    reactor.callWhenRunning(settle)

    def left() -> None:
        twistd["pidfile"] = ""  # it is the other daemon's: twistd would remove it with this one's end

    def over() -> None:
        with suppress(ReactorNotRunning):  # it was told to end in the meantime
            reactor.stop()

    command = command_line(sources.cwd, twistd.get("pidfile"))
    daemon = assemble(settings, sources, reactor, turn, command, left, over)
    impatient(daemon, reactor)
    return daemon

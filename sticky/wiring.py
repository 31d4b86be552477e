"""Ties the rooms together: from validated settings to a daemon that is not started yet. Holds no rule and opens nothing."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from twisted.application.service import IService
from twisted.logger import globalLogPublisher

from sticky.admin.service import AdminService
from sticky.config.loading import load
from sticky.config.settings import DaemonSettings, ServerSettings, Settings
from sticky.containers import abilities, isolation
from sticky.containers.describe import describe
from sticky.containers.logs import log_path
from sticky.containers.plugins import installed
from sticky.containers.process import ProcessBackend
from sticky.control.calls import ControlCalls
from sticky.core.fleet import Fleet, Ids
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret
from sticky.core.tokens import SigningKey, Verifier
from sticky.core.values import ContainerId, DeploymentId, Policy, SessionId
from sticky.daemon import Daemon, Servers
from sticky.edge.collector import settle
from sticky.edge.context import EdgeContext, EdgeFactory
from sticky.edge.dialling import Dialler
from sticky.edge.fast_loop import accelerate
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.grammar import HeadLimits
from sticky.edge.handshake import RelayRules
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site, Sites
from sticky.edge.websocket import WebSocketRelays
from sticky.edge.wire import Names
from sticky.errors import ConfigError
from sticky.inspection import Inspection
from sticky.isticky import ContainerSpec, IContainerBackend, IPreparedBackend
from sticky.journal.service import JournalService, NoJournalService
from sticky.journal.writer import Picture
from sticky.keys import development_token, make_state_dir, signing_key
from sticky.listeners import Listeners
from sticky.observe.access import AccessLog
from sticky.observe.access_forms import FORMS
from sticky.observe.lines import Lines
from sticky.observe.watching import WithRequests
from sticky.service import Minting, ServerService
from sticky.witness import Endings, Witness


def monotonic(reactor: Any) -> None:
    """Give the reactor a clock that no operator can step: its own is the wall clock, and every deadline hangs on it.

    To be called before anything is scheduled.
    """
    reactor.seconds = time.monotonic


def assemble(settings: Settings, reactor: Any) -> Daemon:
    """The whole daemon. Creates the state directory and its keys; raises `ConfigError` if they cannot be used."""
    state_dir = settings.daemon.state_dir
    make_state_dir(state_dir)
    key = signing_key(state_dir)
    verifier = Verifier({key.key_id: key.public})
    names = Names(settings.daemon.brand)
    endings = Endings(reactor)
    backends = _backends(settings, reactor, endings)
    journal = _journal(settings, reactor, lambda: servers.picture())
    listeners: Listeners

    def public_url(server: ServerSettings) -> str:
        return server.url or next(iter(listeners.urls), "")

    servers = Servers(
        [
            _server(server, backends[server.backend], key, settings, reactor, public_url, journal)
            for server in settings.servers
        ]
    )
    failures = FailureLimit()
    control = ControlCalls(
        sessions=servers,
        proxy_tokens=_proxy_tokens(settings),
        verifier=verifier,
        names=names,
        clock=reactor,
        wall=time.time,
        failures=failures,
    )
    dialler = Dialler(reactor)
    access = _access_log(settings, reactor)
    relays = WebSocketRelays(dialler)
    context = EdgeContext(
        EdgeSettings(limits=_limits(settings.daemon), trusted_proxies=TrustedProxies(settings.daemon.trusted_proxies)),
        Sites([_site(server) for server in settings.servers]),
        names,
        verifier,
        servers,
        control,
        dialler,
        wall=time.time,
        websocket_relay=relays.relay,
        access=access,
        failures=failures,
    )
    listeners = Listeners(
        reactor,
        settings.daemon.listen,
        EdgeFactory(context),
        state_dir,
        {server.name: server.url for server in settings.servers},
    )
    return Daemon(
        servers,
        listeners,
        list(backends.values()),
        relays.close_all,
        reactor,
        settings.daemon.shutdown_timeout,
        journal,
        AdminService(
            settings.daemon.admin,
            Inspection(
                servers=servers,
                settings=settings,
                endings=endings,
                minting=Minting(key.sign, time.time),
                url=public_url,
                listen=lambda: listeners.urls,
                clock=reactor,
            ),
            reactor,
            _check,
            WithRequests(globalLogPublisher, access),
        ),
    )


def impatient(daemon: Daemon, reactor: Any) -> None:
    """While the daemon stops, a second SIGTERM or SIGINT means: kill now (twistd itself would only log an error)."""

    def kill(*_: object) -> None:
        reactor.callFromThread(daemon.kill)

    def stopping() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, kill)

    reactor.addSystemEventTrigger("before", "shutdown", stopping)


def _backends(settings: Settings, reactor: Any, endings: Endings) -> dict[str, IContainerBackend]:
    """Those that are used, each made with what every backend takes: whose containers they are, and how long they live."""
    _possible(settings)
    plugins = installed()
    names = {server.backend for server in settings.servers}
    realm = _realm(settings)
    made = {
        name: plugins[name].load()(reactor, realm=realm, die_with_daemon=settings.daemon.ephemeral) for name in names
    }
    for name, backend in made.items():
        if IPreparedBackend.providedBy(backend):
            backend.prepare([_options(server, settings) for server in settings.servers if server.backend == name])
    return {name: Witness(backend, endings) for name, backend in made.items()}


def _realm(settings: Settings) -> str:
    return hashlib.sha256(os.fsencode(settings.daemon.state_dir)).hexdigest()[:16]


def _options(server: ServerSettings, settings: Settings) -> Mapping[str, object]:
    if server.backend != ProcessBackend.name:
        return server.docker or {}
    return isolation.options(
        settings.daemon.state_dir,
        isolation=server.isolation,
        memory=server.memory,
        cpu=server.cpu,
        pids=server.pids,
        rlimits=server.rlimits,
        user=server.user,
    )


def _possible(settings: Settings) -> None:
    """Raises `ConfigError` for what this machine, or this daemon on it, cannot do."""
    for server in settings.servers:
        ours = server.backend == ProcessBackend.name
        problem = abilities.problem(_options(server, settings), _realm(settings)) if ours else None
        if problem is not None:
            raise ConfigError(f"Server {server.name}", *problem)


def _check(file: Path | None, app: str | None, cwd: Path) -> Settings:
    """What these would run here, with this daemon's own environment. Blocks; raises `ConfigError`, `InvalidError`."""
    settings = load(
        file=file,
        app=None if app is None else describe(app, None, cwd),
        flags={},
        cwd=cwd,
        environ=os.environ,
        backends=installed(),
    )
    _possible(settings)
    return settings


def _server(
    settings: ServerSettings,
    backend: IContainerBackend,
    key: SigningKey,
    everything: Settings,
    reactor: Any,
    public_url: Callable[[ServerSettings], str],
    journal: JournalService | NoJournalService,
) -> ServerService:
    state_dir = everything.daemon.state_dir
    options = _options(settings, everything)
    ours = settings.backend == ProcessBackend.name
    scratch = isolation.scratch_root(options, _realm(everything)) if ours else state_dir / "run"

    def spec(container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
        return ContainerSpec(
            container=container,
            server=settings.name,
            deployment=deployment,
            app=settings.app,
            command=settings.command,
            directory=settings.directory,
            log=log_path(state_dir / "logs", settings.name, container),
            scratch=scratch / container,
            env=settings.env,
            url=public_url(settings),
            port=settings.port,
            ready_path=settings.ready_path,
            reports_ready=settings.reports_ready,
            options=options,
        )

    ids = Ids(
        lambda: SessionId(f"sd-{secrets.token_urlsafe(16)}"),
        lambda: ContainerId(f"ct-{secrets.token_urlsafe(16)}"),
        secrets.SystemRandom().random,
    )
    fleet = Fleet(settings.policy, _deployment(settings, key), ids)
    return ServerService(settings.name, fleet, backend, spec, Minting(key.sign, time.time), reactor, journal)


def _deployment(settings: ServerSettings, key: SigningKey) -> DeploymentId:
    """The same for the same settings and program files: a restart without a change is no new deployment.

    Limits are left out, they hold for containers that run already. The environment may hold secrets, and tokens show this to
    clients: hence the key.
    """
    files = [Path(settings.directory, part) for part in settings.command]
    program = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if os.path.isfile(path)]
    running = attrs.evolve(settings, policy=Policy(), hosts=(), allowed_origins=())
    return DeploymentId(f"dp-{key.fingerprint(repr((attrs.astuple(running), program)))}")


def _journal(settings: Settings, reactor: Any, picture: Callable[[], Picture]) -> JournalService | NoJournalService:
    if settings.daemon.ephemeral:
        return NoJournalService(settings.daemon.state_dir)
    return JournalService(settings.daemon.state_dir, reactor, picture)


def _site(settings: ServerSettings) -> Site:
    return Site(
        name=settings.name,
        hosts=frozenset(settings.hosts),
        url=settings.url,
        sessioned=settings.sessioned,
        unauthenticated=settings.unauthenticated,
        allowed_origins=frozenset(settings.allowed_origins),
        half_close_timeout=settings.half_close_timeout,
        ended_status=settings.ended_status,
        websocket=RelayRules(
            mode=settings.websocket,
            max_message_size=settings.max_message_size,
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
            silent_timeout=settings.silent_timeout,
        ),
        websocket_refusal=settings.websocket_refusal,
        third_party_frames=settings.third_party_frames,
        insecure_cookie=settings.insecure_cookie,
        response_timeout=settings.response_timeout,
    )


def _limits(settings: DaemonSettings) -> EdgeLimits:
    return EdgeLimits(
        heads=HeadLimits(target=settings.max_target_size, head=settings.max_head_size, fields=settings.max_head_fields),
        connections=settings.max_connections,
        connections_per_client=settings.max_connections_per_client,
        head_timeout=settings.head_timeout,
        keep_alive_timeout=settings.keep_alive_timeout,
        connect_timeout=settings.connect_timeout,
        min_body_rate=settings.min_body_rate,
    )


def _access_log(settings: Settings, reactor: Any) -> AccessLog:
    daemon = settings.daemon
    if daemon.access_log == "off":
        return AccessLog(daemon.brand)
    path = None if daemon.access_log == "-" else Path(daemon.access_log)
    return AccessLog(daemon.brand, FORMS[daemon.access_log_format](), Lines(path, reactor))


def _proxy_tokens(settings: Settings) -> ProxyTokens:
    """Those of the file; where there are none and somebody needs one, a development token in the state directory."""
    tokens = []
    for token in settings.daemon.proxy_tokens:
        digest = token.secret_hash or hash_secret(token.secret or "")
        tokens.append(
            ProxyToken(
                id=token.id,
                secret_hash=digest,
                owner=token.owner,
                servers=frozenset(token.servers),
                expires_at=token.expires_at,
                admin=token.admin,
            )
        )
    if not tokens and not all(server.unauthenticated for server in settings.servers):
        tokens.append(development_token(settings.daemon.state_dir).proxy_token())
    return ProxyTokens(tokens)


def make_service(settings: Settings) -> IService:
    """For twistd: the daemon on the installed reactor."""
    from twisted.internet import reactor

    monotonic(reactor)
    accelerate(reactor)
    reactor.callWhenRunning(settle)
    daemon = assemble(settings, reactor)
    impatient(daemon, reactor)
    return daemon

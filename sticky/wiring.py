"""Ties the rooms together: from validated settings to a daemon that is not started yet. Holds no rule and opens nothing."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import IService

from sticky.config.settings import ServerSettings, Settings
from sticky.containers.logs import log_path
from sticky.containers.plugins import installed
from sticky.control.calls import ControlCalls
from sticky.core.fleet import Fleet, Ids
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret
from sticky.core.tokens import SigningKey, Verifier
from sticky.core.values import ContainerId, DeploymentId, SessionId
from sticky.daemon import Daemon, Servers
from sticky.edge.context import EdgeContext, EdgeFactory
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.handshake import Handshake, IWebSocketFront
from sticky.edge.limits import EdgeSettings
from sticky.edge.site import Site, Sites
from sticky.edge.websocket import WebSocketRelays
from sticky.edge.wire import Names
from sticky.isticky import ContainerSpec, IContainerBackend, ILease
from sticky.keys import development_token, make_state_dir, signing_key
from sticky.listeners import Listeners
from sticky.service import Minting, ServerService


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
    backends = _backends(settings, reactor)
    listeners: Listeners

    def public_url(server: ServerSettings) -> str:
        return server.url or next(iter(listeners.urls), "")

    servers = Servers(
        [_server(server, backends[server.backend], key, settings, reactor, public_url) for server in settings.servers]
    )
    control = ControlCalls(
        sessions=servers,
        proxy_tokens=_proxy_tokens(settings),
        verifier=verifier,
        names=names,
        clock=reactor,
        wall=time.time,
        failures=FailureLimit(),
    )
    relays = WebSocketRelays(reactor)
    context = EdgeContext(
        EdgeSettings(trusted_proxies=TrustedProxies(settings.daemon.trusted_proxies)),
        Sites([_site(server) for server in settings.servers]),
        names,
        verifier,
        servers,
        control,
        reactor,
        wall=time.time,
        websocket_relay=_relay(relays),
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
    )


def impatient(daemon: Daemon, reactor: Any) -> None:
    """While the daemon stops, a second SIGTERM or SIGINT means: kill now (twistd itself would only log an error)."""

    def kill(*_: object) -> None:
        reactor.callFromThread(daemon.kill)

    def stopping() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, kill)

    reactor.addSystemEventTrigger("before", "shutdown", stopping)


def _backends(settings: Settings, reactor: Any) -> dict[str, IContainerBackend]:
    plugins = installed()
    return {name: plugins[name].load()(reactor) for name in {server.backend for server in settings.servers}}


def _relay(relays: WebSocketRelays) -> Callable[[IWebSocketFront, Handshake, ILease], None]:
    return relays.relay


def _server(
    settings: ServerSettings,
    backend: IContainerBackend,
    key: SigningKey,
    everything: Settings,
    reactor: Any,
    public_url: Callable[[ServerSettings], str],
) -> ServerService:
    state_dir = everything.daemon.state_dir

    def spec(container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
        return ContainerSpec(
            container=container,
            server=settings.name,
            deployment=deployment,
            app=settings.app,
            command=settings.command,
            directory=settings.directory,
            log=log_path(state_dir / "logs", settings.name, container),
            scratch=state_dir / "run" / container,
            env=settings.env,
            url=public_url(settings),
            port=settings.port,
            ready_path=settings.ready_path,
            reports_ready=settings.reports_ready,
        )

    ids = Ids(
        lambda: SessionId(f"sd-{secrets.token_urlsafe(16)}"),
        lambda: ContainerId(f"ct-{secrets.token_urlsafe(16)}"),
        secrets.SystemRandom().random,
    )
    fleet = Fleet(settings.policy, DeploymentId(f"dp-{secrets.token_urlsafe(8)}"), ids)
    return ServerService(settings.name, fleet, backend, spec, Minting(key.sign, time.time), reactor)


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
        websocket=settings.websocket,
        websocket_refusal=settings.websocket_refusal,
        third_party_frames=settings.third_party_frames,
        insecure_cookie=settings.insecure_cookie,
        response_timeout=settings.response_timeout,
    )


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
    daemon = assemble(settings, reactor)
    impatient(daemon, reactor)
    return daemon

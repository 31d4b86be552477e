"""The parts of a daemon, made of validated settings: at its start, and again at every deploy. Ties nothing together, opens nothing."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.logger import Logger

from sticky.config.changes import what_runs
from sticky.config.settings import DaemonSettings, ServerSettings, Settings
from sticky.containers import isolation
from sticky.containers.logs import log_path
from sticky.containers.plugins import IBackendPlugin, installed
from sticky.core.fleet import Fleet, Ids
from sticky.core.proxy_tokens import ProxyToken, ProxyTokens, hash_secret
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, DeploymentId, Policy, SessionId
from sticky.deployments import Definition, Deployments
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.grammar import HeadLimits
from sticky.edge.handshake import RelayRules
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site
from sticky.isticky import ContainerSpec, IContainerBackend, IPreparedBackend
from sticky.journal.service import JournalService, NoJournalService
from sticky.keys import KeptToken, development_token, operator_token
from sticky.minting import Minting
from sticky.observe.access import AccessLog
from sticky.observe.access_forms import FORMS
from sticky.observe.lines import Lines
from sticky.possible import PROCESS, options, packages_of, realm
from sticky.sandbox.endings import DETAILS
from sticky.service import ServerService
from sticky.token_store import TokenStore
from sticky.witness import Endings, Witness
from sticky.workers.config import ProxyConfig


class Backends:
    """Those that are used, each made once, with what every backend takes: whose containers they are, how long they live."""

    log = Logger()

    def __init__(self, settings: Settings, reactor: Any, endings: Endings) -> None:
        self.made: list[IContainerBackend] = []  #: in the order in which they were needed; grows, and never shrinks
        self._by_name: dict[str, tuple[Any, IContainerBackend]] = {}
        self._daemon = settings.daemon
        self._realm = realm(settings)
        self._reactor = reactor
        self._endings = endings
        self.take(settings)

    def take(self, settings: Settings, *, late: bool = False) -> None:
        """These Servers are about to come. `late`: the daemon runs, and nothing that a new backend finds is anybody's."""
        plugins = installed()
        for name in dict.fromkeys(server.backend for server in settings.servers):
            fresh = name not in self._by_name
            self._prepare(
                name,
                plugins[name],
                [options(server, settings) for server in settings.servers if server.backend == name],
            )
            if fresh and late and (orphans := self[name].orphans(())):
                self.log.warn("containers that nobody knows were killed: {orphans}", orphans=sorted(orphans))

    def remember(self, name: str, options: Sequence[Mapping[str, object]]) -> None:
        """An earlier daemon ran containers so, whatever Servers there are now: they must be found again, or removed."""
        plugin = installed().get(name)
        if plugin is None:
            self.log.error("there may be containers of backend {name}, which is not installed any more", name=name)
        else:
            self._prepare(name, plugin, options)

    def get(self, name: str) -> IContainerBackend | None:
        """The backend of this name, if it is used or remembered."""
        return self._by_name[name][1] if name in self._by_name else None

    def _prepare(self, name: str, plugin: IBackendPlugin, options: Sequence[Mapping[str, object]]) -> None:
        if name not in self._by_name:
            backend = plugin.load()(self._reactor, realm=self._realm, die_with_daemon=self._daemon.ephemeral)
            self._by_name[name] = backend, Witness(backend, self._endings)
            self.made.append(self[name])
        backend = self._by_name[name][0]
        if IPreparedBackend.providedBy(backend):
            backend.prepare(options)

    def __getitem__(self, name: str) -> IContainerBackend:
        return self._by_name[name][1]


def definition(
    settings: ServerSettings,
    everything: Settings,
    backend: IContainerBackend,
    deployment: DeploymentId,
    public_url: Callable[[ServerSettings], str],
) -> Definition:
    """What containers of one deployment run."""
    state_dir = everything.daemon.state_dir
    chosen = options(settings, everything)
    ours = settings.backend == PROCESS
    scratch = isolation.scratch_root(chosen, realm(everything)) if ours else state_dir / "run"

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
            env=settings.env if settings.sandbox is None else sandbox_env(settings, everything),
            url=public_url(settings),
            port=settings.port,
            ready_path=settings.ready_path,
            reports_ready=settings.reports_ready,
            snapshot=snapshot_of(settings),
            endings={} if settings.sandbox is None else DETAILS,
            options=chosen,
            backend=settings.backend,
        )

    return Definition(deployment, settings, backend, spec)


def snapshot_of(settings: ServerSettings) -> tuple[str, ...]:
    """What forks a Server's containers; nothing where they are to start from scratch."""
    if settings.zygote:
        return settings.zygote
    if settings.sandbox is None or not settings.sandbox["snapshot"]:
        return ()
    python, _, _, _, *flags = settings.command
    return (python, "-m", "sticky.sandbox.forkserver", *flags)


def sandbox_env(settings: ServerSettings, everything: Settings) -> Mapping[str, str]:
    """What a sandbox is told besides: where packages are kept, and how much memory it has."""
    memory = {} if settings.memory is None else {"STICKY_MEMORY": str(settings.memory)}
    return {**settings.env, "STICKY_PACKAGES": str(packages_of(settings, everything)), **memory}


def service(
    deployments: Deployments,
    policy: Policy,
    sign: Callable[[Claims], str],
    reactor: Any,
    journal: JournalService | NoJournalService,
    endings: Endings,
) -> ServerService:
    """One Server, with nothing running."""
    newest = deployments.newest
    ids = Ids(
        lambda: SessionId(f"sd-{secrets.token_urlsafe(16)}"),
        lambda: ContainerId(f"ct-{secrets.token_urlsafe(16)}"),
        secrets.SystemRandom().random,
    )
    fleet = Fleet(policy, newest.deployment, ids)
    return ServerService(
        newest.settings.name,
        fleet,
        deployments,
        deployments.spec,
        Minting(sign, time.time),
        reactor,
        journal,
        endings.call,
    )


def deployment_of(settings: ServerSettings, fingerprint: Callable[[str], str], edition: int = 0) -> DeploymentId:
    """The same for the same settings and program files: a restart without a change is no new deployment.

    Live settings are left out, they hold for containers that run already. The environment may hold secrets, and tokens show
    this to clients: hence the key. `edition`: a new one makes a new deployment of what has not changed.
    """
    files = [Path(settings.directory, part) for part in settings.command]
    program = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if os.path.isfile(path)]
    what = (what_runs(settings), program, *([edition] if edition else []))
    return DeploymentId(f"dp-{fingerprint(repr(what))}")


def site(settings: ServerSettings) -> Site:
    """The Server as the edge sees it."""
    return Site(
        name=settings.name,
        hosts=frozenset(settings.hosts),
        url=settings.url,
        sessioned=settings.sessioned,
        unauthenticated=settings.unauthenticated,
        public_names=settings.public_names,
        allowed_origins=frozenset(settings.allowed_origins),
        calls=settings.sandbox is not None,
        # A client of a call waits for its answer with both sides open: half-closed means cancelled, and interrupts it.
        half_close_timeout=settings.half_close_timeout if settings.sandbox is None else None,
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


def limits(settings: DaemonSettings) -> EdgeLimits:
    """What the edge takes of clients."""
    return EdgeLimits(
        heads=HeadLimits(target=settings.max_target_size, head=settings.max_head_size, fields=settings.max_head_fields),
        connections=settings.max_connections,
        connections_per_client=settings.max_connections_per_client,
        head_timeout=settings.head_timeout,
        keep_alive_timeout=settings.keep_alive_timeout,
        connect_timeout=settings.connect_timeout,
        min_body_rate=settings.min_body_rate,
    )


def access_log(settings: Settings, reactor: Any) -> AccessLog:
    """Where requests are written down; it opens its file with the first line."""
    daemon = settings.daemon
    return access_log_to(daemon.brand, daemon.access_log, daemon.access_log_format, reactor)


def access_log_to(brand: str, target: str, form: str, reactor: Any) -> AccessLog:
    """To standard output ("-"), nowhere ("off"), or a file, which several processes may write to: each line is one write."""
    if target == "off":
        return AccessLog(brand)
    return AccessLog(brand, FORMS[form](), Lines(None if target == "-" else Path(target), reactor))


def proxy_config(settings: Settings, keys: Mapping[str, str]) -> ProxyConfig:
    """What workers must know. `keys` in hex. Limits of the whole edge are shared out among them."""
    daemon = settings.daemon
    whole = limits(daemon)
    share = attrs.evolve(
        whole,
        connections=_share(whole.connections, daemon.workers),
        connections_per_client=_share(whole.connections_per_client, daemon.workers),
    )
    return ProxyConfig(
        brand=daemon.brand,
        edge=EdgeSettings(limits=share, trusted_proxies=TrustedProxies(daemon.trusted_proxies)),
        keys=dict(keys),
        sites=tuple(site(server) for server in settings.servers),
        serial=frozenset(server.name for server in settings.servers if server.policy.serial),
        access_log=daemon.access_log,
        access_log_format=daemon.access_log_format,
    )


def _share(limit: int | None, workers: int) -> int | None:
    return None if limit is None else -(-limit // workers)


def proxy_tokens(settings: Settings, store: TokenStore) -> ProxyTokens:
    """Those of the file, those made while a daemon ran, and the state directory's own if somebody needs one."""
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
    own = own_token(settings)
    found = ProxyTokens(tokens if own is None else [*tokens, own.proxy_token()], store.key)
    known = {token.id for token in found.all()}
    for made in store.all():
        if made.id not in known:  # the file's counts: the operator has moved it there
            found.add(made)
    return found


def own_token(settings: Settings) -> KeptToken | None:
    """For whoever may read the state directory: a development token, or where tokens are configured the operator's.

    None where nobody needs one. Raises `ConfigError` if its file cannot be used.
    """
    if settings.daemon.proxy_tokens:
        return operator_token(settings.daemon.state_dir)
    if all(server.unauthenticated for server in settings.servers):
        return None
    return development_token(settings.daemon.state_dir)

"""What an operator sees and does: reads the Servers' fleets and asks their services. Decides nothing, speaks no HTTP.

Implements `IInspection` over what services and fleets show of themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from sticky import errors
from sticky._version import __version__
from sticky.config.settings import ServerSettings, Settings
from sticky.containers.logs import log_path
from sticky.core.container import Container
from sticky.core.session import Session
from sticky.core.tokens import Claims
from sticky.core.tombstones import Tombstone
from sticky.core.values import Caller, ContainerId, ServerName, SessionId
from sticky.daemon import Servers
from sticky.iinspection import ContainerLog, ContainerView, DaemonView, IInspection, ServerView, SessionView, WorkerView
from sticky.isticky import Address, Credentials, StartRequest, TCPAddress
from sticky.journal.places import found_by
from sticky.keys import OPERATOR
from sticky.minting import Minting
from sticky.service import ServerService
from sticky.witness import Endings

_Id = TypeVar("_Id", bound=str)


@implementer(IInspection)
class Inspection:
    """See `IInspection`. `url` and `listen` give what is known once the daemon listens."""

    def __init__(
        self,
        *,
        servers: Servers,
        settings: Settings,
        endings: Endings,
        minting: Minting,
        url: Callable[[ServerSettings], str],
        listen: Callable[[], Sequence[str]],
        clock: IReactorTime,
        workers: Callable[[], Sequence[WorkerView]] = tuple,
    ) -> None:
        self._servers = servers
        self.replace(settings)
        self._daemon = settings.daemon
        self._endings = endings
        self._minting = minting
        self._url = url
        self._listen = listen
        self._workers = workers
        self._clock = clock
        self._began = clock.seconds()

    def replace(self, settings: Settings) -> None:
        """These Servers' settings are shown from now on. The daemon's own never change."""
        self._settings: Mapping[str, ServerSettings] = {server.name: server for server in settings.servers}

    # --- looking

    def daemon(self) -> DaemonView:
        """See `IInspection`."""
        return DaemonView(
            __version__,
            os.getpid(),
            self._clock.seconds() - self._began,
            self._daemon.state_dir,
            self._daemon.brand,
            tuple(self._listen()),
            self._daemon.admin_listen,
        )

    def workers(self) -> Sequence[WorkerView]:
        """See `IInspection`."""
        return self._workers()

    def servers(self) -> Sequence[ServerView]:
        """See `IInspection`."""
        return [self._server_view(server) for server in self._servers.by_name.values()]

    def address(self, app: str | None, server: str) -> str:
        """See `IInspection`."""
        settings = self._settings.get(server)
        if settings is None or app not in (None, settings.app):
            raise errors.UnknownServer(self._no_server(app, server, settings))
        return self._url(settings)

    def _no_server(self, app: str | None, server: str, other: ServerSettings | None) -> str:
        """`other`: the Server of this name, of another app."""
        if app is None:
            return f"There is no Server {server!r}; there are: {', '.join(self._settings)}."
        if other is not None and other.app == other.name:
            return f"The Server {server!r} is of no app: its own name stands in the app's place, not {app!r}."
        if other is not None:
            return f"The Server {server!r} is not of the app {app!r} but of {other.app!r}."
        known = ", ".join(_whole_name(one) for one in self._settings.values())
        return f"There is no Server {server!r} of an app {app!r}; there are: {known}."

    def containers(self, server: str | None) -> Sequence[ContainerView]:
        """See `IInspection`."""
        return [view for service in self._of(server) for view in self._container_views(service)]

    def sessions(
        self, server: str | None, container: str | None, owner: str | None, after: str | None, limit: int
    ) -> Sequence[SessionView]:
        """See `IInspection`. Walks all sessions: a call for people, not for programs in a loop."""
        only = None if container is None else self._container(container)[1].id
        found = (
            (session.id, service, box)
            for service, box, session in self._walk(self._of(server))
            if (only is None or box.id == only)
            and (owner is None or session.caller == owner)
            and (after is None or session.id > after)
        )
        first = nsmallest(limit, found, key=lambda entry: entry[0])
        return [self._session_view(service, box, session) for session, service, box in first]

    def session(self, session: str) -> SessionView:
        """See `IInspection`."""
        return self._session_view(*self._session(session))

    def session_id(self, session: str) -> SessionId:
        """See `IInspection`."""
        try:
            return self._session(session)[2]
        except errors.SessionEnded:
            return _meant(session, (identity for identity, _ in self._ended()), errors.UnknownSession)

    def logs(self, server: str | None, container: str | None) -> Sequence[ContainerLog]:
        """See `IInspection`. Ended containers are found by their files, so their names come from our own folder only."""
        folder = self._daemon.state_dir / "logs"
        names = {service.server for service in self._of(server)}
        found: dict[ContainerId, ContainerLog] = {}
        for path in sorted(folder.glob("*.log")) if folder.is_dir() else ():
            owner, dot, identity = path.name.removesuffix(".log").rpartition(".")
            log = ContainerLog(ServerName(unquote(owner)), ContainerId(unquote(identity)), path, False)
            if dot and log.server in names and log_path(folder, log.server, log.container) == path:
                found[log.container] = log
        for service in self._of(server):
            for live in service.fleet.capacity.containers:
                found[live] = ContainerLog(service.server, live, log_path(folder, service.server, live), True)
        if container is None:
            return list(found.values())
        return [found[_meant(container, found, errors.UnknownContainer)]]

    # --- doing

    def start(self, server: str, idle_timeout: float | None, name: str | None) -> Deferred[Credentials]:
        """See `IInspection`."""
        (service,) = self._of(server)
        if not self._settings[service.server].sessioned:
            raise errors.NotSessioned
        return self._servers.start(StartRequest(service.server, Caller(OPERATOR), OPERATOR, idle_timeout, name=name))

    def release(self, server: str, name: str, grace: float | None) -> Deferred[SessionId | None]:
        """See `IInspection`."""
        (service,) = self._of(server)
        live = service.fleet.names.live.items()
        meant = next((one for one, bound in live if (bound.owner, bound.name) == (OPERATOR, name)), None)
        return self._servers.release(service.server, OPERATOR, name, grace).addCallback(lambda _: meant)

    def credentials(self, session: str) -> Credentials:
        """See `IInspection`."""
        service, box, identity = self._session(session)
        claims = self._claims(service, box, identity)
        idle_timeout = service.status(claims).idle_timeout
        return Credentials(identity, self._minting.sign(claims), idle_timeout, float(claims.expires_at), False)

    def terminate(self, session: str, grace: float | None) -> Deferred[None]:
        """See `IInspection`."""
        service, box, identity = self._session(session)
        return service.terminate(self._claims(service, box, identity), grace)

    def extend(self, session: str) -> SessionView:
        """See `IInspection`."""
        service, box, identity = self._session(session)
        service.extend(self._claims(service, box, identity))
        return self._session_view(service, box, identity)

    def stop_container(self, container: str) -> ContainerView:
        """See `IInspection`."""
        service, box = self._container(container)
        view = next(view for view in self._container_views(service) if view.container == box.id)
        service.stop_container(box.id)
        return next((view for view in self._container_views(service) if view.container == box.id), view)

    # --- finding

    def _of(self, server: str | None) -> Sequence[ServerService]:
        if server is None:
            return list(self._servers.by_name.values())
        try:
            return [self._servers.by_name[ServerName(server)]]
        except KeyError:
            known = ", ".join(sorted(self._servers.by_name))
            raise errors.UnknownServer(f"There is no Server {server!r}; there are: {known}.") from None

    def _container(self, container: str) -> tuple[ServerService, Container]:
        boxes = {
            box.id: (service, box) for service in self._of(None) for box in service.fleet.capacity.containers.values()
        }
        return boxes[_meant(container, boxes, errors.UnknownContainer)]

    def _session(self, session: str) -> tuple[ServerService, Container, SessionId]:
        for service in self._of(None):
            for ledger in service.fleet.ledgers:
                if session in ledger.sessions:
                    return service, service.fleet.capacity.containers[ledger.container], SessionId(session)
            stone = service.fleet.ledgers.tombstones.get(SessionId(session))
            if stone is not None:
                raise errors.SessionEnded(stone.reason.value, stone.detail)
        found = {entry.id: (service, box, entry.id) for service, box, entry in self._walk(self._of(None))}
        try:
            return found[_meant(session, found, errors.UnknownSession)]
        except errors.UnknownSession:
            stones = dict(self._ended())
        stone = stones[_meant(session, stones, errors.UnknownSession)]
        raise errors.SessionEnded(stone.reason.value, stone.detail)

    def _ended(self) -> Iterator[tuple[SessionId, Tombstone]]:
        for service in self._of(None):
            yield from service.fleet.ledgers.tombstones.items()

    def _walk(self, services: Iterable[ServerService]) -> Iterator[tuple[ServerService, Container, Session]]:
        for service in services:
            for ledger in service.fleet.ledgers:
                box = service.fleet.capacity.containers[ledger.container]
                for session in ledger:
                    yield service, box, session

    # --- describing

    def _claims(self, service: ServerService, box: Container, session: SessionId) -> Claims:
        """As the token says it: the same hard expiry, counted from now."""
        return self._minting.claims(service.server, box, session, self._clock.seconds())

    def _session_view(self, service: ServerService, box: Container, session: SessionId) -> SessionView:
        status = service.status(self._claims(service, box, session))
        entry = service.fleet.ledgers[box.id].sessions[session]
        reason = None if entry.reason is None else entry.reason.value
        cut_left = None if entry.cut_at is None else max(0.0, entry.cut_at - self._clock.seconds())
        return SessionView(service.server, box.deployment, reason, status, cut_left)

    def _container_views(self, service: ServerService) -> list[ContainerView]:
        now, places = self._clock.seconds(), service.containers.places()
        views = []
        for box in service.fleet.capacity.containers.values():
            place = found_by(places.get(box.id, {}))
            pid, descendants = place.get("pid"), place.get("descendants")
            views.append(
                ContainerView(
                    box.id,
                    service.server,
                    box.deployment,
                    box.state.value,
                    now - box.born,
                    box.dies_at - now,
                    box.sessions,
                    len(box.grants),
                    box.limit,
                    box.requests + sum(service.in_flight(session) for session in service.fleet.ledgers[box.id]),
                    _shown(service.containers.addresses.get(box.id)),
                    pid if isinstance(pid, int) else None,
                    descendants if isinstance(descendants, str) else None,
                    box.deployment == service.fleet.capacity.deployment,
                )
            )
        return views

    def _server_view(self, service: ServerService) -> ServerView:
        now, fleet, settings = self._clock.seconds(), service.fleet, self._settings[service.server]
        sessions = [session for ledger in fleet.ledgers for session in ledger]
        draining = sum(session.reason is not None for session in sessions)
        waits = [now - start.asked_at for start in fleet.starts.waiting()]
        held_back = fleet.backoff.failures and fleet.backoff.next_attempt > now
        tally = self._servers.tallies[service.server]
        return ServerView(
            name=service.server,
            app=settings.app,
            url=self._url(settings),
            backend=settings.backend,
            command=settings.command,
            deployment=fleet.capacity.deployment,
            sessioned=settings.sessioned,
            unauthenticated=settings.unauthenticated,
            policy=fleet.policy,
            stopping=fleet.stopping is not None,
            containers=tuple(self._container_views(service)),
            ended=self._endings.of(service.server),
            active=len(sessions) - draining,
            draining=draining,
            in_flight=sum(service.in_flight(session) for session in sessions)
            + sum(box.requests for box in fleet.capacity.containers.values()),
            waiting=len(waits),
            oldest_wait=max(waits, default=None),
            failures=fleet.backoff.failures,
            next_attempt_in=fleet.backoff.next_attempt - now if held_back else None,
            hopeless=fleet.backoff.hopeless and not fleet.capacity.any_ready(),
            snapshot=service.containers.snapshot(),
            granted=tally.granted,
            refused=tally.refused,
        )


def _meant(text: str, known: Iterable[_Id], unknown: type[errors.NotFound]) -> _Id:
    """The one id that this is, or that begins like this. Raises `unknown`, or `AmbiguousId`."""
    found = sorted(identity for identity in known if identity.startswith(text))
    if text in found:
        return found[found.index(text)]
    if not found or len(text) < 4:
        raise unknown(f"{unknown.text.removesuffix('.')} {text!r}." if text.isprintable() and len(text) <= 40 else None)
    if len(found) > 1:
        raise errors.AmbiguousId(f"{len(found)} ids begin with {text!r}; write more of the one that is meant.")
    return found[0]


def _whole_name(settings: ServerSettings) -> str:
    return settings.name if settings.app == settings.name else f"{settings.app}/{settings.name}"


def reachable(url: str, settings: ServerSettings) -> str:
    """A Server's URL: its own, else the daemon's address (`url`) under a host name that leads to this Server."""
    if settings.url is not None:
        return settings.url
    parts = urlsplit(url)
    if not url or not settings.hosts or parts.hostname in settings.hosts:
        return url
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{settings.hosts[0]}{port}"


def _shown(address: Address | None) -> str | None:
    if address is None:
        return None
    return f"{address.host}:{address.port}" if isinstance(address, TCPAddress) else f"unix:{address.path}"

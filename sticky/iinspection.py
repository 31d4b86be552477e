"""The seam of the admin API: what an operator may see and do, and the values that cross. No behaviour.

The admin room reaches state only through `IInspection`; `sticky.inspection` is what stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from zope.interface import Interface

from sticky.core.values import ContainerId, DeploymentId, Policy, ServerName, SessionId
from sticky.isticky import Credentials, Exit, SessionStatus, Snapshot

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


@attrs.frozen
class ContainerView:
    """A container, for its operator. Times are seconds."""

    container: ContainerId
    server: ServerName
    deployment: DeploymentId
    state: str  #: "starting", "ready", "draining" or "stopping"
    age: float
    age_left: float  #: until its age limit
    sessions: int
    asked: int  #: sessions that it is being asked to take
    limit: int  #: sessions that it holds at most
    in_flight: int  #: requests of all its sessions
    address: str | None  #: None: it is not ready yet
    pid: int | None  #: None where its backend has no process of this machine
    #: how it is made sure that nothing that it started stays: "cgroup", "pid_namespace" or "best_effort"; None: it never ran
    descendants: str | None
    newest: bool = True  #: whether it is of the Server's newest deployment


@attrs.frozen
class EndedContainer:
    """How a container ended, kept for a while."""

    container: ContainerId
    server: ServerName
    ended_ago: float  #: seconds
    failed: bool  #: not on our request, or not with status 0
    exit: Exit


@attrs.frozen
class SessionView:
    """A session, for the operator."""

    server: ServerName
    deployment: DeploymentId
    reason: str | None  #: why it drains
    status: SessionStatus
    #: Seconds until what is in flight is cut; None: not by time, but with its container at the latest.
    cut_left: float | None = None


@attrs.frozen(kw_only=True)
class ServerView:
    """A Server, for its operator. Times are seconds, totals count since the daemon's start."""

    name: ServerName
    app: str
    url: str  #: what clients see
    backend: str
    command: tuple[str, ...]
    deployment: DeploymentId
    sessioned: bool
    unauthenticated: bool
    policy: Policy
    stopping: bool
    containers: tuple[ContainerView, ...]  #: oldest first
    ended: tuple[EndedContainer, ...]  #: newest first
    active: int  #: sessions
    draining: int  #: sessions
    in_flight: int  #: requests
    waiting: int  #: starts in the queue
    oldest_wait: float | None  #: of the starts in the queue
    failures: int  #: container starts that failed in a row
    next_attempt_in: float | None  #: None: nothing keeps the next container start back
    hopeless: bool  #: starts are refused at once, because containers fail
    snapshot: Snapshot | None  #: what containers are forked from; None: each starts from scratch
    granted: int  #: starts, in total
    refused: int  #: starts, in total


@attrs.frozen
class DaemonView:
    """The daemon itself, for its operator."""

    version: str
    pid: int
    uptime: float  #: seconds
    state_dir: Path
    brand: str
    listen: tuple[str, ...]  #: where it really listens
    admin_listen: tuple[str, ...] = ()  #: where the admin API does, besides its socket: endpoint strings


@attrs.frozen(kw_only=True)
class WorkerView:
    """A process that serves clients while the daemon decides: one of its workers, or what an earlier daemon left, with its last
    clients. What it counts itself is as of its last report, up to a second ago. Times are seconds.
    """

    name: str
    state: str  #: "starting", "serving", "stopping", "empty" (it ended; the next one starts in a moment), or "leaving"
    pid: int | None  #: None: there is no process just now
    age: float | None  #: since its process was started; of one that is leaving since it came over
    restarts: int  #: how often it was started again since the daemon's start
    clients: int  #: connections
    websockets: int
    in_flight: int  #: requests
    sessions: int  #: that it holds: requests of these pass without the daemon being asked
    answered: int  #: requests, since its start


@attrs.frozen
class ContainerLog:
    """Where a container's output is. It may have ended, and the file may not be there yet."""

    server: ServerName
    container: ContainerId
    path: Path
    live: bool


@attrs.frozen
class ServerChange:
    """What a new definition meant for one Server."""

    server: ServerName
    #: "added", "removed", "rolling" (old containers keep their sessions), "recreated" (they stop), "live" or "unchanged"
    what: str
    deployment: DeploymentId | None  #: the newest one now; None: the Server is gone
    before: DeploymentId | None = None  #: the newest one until now; None: there was no such Server
    settings: tuple[str, ...] = ()  #: names of those that differ
    sessions: int = 0  #: on containers of older deployments, or of the Server that is removed


@attrs.frozen
class DeployReport:
    """What a new definition meant."""

    servers: tuple[ServerChange, ...]
    tokens: bool  #: whether proxy tokens differ
    warnings: tuple[str, ...]
    cut_off: tuple[str, ...] = ()  #: names of workers that were silent, and were ended for that; all others have it
    sources: str = ""  #: what it was read from


@attrs.frozen
class DeploymentView:
    """One deployment of a Server."""

    server: ServerName
    deployment: DeploymentId
    newest: bool
    containers: tuple[str, ...]  #: the state of each
    sessions: int
    in_flight: int  #: requests


@attrs.frozen
class LeavingView:
    """A Server that was removed, with containers that are not gone."""

    server: ServerName
    containers: int
    sessions: int


@attrs.frozen
class RolloutView:
    """Which deployments there are."""

    sources: str  #: what was deployed last
    deployments: tuple[DeploymentView, ...]  #: Server by Server, the newest first
    leaving: tuple[LeavingView, ...]
    can_undo: bool


class IDeploying(Interface):
    """Bringing a new definition to a daemon that runs. Never touches a connection that is open."""

    def deploy(
        file: Path | None, app: str | None, cwd: Path | None, *, recreate: bool, force: bool
    ) -> Deferred[DeployReport]:
        """Read the definition again, from the same sources or with another file or app (relative to `cwd`), and apply it.

        Servers that are new start, those that are missing end (`deployment_ended`). Of the others live settings count at
        once, and whatever else differs makes a new deployment: old containers keep their sessions to the end, or with
        `recreate` stop now. `force`: a new deployment of each Server, whether or not something differs.

        Fails with `errors.ConfigError` or `InvalidError` (what is wrong, or needs a restart), or `errors.Unavailable`
        (retry); then nothing has changed. Fires when no worker serves by the definition before any more. Success does not
        promise that a container of the new definition starts.
        """

    def undo(*, recreate: bool) -> Deferred[DeployReport]:
        """Apply the definition before this one again: its settings, not the files that they name. Fails as `deploy` does."""

    def rollout() -> RolloutView:
        """Which deployments there are, and how many sessions are left on old ones."""


class IInspection(Interface):
    """Everything that an operator may see and do. Ids may be given by a prefix that only one of them has."""

    def daemon() -> DaemonView:
        """The daemon itself."""

    def workers() -> Sequence[WorkerView]:
        """Other processes that serve clients; none where the daemon itself does."""

    def servers() -> Sequence[ServerView]:
        """All Servers, in the order of the configuration."""

    def address(app: str | None, server: str) -> str:
        """Where clients reach a Server, empty if nowhere by a URL. Raises `errors.UnknownServer` with those there are.

        `app`: the name of its app, if the caller knows it; a Server of another app is not the one that is meant.
        """

    def containers(server: str | None) -> Sequence[ContainerView]:
        """Containers that are not gone; of one Server, or of all. Raises `errors.UnknownServer`."""

    def sessions(
        server: str | None, container: str | None, owner: str | None, after: str | None, limit: int
    ) -> Sequence[SessionView]:
        """Sessions in the order of their ids, those after `after`, at most `limit`.

        Raises `errors.UnknownServer`, `errors.UnknownContainer`.
        """

    def session(session: str) -> SessionView:
        """Raises `errors.SessionEnded` for one that is remembered, else `errors.UnknownSession`."""

    def session_id(session: str) -> SessionId:
        """The whole id, also of one that has ended and is remembered. Raises `errors.UnknownSession`, `errors.AmbiguousId`."""

    def start(server: str, idle_timeout: float | None, name: str | None) -> Deferred[Credentials]:
        """Start a session as the operator, or find the operator's own of this name.

        Raises `errors.UnknownServer`, `errors.NotSessioned`, else fails as `ISessions.start` does.
        """

    def release(server: str, name: str, grace: float | None) -> Deferred[SessionId | None]:
        """See `ISessions.release`: a name of the operator's own. Gives the session that it stood for, unless that had ended."""

    def credentials(session: str) -> Credentials:
        """A session's token once more. Raises as `session` does."""

    def terminate(session: str, grace: float | None) -> Deferred[None]:
        """See `ISessions.terminate`."""

    def extend(session: str) -> SessionView:
        """See `ISessions.extend`."""

    def stop_container(container: str) -> ContainerView:
        """Nothing new for it; its sessions end (`server_stopped`) with what is in flight or after `exit_grace_period`; then it
        is asked to end. One that drains or stops already: nothing. Raises `errors.UnknownContainer`.
        """

    def logs(server: str | None, container: str | None) -> Sequence[ContainerLog]:
        """Where containers' output is, of live ones and of ended ones that are still kept.

        Raises `errors.UnknownServer`, `errors.UnknownContainer`.
        """

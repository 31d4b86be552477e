"""The seam of the admin API: what an operator may see and do, and the values that cross. No behaviour.

The admin room reaches state only through `IInspection`; `sticky.inspection` is what stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from zope.interface import Interface

from sticky.core.values import ContainerId, DeploymentId, Policy, ServerName
from sticky.isticky import Credentials, Exit, SessionStatus

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


@attrs.frozen
class ContainerLog:
    """Where a container's output is. It may have ended, and the file may not be there yet."""

    server: ServerName
    container: ContainerId
    path: Path
    live: bool


class IInspection(Interface):
    """Everything that an operator may see and do. Ids may be given by a prefix that only one of them has."""

    def daemon() -> DaemonView:
        """The daemon itself."""

    def servers() -> Sequence[ServerView]:
        """All Servers, in the order of the configuration."""

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

    def start(server: str, idle_timeout: float | None) -> Deferred[Credentials]:
        """Start a session as the operator. Raises `errors.UnknownServer`, else fails as `ISessions.start` does."""

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

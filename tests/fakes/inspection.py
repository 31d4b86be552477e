"""An `IInspection` with one Server, one container and a few sessions, that notes what it is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ContainerId, DeploymentId, Policy, ServerName, SessionId
from sticky.iinspection import (
    ContainerLog,
    ContainerView,
    DaemonView,
    EndedContainer,
    IInspection,
    ServerView,
    SessionView,
    WorkerView,
)
from sticky.isticky import Credentials, Exit, SessionStatus, Snapshot

GAME = ServerName("game")
BOX = ContainerId("ct-box1")
DEPLOYMENT = DeploymentId("dp-1")


def session(number: int) -> SessionView:
    status = SessionStatus(SessionId(f"sd-{number:03}"), "active", 0, 600.0, 599.5, 80000.0, "dev", BOX, 0.5)
    return SessionView(GAME, DEPLOYMENT, None, status)


WORKERS = (
    WorkerView(
        name="worker-1", state="serving", pid=51, age=61.0, restarts=0, clients=9, websockets=2, in_flight=3, sessions=4, answered=700,
    ),
    WorkerView(
        name="worker-2", state="empty", pid=None, age=None, restarts=5, clients=0, websockets=0, in_flight=0, sessions=0, answered=0,
    ),
)  # fmt: skip


@implementer(IInspection)
@attrs.define(eq=False)
class FakeInspection:
    """What it shows are its attributes; what it was asked is in `asked`."""

    state_dir: Path
    count: int = 3  #: sessions
    live: bool = True  #: its container
    others: list[str] = attrs.field(factory=list)  #: ids of containers that are only there to be like it
    forgotten: bool = False  #: it ended long ago
    snapshot: Snapshot | None = None
    processes: tuple[WorkerView, ...] = ()  #: that serve clients
    asked: list[object] = attrs.field(factory=list)
    waiting: Deferred[Credentials] = attrs.field(factory=Deferred)

    def daemon(self) -> DaemonView:
        return DaemonView("9.9", 42, 61.5, self.state_dir, "modal", ("http://127.0.0.1:8080",))

    def workers(self) -> Sequence[WorkerView]:
        return self.processes

    def servers(self) -> Sequence[ServerView]:
        ended = EndedContainer(
            ContainerId("ct-old"), GAME, 3.25, True, Exit("failed", 1, None, ("boom",), "exited with 1")
        )
        return [
            ServerView(
                name=GAME,
                app="game",
                url="http://127.0.0.1:8080",
                backend="process",
                command=("./game",),
                deployment=DEPLOYMENT,
                sessioned=True,
                unauthenticated=False,
                policy=Policy(max_concurrency=7),
                stopping=False,
                containers=tuple(self.containers(None)),
                ended=(ended,),
                active=self.count,
                draining=0,
                in_flight=2,
                waiting=1,
                oldest_wait=0.1234567,
                failures=0,
                next_attempt_in=None,
                hopeless=False,
                snapshot=self.snapshot,
                granted=5,
                refused=1,
            )
        ]

    def address(self, app: str | None, server: str) -> str:
        if server != GAME or app not in (None, "game"):
            raise errors.UnknownServer(f"There is no Server {app}/{server}; there are: game.")
        return "http://127.0.0.1:8080"

    def containers(self, server: str | None) -> Sequence[ContainerView]:
        if server not in (None, GAME):
            raise errors.UnknownServer(f"There is no Server {server!r}; there are: game.")
        return [
            ContainerView(BOX, GAME, DEPLOYMENT, "ready", 9.0, 80000.0, 3, 0, 7, 2, "127.0.0.1:20000", 77, "cgroup")
        ]

    def sessions(
        self, server: str | None, container: str | None, owner: str | None, after: str | None, limit: int
    ) -> Sequence[SessionView]:
        self.asked.append((server, container, owner, after, limit))
        found = [session(number) for number in range(self.count)]
        return [view for view in found if after is None or view.status.session > after][:limit]

    def session(self, session_id: str) -> SessionView:
        if session_id == "sd-over":
            raise errors.SessionEnded("idle_timeout")
        for number in range(self.count):
            if session(number).status.session == session_id:
                return session(number)
        raise errors.UnknownSession

    def session_id(self, session_id: str) -> SessionId:
        if session_id == "sd-over":
            return SessionId(session_id)
        return self.session(session_id).status.session

    def start(self, server: str, idle_timeout: float | None, name: str | None) -> Deferred[Credentials]:
        self.containers(server)
        self.asked.append(("start", server, idle_timeout) if name is None else ("start", server, idle_timeout, name))
        return self.waiting

    def release(self, server: str, name: str, grace: float | None) -> Deferred[SessionId | None]:
        self.containers(server)
        self.asked.append(("release", server, name, grace))
        return succeed(SessionId("sd-1"))

    def credentials(self, session_id: str) -> Credentials:
        return Credentials(self.session(session_id).status.session, "v4.public.secret", 600.0, 1e9, False)

    def terminate(self, session_id: str, grace: float | None) -> Deferred[None]:
        self.asked.append(("terminate", session_id, grace))
        return succeed(None)

    def extend(self, session_id: str) -> SessionView:
        self.asked.append(("extend", session_id))
        return self.session(session_id)

    def stop_container(self, container: str) -> ContainerView:
        if container != BOX:
            raise errors.UnknownContainer
        self.asked.append(("stop", container))
        return self.containers(None)[0]

    def logs(self, server: str | None, container: str | None) -> Sequence[ContainerLog]:
        self.containers(server)
        if container is not None and container != BOX:
            if not BOX.startswith(container) or len(container) < 4:
                raise errors.UnknownContainer
            if any(other.startswith(container) for other in self.others):
                raise errors.AmbiguousId
        if self.forgotten:
            raise errors.UnknownContainer
        return [ContainerLog(GAME, BOX, self.state_dir / "game.ct-box1.log", self.live)]

"""A fake `ISessions`: starts wait until a test decides them, sessions are what the test put there."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, ServerName, SessionId
from sticky.isticky import Credentials, ISessions, QueuePosition, SessionStatus, StartRequest


def credentials(session: str = "sd-1", token: str = "token-of-sd-1", created: bool = True) -> Credentials:
    return Credentials(SessionId(session), token, 600.0, 1_800_003_600.0, created)


def status(session: str = "sd-1", state: str = "active", owner: str = "dev") -> SessionStatus:
    return SessionStatus(SessionId(session), state, 0, 600.0, 599.5, 86_000.0, owner, ContainerId("ct-1"), 0.5)


@attrs.define(eq=False)
class WaitingStart:
    """One start in the fake queue."""

    request: StartRequest
    deferred: Deferred[Credentials]
    position: QueuePosition | None = None
    cancelled: bool = False

    def grant(self, given: Credentials | None = None) -> None:
        self.deferred.callback(credentials() if given is None else given)

    def refuse(self, error: Exception) -> None:
        self.deferred.errback(error)


@implementer(ISessions)
class FakeSessions:
    """Records what was asked. `at_once` decides the next starts before `start` returns."""

    def __init__(self) -> None:
        self.starts: list[WaitingStart] = []
        self.at_once: Credentials | Exception | None = None
        self.terminated: list[tuple[Claims, float | None]] = []
        self.alive: dict[SessionId, SessionStatus] = {}
        self.ended: dict[SessionId, str] = {}
        self.extended: list[SessionId] = []
        self.named: set[str] = set()
        self.released: list[tuple[str, str, float | None]] = []

    def add(self, *sessions: SessionStatus) -> None:
        for session in sessions:
            self.alive[session.session] = session

    def start(self, request: StartRequest) -> Deferred[Credentials]:
        def cancel(_: object) -> None:
            waiting.cancelled = True

        waiting = WaitingStart(request, Deferred(cancel))
        self.starts.append(waiting)
        if isinstance(self.at_once, Credentials):
            waiting.grant(self.at_once)
        elif self.at_once is not None:
            waiting.refuse(self.at_once)
        return waiting.deferred

    def position(self, waiting: Deferred[Credentials]) -> QueuePosition | None:
        return next(start.position for start in self.starts if start.deferred is waiting)

    def terminate(self, claims: Claims, grace: float | None) -> Deferred[None]:
        if claims.session not in self.alive:
            raise errors.UnknownSession
        self.terminated.append((claims, grace))
        return succeed(None)

    def release(self, server: ServerName, owner: str, name: str, grace: float | None) -> Deferred[None]:
        if name not in self.named:
            raise errors.UnknownName
        self.released.append((owner, name, grace))
        return succeed(None)

    def status(self, claims: Claims) -> SessionStatus:
        if claims.session not in self.alive:
            raise errors.SessionEnded(self.ended.get(claims.session, "ended"))
        return self.alive[claims.session]

    def extend(self, claims: Claims) -> SessionStatus:
        found = self.status(claims)
        if found.state != "active":
            raise errors.SessionEnded("terminated")
        self.extended.append(claims.session)
        return found

    def sessions(self, server: ServerName, owner: str, after: SessionId | None, limit: int) -> Sequence[SessionStatus]:
        found = sorted(session for session, known in self.alive.items() if known.owner == owner)
        return [self.alive[session] for session in found if after is None or session > after][:limit]

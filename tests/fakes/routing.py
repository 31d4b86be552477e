"""Fakes of what the edge reaches rules and state through: tokens, `IRouting`, `IControl`. Sessions are what the test put there."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.isticky import NO_SESSION, Address, Answer, ControlRequest, IControl, ILease, ILeaseHolder, IRouting, Visit
from sticky.lease import Lease

TOKEN = b"v4.public." + b"eyJzIjoic2Qtb25lIn0" * 5 + b".a2V5LTE"
SESSION = SessionId("sd-0123456789abcdefghijkl")
CONTAINER = ContainerId("ct-0123456789abcdefghijkl")
SERVER = ServerName("game")


def claims(session: SessionId = SESSION, server: ServerName = SERVER, container: ContainerId = CONTAINER) -> Claims:
    return Claims(session, server, DeploymentId("d1"), container, 1_800_000_000, 1_800_086_400)


def _anybody(server: ServerName) -> Claims:
    return claims(NO_SESSION, server)


class FakeVerifier:
    """Knows tokens by heart."""

    def __init__(self) -> None:
        self.known: dict[bytes, Claims | Exception] = {TOKEN: claims()}
        self.remembered: set[bytes] = set()
        self.checked = 0

    def verify(self, token: bytes, wall: float) -> Claims:
        self.checked += token not in self.remembered
        found = self.known.get(token, errors.BadCredential())
        if isinstance(found, Exception):
            raise found
        return found

    def remembers(self, token: bytes) -> bool:
        return token in self.remembered


def at_once(lease: ILease | Deferred[ILease]) -> Lease:
    """A lease that did not have to wait."""
    assert isinstance(lease, Lease)
    return lease


@implementer(ILease)
@attrs.define(eq=False)
class FakeLease:
    """Counts in its routing until released."""

    routing: FakeRouting
    holder: ILeaseHolder
    session: SessionId
    container: ContainerId
    address: Address
    released: int = 0
    counts: bool = True

    def release(self) -> None:
        self.released += 1
        self.routing.held.discard(self)

    def transfer(self, holder: ILeaseHolder) -> None:
        self.holder = holder

    def suspend(self) -> None:
        self.counts = False

    def resume(self) -> None:
        self.counts = True


@implementer(IRouting)
class FakeRouting:
    """Grants at once, or with `late` when the test says so; refuses with `refusal`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.held: set[FakeLease] = set()
        self.granted = 0
        self.most = 0
        self.refusal: Exception | None = None
        self.late = False
        self.waiting: list[tuple[Deferred[ILease], Claims, ILeaseHolder]] = []
        self.cancelled = 0
        self.websockets = 0
        self.visits: list[Visit] = []

    def begin(self, claims: Claims | Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        self.websockets += websocket
        if isinstance(claims, Visit):
            self.visits.append(claims)
            claims = _anybody(claims.server)
        if self.refusal is not None:
            raise self.refusal
        if not self.late:
            return self._lease(claims, holder)
        deferred: Deferred[ILease] = Deferred(self._cancel)
        self.waiting.append((deferred, claims, holder))
        return deferred

    def _cancel(self, deferred: Deferred[ILease]) -> None:
        self.cancelled += 1
        self.waiting = [entry for entry in self.waiting if entry[0] is not deferred]

    def _lease(self, claims: Claims, holder: ILeaseHolder) -> FakeLease:
        lease = FakeLease(self, holder, claims.session, claims.container, self.address)
        self.held.add(lease)
        self.granted += 1
        self.most = max(self.most, len(self.held))
        return lease

    def grant_all(self) -> None:
        """Give what was asked for late."""
        waiting, self.waiting = self.waiting, []
        for deferred, said, holder in waiting:
            deferred.callback(self._lease(said, holder))

    def refuse_all(self, error: Exception) -> None:
        """Refuse what was asked for late."""
        waiting, self.waiting = self.waiting, []
        for deferred, _, _ in waiting:
            deferred.errback(error)

    def end_all(self, reason: EndReason, detail: str | None = None) -> None:
        """End the session under everybody who holds a lease."""
        held, self.held = self.held, set()
        for lease in held:
            lease.holder.session_ended(reason, detail)


@implementer(IControl)
class FakeControl:
    """Answers what the test put in `answer_with`; a Deferred made by `wait` is decided by the test."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []
        self.let_in_with: Exception | None = None
        self.visitors: list[ControlRequest] = []
        self.answer_with: object = Answer(200, ((b"content-type", b"application/json"),), b"{}")
        self.cancelled = 0

    def answer(self, request: object) -> object:
        assert isinstance(request, ControlRequest)
        self.requests.append(request)
        if isinstance(self.answer_with, Exception):
            raise self.answer_with
        return self.answer_with

    def let_in(self, request: object) -> None:
        assert isinstance(request, ControlRequest)
        self.visitors.append(request)
        if self.let_in_with is not None:
            raise self.let_in_with

    def wait(self) -> Deferred[Answer]:
        """The next calls wait for this Deferred."""

        def cancel(_: object) -> None:
            self.cancelled += 1

        deferred: Deferred[Answer] = Deferred(cancel)
        self.answer_with = deferred
        return deferred

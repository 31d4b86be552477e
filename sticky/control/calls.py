"""The control calls of a Server, `/_modal/sessions...` (wire.md): who may, which call, with what. The answers are ISessions'.

Must not know sockets, containers or the queue; a call asks `ISessions` and says what it said. A body is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.control import bodies, parameters
from sticky.control.credentials import proxy_credential
from sticky.control.queue_events import QueueEvents
from sticky.control.status_events import StatusEvents
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens
from sticky.core.tokens import Claims, Verifier
from sticky.core.values import Caller
from sticky.isticky import Answer, ControlRequest, Credentials, IControl, StartRequest

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

    from sticky.edge.wire import Names
    from sticky.isticky import ISessions

_Result = Answer | QueueEvents | StatusEvents | Deferred[Answer]


@attrs.frozen
class _Call:
    """One row of the table of calls."""

    method: bytes
    answer: Callable[[ControlCalls, ControlRequest], _Result]


@implementer(IControl)
class ControlCalls:
    """Answers the control calls of every Server.

    `wall` gives the Unix time, for expiry alone; `clock` is monotonic. `failures` is shared with whoever else looks at
    credentials, so that one address has one allowance.
    """

    def __init__(
        self,
        *,
        sessions: ISessions,
        proxy_tokens: ProxyTokens,
        verifier: Verifier,
        names: Names,
        clock: IReactorTime,
        wall: Callable[[], float],
        failures: FailureLimit,
    ) -> None:
        self._sessions = sessions
        self.proxy_tokens = proxy_tokens  #: may be replaced; requests that come from then on need one of the new ones
        self._verifier = verifier
        self._names = names
        self._clock = clock
        self._wall = wall
        self._failures = failures

    def answer(self, request: object) -> object:
        """See `IControl`."""
        return self._dispatch(cast(ControlRequest, request))

    def let_in(self, request: object) -> object:
        """See `IControl`."""
        wanted = cast(ControlRequest, request)
        if not wanted.unauthenticated:
            self._identified(wanted)
        return None

    def _dispatch(self, request: ControlRequest) -> _Result:
        call = CALLS.get(request.path.removeprefix(self._names.control))
        if call is None:
            raise errors.NotFound
        if not request.sessioned:
            raise errors.NotSessioned
        if request.method != call.method:
            raise errors.MethodNotAllowed(call.method.decode("ascii"))
        return call.answer(self, request)

    # --- the calls

    def _start(self, request: ControlRequest) -> _Result:
        caller, owner = self._admit(request)
        wanted = StartRequest(
            server=request.server,
            caller=caller,
            owner=owner,
            idle_timeout=parameters.idle_timeout(request, self._names),
            key=parameters.idempotency_key(request, self._names),
            name=parameters.session_name(request, self._names),
        )
        waiting = self._sessions.start(wanted)
        if not parameters.wants_events(request) or (waiting.called and isinstance(waiting.result, Failure)):
            # What is refused at once keeps its status and its Retry-After; events are for what takes time.
            return waiting.addCallback(_started)
        return QueueEvents(waiting, self._sessions.position, self._clock)

    def _terminate(self, request: ControlRequest) -> _Result:
        self._admit(request)
        token = request.header(self._names.session_token)
        if not token:
            raise errors.MissingSessionToken
        grace = parameters.grace(request, self._names)
        try:
            claims = self._verified(request, token, counted=request.unauthenticated)
        except (errors.BadCredential, errors.SessionEnded):
            raise errors.UnknownSession  # "404 unknown, forged, another Server's, or ended": final, and all alike
        if claims.server != request.server:
            raise errors.UnknownSession
        answer = bodies.ok({"session_id": claims.session})
        return self._sessions.terminate(claims, grace).addCallback(lambda _: answer)

    def _release(self, request: ControlRequest) -> _Result:
        _, owner = self._admit(request)
        name = parameters.session_name(request, self._names)
        if name is None:
            raise errors.BadSessionName(
                "This call names the session whose name is to be free, in the session name header."
            )
        grace = parameters.grace(request, self._names)
        return self._sessions.release(request.server, owner, name, grace).addCallback(lambda _: bodies.ok({}))

    def _status(self, request: ControlRequest) -> _Result:
        claims = self._holder(request)
        status = self._sessions.status(claims)  # what is refused at once keeps its status
        if not parameters.wants_events(request):
            return bodies.ok(bodies.status(status))
        warning = parameters.warning(request.query)
        return StatusEvents(lambda: self._sessions.status(claims), self._clock, warning)

    def _extend(self, request: ControlRequest) -> Answer:
        claims = self._holder(request)
        if request.session_from_cookie and not request.origin_allowed:
            raise errors.BadOrigin
        return bodies.ok(bodies.status(self._sessions.extend(claims)))

    def _list(self, request: ControlRequest) -> Answer:
        # On an unauthenticated Server too: what everybody may start, not everybody may see.
        owner = self._identified(request).owner
        after, limit = parameters.page(request.query)
        return bodies.ok(bodies.page(self._sessions.sessions(request.server, owner, after, limit + 1), limit))

    # --- who asks

    def _admit(self, request: ControlRequest) -> tuple[Caller, str]:
        """Caller and owner of a call that starts or terminates."""
        if not request.unauthenticated:
            owner = self._identified(request).owner
            return Caller(owner), owner
        if not request.origin_allowed:
            raise errors.BadOrigin
        return Caller(request.client), ""

    def _identified(self, request: ControlRequest) -> ProxyToken:
        self._failures.check(request.client, self._clock.seconds())
        try:
            token = self.proxy_tokens.identify(*proxy_credential(request, self._names), self._wall())
        except errors.BadCredential:
            self._failures.failed(request.client, self._clock.seconds())
            raise
        if not token.allows(request.server):
            raise errors.OutOfScope
        return token

    def _holder(self, request: ControlRequest) -> Claims:
        """The claims of the session token that the call carries as a data request would."""
        if request.session_token is None:
            raise errors.NoCredential("This call needs a session token, sent as with a request to the Server.")
        claims = self._verified(request, request.session_token, counted=True)
        if claims.server != request.server:
            raise errors.WrongServer
        return claims

    def _verified(self, request: ControlRequest, token: bytes, *, counted: bool) -> Claims:
        """`counted`: whether a forged token uses up the address's allowance; one from a known owner does not."""
        if counted and not self._verifier.remembers(token):
            self._failures.check(request.client, self._clock.seconds())
        try:
            return self._verifier.verify(token, self._wall())
        except errors.BadCredential:
            if counted:
                self._failures.failed(request.client, self._clock.seconds())
            raise


CALLS: Final = {
    b"sessions/start": _Call(b"POST", ControlCalls._start),
    b"sessions/terminate": _Call(b"POST", ControlCalls._terminate),
    b"sessions/release": _Call(b"POST", ControlCalls._release),
    b"sessions/extend": _Call(b"POST", ControlCalls._extend),
    b"sessions/status": _Call(b"GET", ControlCalls._status),
    b"sessions": _Call(b"GET", ControlCalls._list),
}  #: path after `/_<brand>/` -> the call


def _started(given: Credentials) -> Answer:
    return bodies.ok(bodies.credentials(given))

"""Function calls at the door, `POST /_<brand>/calls`: with a session's token as any data request, else in a session made for it.

Reads no frame of a call and unpickles nothing: the body passes to the sandbox and its answer comes back as they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import EndReason
from sticky.edge.asking import DEATH_KNOWN_WITHIN
from sticky.edge.credentials import find_credential
from sticky.edge.parsing import RequestHead
from sticky.edge.relay import Exchange
from sticky.edge.responses import ResponseHead
from sticky.edge.site import Site
from sticky.edge.wire import Names
from sticky.isticky import Answer, ControlRequest, ILease

if TYPE_CHECKING:
    from sticky.edge.frontend import Frontend

_PROXY_TOKEN = b"wk-"


def is_call(head: RequestHead, site: Site, names: Names) -> bool:
    """Whether this is a function call, to a Server that takes them."""
    return site.calls and head.path == names.control + b"calls"


def has_session(head: RequestHead, site: Site, names: Names) -> bool:
    """Whether the call carries the token of a session. A malformed one counts: it is refused as on any data request."""
    try:
        credential = find_credential(head, names, insecure_cookie=site.insecure_cookie)
    except errors.BadCredential:
        return True
    return credential is not None and not credential.token.startswith(_PROXY_TOKEN)


class FreshCall(Exchange):
    """A call that starts its session, by name or for itself alone. In the latter case the session ends with it."""

    __slots__ = ("_request", "_token")

    log = Logger()

    def __init__(self, front: Frontend, head: RequestHead, site: Site, first: bytes, request: ControlRequest) -> None:
        super().__init__(front, head, site, None, first)
        self._request = request
        self._token: bytes | None = None  # of the session that nobody else has

    def start(self) -> None:
        """Ask for the session, as a client would, and go on when its turn has come."""
        context = self.front.context
        names = context.names
        asked = attrs.evolve(
            self._request,
            method=b"POST",
            path=names.control + b"sessions/start",
            headers=tuple((name, value) for name, value in self._request.headers if name.lower() != b"accept"),
            session_token=None,
        )
        try:
            answer = context.control.answer(asked)
        except errors.Refusal as error:
            self.refuse(error)
            return
        waiting: Deferred[Answer] = answer if isinstance(answer, Deferred) else succeed(answer)  # type: ignore[arg-type]
        self.wait(waiting.addCallback(self._started))

    def _started(self, answer: Answer) -> ILease | Deferred[ILease]:
        context = self.front.context
        token = json.loads(answer.body)["token"].encode("ascii")
        if self._request.header(context.names.session_name) is None:
            self._token = token
        claims: Claims = context.verifier.verify(token, context.wall())
        try:
            return context.routing.begin(claims, self)
        except errors.Refusal:
            self._end_session()
            raise

    def _pass_plain(self, data: bytes) -> bool:
        return False  # the head is about to get one more field

    def _answer(self, response: ResponseHead, buffer: bytes, end: int) -> None:
        # Should the answer break off, this is how the caller learns what became of the sandbox: it asks for the session's status.
        if self._token is not None:
            field = b"\r\n%b: %b" % (self.front.context.names.session_token, self._token)
            response = attrs.evolve(response, block=response.block + field, clean=False)
        super()._answer(response, buffer, end)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """See `ILeaseHolder`."""
        self._token = None
        super().session_ended(reason, detail)

    def _break_off(self, reason: str) -> None:
        # The sandbox has died, as good as always, and its session is about to end for that: not for ours.
        token, self._token = self._token, None
        super()._break_off(reason)
        self._token = token
        self.front.context.reactor.callLater(DEATH_KNOWN_WITHIN, self._end_session)

    def _release(self) -> None:
        super()._release()
        self._end_session()

    def _end_session(self) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        context = self.front.context
        names = context.names
        asked = attrs.evolve(
            self._request,
            method=b"POST",
            path=names.control + b"sessions/terminate",
            headers=(*self._request.headers, (names.session_token, token), (names.grace, b"0")),
            session_token=None,
        )
        try:
            done = context.control.answer(asked)
        except errors.Refusal:
            return  # it is over already; else its idle clock ends it
        if isinstance(done, Deferred):
            done.addErrback(lambda failure: failure.trap(errors.Refusal))
            done.addErrback(lambda failure: self.log.failure("the session of a call could not be ended", failure))

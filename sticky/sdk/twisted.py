"""The SDK for Twisted programs: the same calls as Deferreds, HTTP by treq. Owns what carries the steps out on a reactor.

Importing this imports Twisted but no reactor: yours is a parameter. Must not know what a call means.
"""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import attrs
import treq
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.python.failure import Failure as TwistedFailure
from twisted.web.client import URI, Agent, BrowserLikePolicyForHTTPS, HTTPConnectionPool, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from sticky.admin.sockets import LONGEST
from sticky.sdk.answers import ServerSessionCredentials, SessionStatus
from sticky.sdk.arguments import named
from sticky.sdk.autoscaler import AutoscalerSettings
from sticky.sdk.calling import Call
from sticky.sdk.exception import InvalidError
from sticky.sdk.server import Server
from sticky.sdk.steps import BROKEN_OFF, LONGEST_ANSWER, Ask, Failure, Pause, Reply, dialled, failed, silent

__all__ = ["TwistedAutoscaler", "TwistedServer", "TwistedSessions", "perform"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@attrs.frozen
class _Calling:
    """Carries out calls' steps on a reactor."""

    reactor: Any
    send: Callable[[Any, Ask], Deferred[Reply | Failure]]

    def make(self, call: Call[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Deferred[_R]:
        return Deferred.fromCoroutine(self._carry(call, *args, **kwargs))

    async def _carry(self, call: Call[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        steps = call.steps(*args, **kwargs)
        given: Reply | Failure | None = None
        while True:
            try:
                step = steps.send(given)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                await deferLater(self.reactor, step.seconds)
                given = None
            else:
                given = await self.send(self.reactor, step)


class TwistedServer:
    """A Server whose calls give Deferreds. A cancel ends a call at once; what has been sent may have happened."""

    @named("TwistedServer")
    def __init__(
        self,
        server: Server | type,
        reactor: Any,
        send: Callable[[Any, Ask], Deferred[Reply | Failure]] | None = None,
    ) -> None:
        """`server`: a decorated class, or what `sticky.Server.from_name` gives. Raises `InvalidError` for anything else."""
        if not isinstance(server, Server):
            raise InvalidError(
                f"{server!r:.80} is no Server; it must be a class below @app.server(), or Server.from_name()"
            )
        self._server = server
        self._calling = _Calling(reactor, perform if send is None else send)

    def __repr__(self) -> str:
        return f"<sticky.sdk.twisted of {self._server!r}>"

    @classmethod
    @named("TwistedServer.from_name")
    def from_name(cls, app: str, name: str, reactor: Any) -> TwistedServer:
        """See `sticky.Server.from_name`."""
        return cls(Server.from_name(app, name), reactor)

    @property
    def sessions(self) -> TwistedSessions:
        """Starting, looking at and ending sessions of this Server."""
        return TwistedSessions(self._server, self._calling)

    @property
    def autoscaler(self) -> TwistedAutoscaler:
        """How many containers it has."""
        return TwistedAutoscaler(self._server, self._calling)

    @named("server.get_url")
    def get_url(self) -> Deferred[str]:
        """See `sticky.Server.get_url`."""
        return self._calling.make(self._server.get_url)


@attrs.frozen
class TwistedSessions:
    """`sticky.Server.sessions`, with Deferreds that fail as those calls raise."""

    _server: Server
    _calling: _Calling

    @named("sessions.start")
    def start(self, idle_timeout: int = 600, *, name: str | None = None) -> Deferred[ServerSessionCredentials]:
        """Start a session, or find the one of this name. A cancel takes the start out of the queue."""
        return self._calling.make(self._server.sessions.start, idle_timeout, name=name)

    @named("sessions.terminate")
    def terminate(self, token: str, *, grace: float | None = None) -> Deferred[None]:
        """End a session, and after `grace` seconds what is in flight; one that is over already is success."""
        return self._calling.make(self._server.sessions.terminate, token, grace=grace)

    @named("sessions.release")
    def release(self, name: str, *, grace: float | None = None) -> Deferred[None]:
        """Give a name back; its session is terminated. An unknown one is success."""
        return self._calling.make(self._server.sessions.release, name, grace=grace)

    @named("sessions.status")
    def status(self, token: str) -> Deferred[SessionStatus]:
        """A session at this moment."""
        return self._calling.make(self._server.sessions.status, token)

    @named("sessions.extend")
    def extend(self, token: str) -> Deferred[SessionStatus]:
        """Restart a session's idle clock."""
        return self._calling.make(self._server.sessions.extend, token)

    @named("sessions.list")
    def list(self) -> Deferred[builtins.list[SessionStatus]]:
        """All sessions of the proxy token's owner on this Server."""
        return self._calling.make(self._server.sessions.list)


@attrs.frozen
class TwistedAutoscaler:
    """`sticky.Server.autoscaler`, with Deferreds that fail as those calls raise."""

    _server: Server
    _calling: _Calling

    @named("autoscaler.settings")
    def settings(self) -> Deferred[AutoscalerSettings]:
        """What holds now."""
        return self._calling.make(self._server.autoscaler.settings)

    @named("autoscaler.update")
    def update(
        self,
        *,
        min_containers: int | None = None,
        max_containers: int | None = None,
        buffer_containers: int | None = None,
        scaleup_window: float | None = None,
        scaledown_window: float | None = None,
    ) -> Deferred[AutoscalerSettings]:
        """Change these; what is left out stays."""
        return self._calling.make(
            self._server.autoscaler.update,
            min_containers=min_containers,
            max_containers=max_containers,
            buffer_containers=buffer_containers,
            scaleup_window=scaleup_window,
            scaledown_window=scaledown_window,
        )


# --- one request -----------------------------------------------------------------------------------------------------


def perform(reactor: Any, ask: Ask) -> Deferred[Reply | Failure]:
    """Send it, on a connection of its own. Fails with CancelledError only."""
    # An Agent that is cancelled fails with an error of its own, so who cancelled is noted here.
    sent: Deferred[Reply | Failure] = Deferred.fromCoroutine(_send(reactor, ask))
    answer: Deferred[Reply | Failure] = Deferred(lambda _: stop(None))

    def stop(outcome: Failure | None) -> None:
        stopped.append(outcome)
        sent.cancel()

    def over(outcome: Reply | Failure | TwistedFailure) -> None:
        if timer.active():
            timer.cancel()
        if not stopped:
            answer.callback(outcome)
        elif stopped[0] is not None:
            answer.callback(stopped[0])

    stopped: list[Failure | None] = []
    timer = reactor.callLater(ask.timeout, stop, silent(ask))
    sent.addErrback(_came_to_nothing).addBoth(over)
    return answer


async def _send(reactor: Any, ask: Ask) -> Reply | Failure:
    # A client of its own each time: treq's keeps cookies, and its pool would keep connections open.
    agent = Agent.usingEndpointFactory(reactor, _Endpoints(reactor, ask), HTTPConnectionPool(reactor, persistent=False))
    fields = {"Host": urlsplit(ask.url).netloc, **ask.headers}
    response = await HTTPClient(agent).request(
        ask.method,
        ask.url,
        headers=Headers({name.encode("ascii"): [value.encode("latin-1")] for name, value in fields.items()}),
        data=ask.body or None,
        allow_redirects=False,
        unbuffered=True,
        reactor=reactor,
    )
    body = bytearray()

    def collect(data: bytes) -> None:
        body.extend(data)
        if len(body) > LONGEST_ANSWER:
            raise _TooLong

    await treq.collect(response, collect)
    return Reply(response.code, bytes(body))


class _TooLong(Exception):
    """The answer has no end in sight."""


def _came_to_nothing(failure: TwistedFailure) -> Failure:
    error = failure.value
    if isinstance(error, _TooLong):
        return BROKEN_OFF
    if isinstance(error, OSError):
        return failed(error)
    if isinstance(error, ConnectError):
        return Failure(error.args[0] if error.args and isinstance(error.args[0], str) else str(error))
    failure.trap(ResponseFailed, ConnectionClosed, DNSLookupError, CancelledError)
    return Failure(f"the answer is not HTTP or broke off ({type(error).__name__})")


@implementer(IAgentEndpointFactory)
@attrs.frozen
class _Endpoints:
    """Connects where the request says."""

    reactor: Any
    ask: Ask

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See `IAgentEndpointFactory`."""
        if self.ask.socket is not None:
            if len(os.fsencode(self.ask.socket)) > LONGEST:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))  # Twisted trips over it
            return UNIXClientEndpoint(self.reactor, str(self.ask.socket))
        host = uri.host.decode("ascii")
        endpoint = HostnameEndpoint(self.reactor, dialled(host), uri.port)
        if uri.scheme == b"https":
            return wrapClientTLS(BrowserLikePolicyForHTTPS().creatorForNetloc(uri.host, uri.port), endpoint)
        return endpoint

"""The Docker Engine's REST API over its Unix socket: requests, streams, the version. Must not know what containers are for.

Docker and `podman system service` speak it alike. Every request has a connection of its own: a local connect costs tens of
microseconds, and no connection of a pool can turn out to be dead because the Engine was restarted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IReactorTime, IReactorUNIX
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone, _HTTP11ClientFactory
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from sticky.containers.docker.faults import EngineError, EngineNonsense, EngineRefused, EngineUnreachable, connecting

OLDEST, NEWEST = (1, 40), (1, 48)  #: what we speak: Docker 19.03 and Podman 3 know the first, Docker 28 the second
LONGEST_ANSWER = 16 << 20  #: bytes; a list of a thousand containers takes two megabytes
_LONGEST_MESSAGE = 500  # characters of an Engine's error that are kept
_CONNECT_TIMEOUT = 5.0  # seconds; a Unix socket whose backlog is full hangs


class IEngineReactor(IReactorTime, IReactorUNIX):
    """What an Engine's client needs from a reactor."""


@implementer(IAgentEndpointFactory)
class _Socket:
    """Every URL leads to the one socket."""

    def __init__(self, reactor: IEngineReactor, path: str) -> None:
        self._reactor = reactor
        self._path = path

    def endpointForURI(self, uri: URI) -> UNIXClientEndpoint:
        return UNIXClientEndpoint(self._reactor, self._path, _CONNECT_TIMEOUT)


class _Quiet(_HTTP11ClientFactory):
    noisy = False  # else two lines in the daemon's log for each request


class Engine:
    """One Engine, by its socket. Opens nothing before the first request and keeps nothing open but its streams."""

    def __init__(self, reactor: IEngineReactor, socket: str) -> None:
        self.socket = socket
        self._reactor = reactor
        pool = HTTPConnectionPool(reactor, persistent=False)
        pool._factory = _Quiet
        agent = Agent.usingEndpointFactory(reactor, _Socket(reactor, socket), pool)
        self._client = HTTPClient(agent)
        self._version: str | None = None

    def forget_version(self) -> None:
        """The Engine may have been replaced by another release: ask again."""
        self._version = None

    async def version(self) -> str:
        """The API version that both sides speak. Raises `EngineError`."""
        if self._version is None:
            answer = await self._whole("GET", "/version", {}, None, 30.0)
            if not isinstance(answer, dict):
                raise EngineNonsense(self.socket, "its version is no JSON object")
            theirs = _version(answer.get("ApiVersion"))
            if theirs is None:
                raise EngineNonsense(self.socket, "it tells no API version")
            least = _version(answer.get("MinAPIVersion")) or OLDEST
            if theirs < OLDEST or least > NEWEST:
                raise EngineNonsense(
                    self.socket,
                    f"it speaks API versions {_dotted(least)} to {_dotted(theirs)}, we speak {_dotted(OLDEST)} to "
                    f"{_dotted(NEWEST)}",
                )
            self._version = _dotted(min(theirs, NEWEST))
        return self._version

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object = None,
        timeout: float = 30.0,
    ) -> Any:
        """The JSON value that the Engine answers, None without one. Raises `EngineError`; `timeout` is in seconds.

        After an `EngineUnreachable` the request may have been carried out or not.
        """
        prefix = f"/v{await self.version()}"
        return await self._whole(method, prefix + path, params or {}, body, timeout)

    async def raw(self, method: str, path: str, params: Mapping[str, str], timeout: float) -> bytes:
        """A whole answer as bytes. Raises `EngineError`."""
        prefix = f"/v{await self.version()}"
        return await self._bounded(method, prefix + path, params, None, timeout)

    def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        opened: Callable[[], object],
        received: Callable[[bytes], object],
        closed: Callable[[EngineError | None], object],
        method: str = "GET",
    ) -> Stream:
        """An answer that goes on. `closed` is called once, unless we close it: None where the Engine ended it whole."""
        stream = Stream(received, closed)
        opening = Deferred.fromCoroutine(self._open(method, path, params, stream, opened))
        stream.opening = opening
        opening.addErrback(stream.failed)
        return stream

    # --- inside

    async def _open(
        self, method: str, path: str, params: Mapping[str, str], stream: Stream, opened: Callable[[], object]
    ) -> None:
        response = await self._answer(method, f"/v{await self.version()}{path}", params, None)
        if response.code >= 300:
            raise _refusal(response.code, await self._body(response))
        stream.opening = None  # from here on closing it is closing its connection
        opened()
        response.deliverBody(stream)

    async def _whole(self, method: str, path: str, params: Mapping[str, str], body: object, timeout: float) -> Any:
        found = await self._bounded(method, path, params, body, timeout)
        if not found.strip():
            return None
        try:
            return json.loads(found)
        except ValueError:
            raise EngineNonsense(self.socket, f"its answer to {method} {path} is not JSON") from None

    async def _bounded(self, method: str, path: str, params: Mapping[str, str], body: object, timeout: float) -> bytes:
        asking: Deferred[bytes] = Deferred.fromCoroutine(self._exchange(method, path, params, body))

        def late(_: object, seconds: float) -> bytes:
            # Whatever the cancelled request has made of it.
            raise EngineUnreachable(self.socket, f"did not answer {method} {path} within {seconds:g} seconds")

        return await asking.addTimeout(timeout, self._reactor, late)

    async def _exchange(self, method: str, path: str, params: Mapping[str, str], body: object) -> bytes:
        response = await self._answer(method, path, params, body)
        found = await self._body(response)
        if response.code >= 300 and response.code != 304:  # 304: it is started, or stopped, already
            raise _refusal(response.code, found)
        return found

    async def _answer(self, method: str, path: str, params: Mapping[str, str], body: object) -> Any:
        headers = Headers({"Host": ["docker"]})
        data = None
        if body is not None:
            headers.addRawHeader("Content-Type", "application/json")
            data = json.dumps(body).encode()
        request: Callable[..., Deferred[Any]] = self._client.request
        try:
            return await request(
                method,
                f"http://docker{path}",
                params=dict(params),
                headers=headers,
                allow_redirects=False,
                unbuffered=True,
                reactor=self._reactor,
                **({} if data is None else {"data": data}),
            )
        except CancelledError:
            raise
        except ConnectError as error:
            raise connecting(self.socket, error.osError, str(error)) from None
        except Exception as error:
            # Twisted's many ways to say that the answer did not come, or is not HTTP.
            raise EngineUnreachable(self.socket, f"gave no answer: {_words(error)}") from None

    async def _body(self, response: Any) -> bytes:
        collector = _Collector()
        response.deliverBody(collector)
        try:
            return await collector.collected
        except _TooLong:
            raise EngineNonsense(self.socket, f"an answer is longer than {LONGEST_ANSWER} bytes") from None
        except CancelledError:
            raise
        except Exception as error:
            raise EngineUnreachable(self.socket, f"broke off its answer: {_words(error)}") from None


class Stream(Protocol):
    """The body of an answer that goes on until somebody closes it."""

    def __init__(self, received: Callable[[bytes], object], closed: Callable[[EngineError | None], object]) -> None:
        self.opening: Deferred[None] | None = None
        self._received = received
        self._closed: Callable[[EngineError | None], object] | None = closed

    def close(self) -> None:
        """We have enough; nothing is told any more. Again, or after its end: nothing happens."""
        self._closed = None
        if self.opening is not None:
            self.opening.cancel()
        if self.transport is not None:
            self.transport.loseConnection()

    def pause(self) -> None:
        """Take nothing for now: the Engine waits."""
        if self.transport is not None:
            cast(Any, self.transport).pauseProducing()

    def resume(self) -> None:
        """Go on."""
        if self.transport is not None:
            cast(Any, self.transport).resumeProducing()

    def failed(self, failure: Failure) -> None:
        """It never opened."""
        error = failure.value
        if isinstance(error, EngineError):
            self._end(error)
        elif not failure.check(CancelledError):
            self._end(EngineError(str(error)))

    def connectionMade(self) -> None:
        if self._closed is None:
            self.close()  # it was closed while it opened

    def dataReceived(self, data: bytes) -> None:
        if self._closed is not None:
            self._received(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        if reason is None or reason.check(ResponseDone, PotentialDataLoss):
            self._end(None)
        else:
            self._end(EngineError(f"the stream broke off: {_words(reason.value)}"))

    def _end(self, error: EngineError | None) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(error)


class _TooLong(Exception):
    pass


class _Collector(Protocol):
    """A body as one piece, bounded."""

    def __init__(self) -> None:
        self.collected: Deferred[bytes] = Deferred(self._cancelled)
        self._pieces: list[bytes] = []
        self._size = 0

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        self._pieces.append(data)
        if self._size > LONGEST_ANSWER and not self.collected.called:
            self._hang_up()
            self.collected.errback(_TooLong())

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self.collected.called:
            return
        if reason is None or reason.check(ResponseDone, PotentialDataLoss):
            self.collected.callback(b"".join(self._pieces))
        else:
            self.collected.errback(reason)

    def _cancelled(self, _: Deferred[bytes]) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


def _refusal(status: int, body: bytes) -> EngineRefused:
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body.decode("utf-8", "replace") or "nothing"
    return EngineRefused(status, " ".join(str(message).split())[:_LONGEST_MESSAGE])


def _words(error: BaseException | None) -> str:
    """Twisted's errors about answers carry the real reasons in a list."""
    reasons = getattr(error, "reasons", None)
    if isinstance(reasons, list) and reasons:
        return "; ".join(_words(reason.value) for reason in reasons if isinstance(reason, Failure))
    return str(error) or type(error).__name__


def _version(text: object) -> tuple[int, int] | None:
    if not isinstance(text, str):
        return None
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot and major.isdecimal() and minor.isdecimal() else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"

"""HTTP around the admin calls, by twisted.web: bodies in, JSON out, streams. Knows no call by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from sticky import errors
from sticky._version import __version__
from sticky.admin.bodies import API
from sticky.admin.calls import AdminCalls
from sticky.admin.door import TokenDoor
from sticky.admin.streams import LogStream
from sticky.sdk.exception import InvalidError

LONGEST_BODY: Final = 64 * 1024  #: bytes; no call needs a hundredth of it
_FIELDS: Final = {
    b"cache-control": b"no-store",
    b"sticky-version": __version__.encode("ascii"),
    b"sticky-api": b"%d" % API,
}  # of every answer


class AdminRequest(Request):
    """Keeps no more of a body than a call can need: twisted.web's own would put 300 MB into a temporary file first."""

    _received = 0

    def gotLength(self, length: int | None) -> None:
        """See `Request`."""
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """See `Request`. Too much is answered at once, and nothing further is read."""
        before, self._received = self._received, self._received + len(data)
        if self._received <= LONGEST_BODY:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]
        elif before <= LONGEST_BODY:
            error = errors.BadBody("The body is too long.")
            body = json.dumps({"error": error.code, "message": error.message}).encode("ascii") + b"\n"
            fields = {**_FIELDS, b"content-type": b"application/json", b"content-length": b"%d" % len(body)}
            lines = [b"HTTP/1.1 400 Bad Request", b"connection: close", *(b": ".join(one) for one in fields.items())]
            transport = self.channel.transport
            assert transport is not None  # data has just come from there
            transport.write(b"\r\n".join([*lines, b"", body]))
            transport.loseConnection()

    def process(self) -> None:
        """See `Request`."""
        if self._received <= LONGEST_BODY:
            super().process()  # type: ignore[no-untyped-call]


@implementer(IResource)
class AdminResource:
    """Every path of the admin API."""

    isLeaf = True
    server = None
    log = Logger()

    def __init__(self, calls: AdminCalls, door: TokenDoor | None = None) -> None:
        """`door`: who may, where that is not settled by who could connect."""
        self._calls = calls
        self._door = door

    def getChildWithDefault(self, name: bytes, request: Request) -> AdminResource:
        """See `IResource`; never called, because this is a leaf."""
        return self

    def putChild(self, path: bytes, child: IResource) -> None:
        """See `IResource`."""
        raise TypeError("the admin API has one resource")

    def render(self, request: Request) -> int:
        """See `IResource`."""
        method, path = request.method.decode("latin-1"), request.path.decode("latin-1")
        try:
            who = "operator" if self._door is None else _admitted(request, self._door)
            if method != "GET":
                self.log.info("the {who} asks: {method} {path}", who=who, method=method, path=path)
            result = self._calls.answer(method, path, _query(request), _body(request))
        except Exception:
            _refuse(request, Failure())
            return NOT_DONE_YET
        if isinstance(result, LogStream):
            _stream(request, result)
        elif isinstance(result, Deferred):
            _later(request, result)
        else:
            _answer(request, 200, result)
        return NOT_DONE_YET


def _admitted(request: Request, door: TokenDoor) -> str:
    host, authorization = request.getHeader("host"), request.getHeader("authorization")
    client = request.getClientAddress()
    return f"holder of {door.admit(str(getattr(client, 'host', '')), host, authorization)}"


def _query(request: Request) -> Mapping[str, str]:
    found = {}
    for name, values in request.args.items():
        if len(values) > 1:
            raise errors.BadRequest("A parameter stands there twice.")
        found[name.decode("utf-8", "replace")] = values[0].decode("utf-8", "replace")
    return found


def _body(request: Request) -> Mapping[str, object]:
    assert request.content is not None  # whoever renders has the whole body
    raw = request.content.read()
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise errors.BadBody("The body must be a JSON object.")
    return body


def _head(request: Request, status: int, kind: bytes) -> None:
    request.setResponseCode(status)
    request.setHeader(b"content-type", kind)
    for name, value in _FIELDS.items():
        request.setHeader(name, value)


def _answer(request: Request, status: int, body: Mapping[str, Any]) -> None:
    data = json.dumps(body).encode("ascii") + b"\n"
    _head(request, status, b"application/json")
    request.setHeader(b"content-length", b"%d" % len(data))
    request.write(data)
    request.finish()


def _refuse(request: Request, failure: Failure) -> None:
    error = failure.value
    if isinstance(error, errors.RestartNeeded):
        error = errors.NeedsRestart(str(error))
    if isinstance(error, errors.ConfigError | InvalidError):
        error = errors.BadConfiguration(" ".join(str(error).split()))
    if not isinstance(error, errors.Refusal):
        AdminResource.log.failure("an admin call failed: {path}", failure, path=request.path.decode("latin-1"))
        error = errors.Refusal()
    if isinstance(error, errors.MethodNotAllowed):
        request.setHeader(b"allow", ", ".join(error.allowed).encode("ascii"))
    if error.retry_after is not None:
        request.setHeader(b"retry-after", b"%d" % (error.retry_after + 0.999))
    _answer(request, error.status, {"error": error.code, "message": error.message})


def _later(request: Request, result: Deferred[Any]) -> None:
    left = request.notifyFinish()

    def gone(_: Failure) -> None:
        result.cancel()

    def failed(failure: Failure) -> None:
        if not failure.check(CancelledError):
            _refuse(request, failure)

    left.addErrback(gone)
    result.addCallback(lambda body: _answer(request, 200, body)).addErrback(failed)


def _stream(request: Request, stream: LogStream) -> None:
    _head(request, 200, b"application/x-ndjson")
    producer = _Producer(stream)

    def finish() -> None:
        request.unregisterProducer()
        request.finish()

    request.notifyFinish().addErrback(lambda _: stream.stop())
    # In parts from the first byte on: without this the head would wait for the first line.
    request.write(b"")
    request.registerProducer(producer, True)
    stream.start(request.write, finish)


@implementer(IPushProducer)
class _Producer:
    """Lets the connection's pace reach the stream."""

    def __init__(self, stream: LogStream) -> None:
        self._stream = stream

    def pauseProducing(self) -> None:
        self._stream.pause()

    def resumeProducing(self) -> None:
        self._stream.resume()

    def stopProducing(self) -> None:
        self._stream.stop()

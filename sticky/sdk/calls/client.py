"""One call over HTTP: the request's frames out, output and value back. Blocking; a connection is used for one call after the other.

A call is never sent twice by itself: whether its first sending had an effect is not for this to guess.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from sticky.sandbox.frames import (
    CONTENT_TYPE,
    LARGEST,
    LONGEST,
    Kind,
    TornFrame,
    announced,
    document,
    pieces,
    read_document,
    read_head,
)
from sticky.sdk.daemon import Place
from sticky.sdk.exception import ConnectionError, ExecutionError, InvalidError
from sticky.sdk.http import Connection
from sticky.sdk.steps import Reply

CONNECT_TIME = 15.0  #: seconds


@attrs.frozen
class Prepared:
    """A call, pickled."""

    function: bytes = attrs.field(repr=False)
    arguments: bytes = attrs.field(repr=False)
    said: Mapping[str, Any]  #: the rest of its description

    def check(self) -> None:
        """Raises `InvalidError` for what is too large."""
        for name, data in (("function", self.function), ("arguments", self.arguments)):
            if len(data) > LARGEST:
                raise InvalidError(f"the {name} of the call have {len(data)} bytes pickled; the most is {LARGEST}")


@attrs.frozen
class Outcome:
    """How a call ended."""

    said: Mapping[str, Any]
    value: bytearray = attrs.field(repr=False)


class Broken(Exception):
    """The answer broke off: the sandbox may have died, or the network. `token`: of the call's own session, if it had begun."""

    def __init__(self, reason: str, token: str | None = None) -> None:
        super().__init__(reason)
        self.token = token


class CallConnection:
    """A connection to one Server. Not for two threads at once; `cut` may come from another."""

    def __init__(self, place: Place) -> None:
        self.url = place.url
        self._names = place.names
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, prepared: Prepared, headers: Mapping[str, str], print_to: Callable[[Kind, bytes], None]
    ) -> Outcome | Reply:
        """Send it and hear it out. A `Reply` is a refusal of the proxy. Raises `Broken`, `ConnectionError`."""
        prepared.check()
        fresh = self._connection is None
        try:
            response = self._sent(prepared, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if fresh:
                raise ConnectionError(
                    f"no answer from {self.url}: {_reason(error)}. Is the daemon running there?"
                ) from None
            raise Broken(_reason(error)) from None
        try:
            if response.status != 200 or response.getheader("content-type") != CONTENT_TYPE:
                body = response.read(1 << 20)
                return Reply(response.status, body)
            return _heard(response, print_to)
        except (OSError, http.client.HTTPException, TornFrame, ValueError) as error:
            self.close()
            raise Broken(_reason(error), response.getheader(self._names.session_token)) from None

    def cut(self) -> None:
        """End the call that is under way: its sandbox is told by the connection's end."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone already

    def close(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _sent(self, prepared: Prepared, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        connection = self._connection
        if connection is not None and connection.sock is not None and _stale(connection.sock):
            self.close()  # before anything was sent: nothing can have had an effect
            connection = None
        if connection is None:
            connection = self._connection = self._opened()
        sizes = {"function": len(prepared.function), "arguments": len(prepared.arguments)}
        first = document(Kind.CALL, {"sizes": sizes, **prepared.said})
        length = len(first) + _framed(prepared.function) + _framed(prepared.arguments)
        connection.putrequest("POST", self._names.calls_path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", urlsplit(self.url).netloc)
        for name, value in {**headers, "content-type": CONTENT_TYPE, "content-length": str(length)}.items():
            connection.putheader(name, value)
        if length < 1 << 16:
            connection.endheaders(first + b"".join(part for piece in _body(prepared) for part in piece))
        else:
            connection.endheaders(first)
            for head, part in _body(prepared):
                connection.send(head)
                connection.send(part)
        return connection.getresponse()

    def _opened(self) -> http.client.HTTPConnection:
        connection = Connection(self.url, CONNECT_TIME)
        connection.connect()
        assert connection.sock is not None
        # A call may be silent for as long as it takes; the peer's death is the kernel's to tell.
        connection.sock.settimeout(None)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection


def _stale(sock: socket.socket) -> bool:
    """Whether the other side has closed a connection that waits for its next call."""
    if isinstance(sock, ssl.SSLSocket):
        return False
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


_NOTHING = bytes(LONGEST)


def _framed(data: bytes) -> int:
    return len(data) + 5 * -(-len(data) // (1 << 20))


def _body(prepared: Prepared) -> Iterator[tuple[bytes, memoryview]]:
    yield from pieces(Kind.FUNCTION, prepared.function)
    yield from pieces(Kind.ARGUMENTS, prepared.arguments)


def _heard(response: http.client.HTTPResponse, print_to: Callable[[Kind, bytes], None]) -> Outcome:
    value = bytearray()
    while True:
        head = read_head(response.read)
        if head is None:
            raise TornFrame("the answer ends before the call does")
        kind, length = head
        if kind is Kind.VALUE:
            _append(value, length, response)
            continue
        payload = response.read(length)
        if len(payload) < length:
            raise TornFrame("the stream ends inside a frame")
        if kind in (Kind.STDOUT, Kind.STDERR):
            print_to(kind, payload)
        elif kind is Kind.DONE:
            said = read_document(payload)
            if announced(said.get("size")) != len(value):
                raise TornFrame("the value has another size than was announced")
            response.read()
            return Outcome(said, value)


def _append(value: bytearray, length: int, response: http.client.HTTPResponse) -> None:
    """One more piece, read to where it is to be: no second copy of what may be 256 MiB."""
    begin = len(value)
    if begin + length > LARGEST:
        raise TornFrame(f"a value has {LARGEST} bytes at most")
    with memoryview(_NOTHING) as nothing:
        value += nothing[:length]
    with memoryview(value) as whole:
        while begin < len(value):
            with whole[begin:] as rest:
                count = response.readinto(rest)
            if not count:
                raise TornFrame("the stream ends inside a frame")
            begin += count


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) or type(error).__name__


def no_sense(url: str) -> ExecutionError:
    """An answer that is none."""
    return ExecutionError(f"{url} answered in a way that no Sticky does. Is this the URL of a Server with a sandbox?")

"""The pure part of the edge put together as the protocols do it, without sockets; and h11 as an independent reader of it.

What it gives out is what would be sent, so that the same cases and properties hold here and over real sockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import h11

from sticky import errors
from sticky.edge.credentials import find_credential
from sticky.edge.forwarding import Peer, TrustedProxies
from sticky.edge.framing import Body, body
from sticky.edge.parsing import (
    Framing,
    HeadLimits,
    RequestHead,
    ResponseHead,
    find_request_end,
    find_response_end,
    has_begun,
    parse_request,
    parse_response,
)
from sticky.edge.wire import Names, client_head, container_head, trailer_section
from tests.edge.http_cases import Message

LIMITS = HeadLimits()
NAMES = Names()
PEER = Peer("127.0.0.1", False, TrustedProxies())
TOKEN = b"v4.public." + b"eyJzIjoic2Qtb25lIn0" * 5 + b".a2V5LTE"
SESSION = b"sd-0123456789abcdefghijkl"


@attrs.define(eq=False)
class Forwarded:
    """One request as it goes to the container."""

    head: RequestHead
    data: bytearray
    whole: bool = False


@attrs.define(eq=False)
class Outcome:
    """What becomes of everything that a client sent."""

    requests: list[Forwarded] = attrs.field(factory=list)
    refusal: errors.Refusal | None = None
    closed: bool = False  #: the client closed within a head: no answer

    @property
    def broken(self) -> bool:
        """A request went on and was broken off."""
        return any(not request.whole for request in self.requests)

    @property
    def sent(self) -> list[bytes]:
        """The whole requests, as bytes."""
        return [bytes(request.data) for request in self.requests if request.whole]


def pieces(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The data cut at these places."""
    start = 0
    for cut in [*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]:
        if cut > start:
            yield data[start:cut]
            start = cut


def rehearse_requests(
    parts: Iterable[bytes],
    *,
    half_close: bool = False,
    peer: Peer = PEER,
    names: Names = NAMES,
    session: bytes | None = SESSION,
    limits: HeadLimits = LIMITS,
) -> Outcome:
    """What the container and the client get for what the client sends in these reads."""
    outcome = Outcome()
    buffer = b""
    searched = 0
    scanner: Body | None = None
    request: Forwarded | None = None
    try:
        for part in parts:
            buffer += part
            while True:
                if scanner is None:
                    end = find_request_end(buffer, searched, limits)
                    if end < 0:
                        searched = len(buffer)
                        break
                    head = parse_request(buffer[:end], limits)
                    find_credential(head, names)
                    request = Forwarded(head, bytearray(container_head(head, names, peer, session)))
                    outcome.requests.append(request)
                    scanner = body(head.framing, head.length, limits)
                    buffer = buffer[end:]
                    searched = 0
                assert request is not None
                if not scanner.done and buffer:
                    size = scanner.feed(buffer)
                    request.data += buffer[:size]
                    buffer = buffer[scanner.used :]
                if not scanner.done:
                    break
                if request.head.framing is Framing.CHUNKED:
                    request.data += trailer_section(scanner.trailers, names, request.head.connection)
                request.whole = True
                scanner = None
                if not buffer:
                    break
        if half_close:
            if scanner is not None:
                scanner.finish()
            outcome.closed = scanner is None and has_begun(buffer)
    except errors.Refusal as refusal:
        outcome.refusal = refusal
    except errors.BodyFault:
        outcome.refusal = errors.BadBody()
    return outcome


def read_request(data: bytes) -> Message:
    """A whole request as h11 reads it. Raises AssertionError where anything is left over or missing."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    connection.receive_data(data)
    head = connection.next_event()
    assert isinstance(head, h11.Request), head
    content, end = _rest(connection)
    assert connection.trailing_data[0] == b""
    return Message(
        _text(head.headers), content, _text(end.headers), head.method.decode("latin-1"), head.target.decode("latin-1")
    )


def _rest(connection: h11.Connection) -> tuple[str, h11.EndOfMessage]:
    content = b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.EndOfMessage):
            return content.decode("latin-1"), event
        assert isinstance(event, h11.Data), event
        content += event.data


def _text(lines: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in lines]


# --- the way back ----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Answered:
    """What a client gets."""

    data: bytearray = attrs.field(factory=bytearray)
    bad_gateway: bool = False
    broken: bool = False
    informational: list[int] = attrs.field(factory=list)
    head: ResponseHead | None = None


def rehearse_response(parts: Iterable[bytes], request: RequestHead, *, limits: HeadLimits = LIMITS) -> Answered:
    """What the client gets for what its container sends in these reads before it closes."""
    answered = Answered()
    buffer = b""
    searched = 0
    scanner: Body | None = None
    head: ResponseHead | None = None
    try:
        for part in parts:
            buffer += part
            while head is None or head.informational:
                end = find_response_end(buffer, searched, limits)
                if end < 0:
                    searched = len(buffer)
                    break
                head = parse_response(buffer[:end], request.method, limits)
                buffer = buffer[end:]
                searched = 0
                if head.informational and request.minor == 0:
                    continue
                keep_alive = request.keep_alive and client_framing(head, request) is not Framing.CLOSE
                answered.data += client_head(head, request, keep_alive=keep_alive)
                if head.informational:
                    answered.informational.append(head.status)
                else:
                    answered.head = head
                    scanner = body(head.framing, head.length, limits)
            if scanner is None or head is None:
                continue
            if not scanner.done and buffer:
                _deliver(answered.data, scanner, buffer, head, request)
            if scanner.done:
                break
            buffer = b""
        if scanner is None:
            answered.bad_gateway = True
        elif not scanner.done:
            scanner.finish()
            if client_framing(answered.head or head, request) is Framing.CHUNKED:  # type: ignore[arg-type]
                answered.data += b"0\r\n\r\n"
    except errors.BadGateway:
        answered.bad_gateway = True
    except errors.BodyFault:
        answered.broken = True
    return answered


def client_framing(response: ResponseHead, request: RequestHead) -> Framing:
    """How the response's body has to end for this client."""
    if response.framing is Framing.CHUNKED and request.minor == 0:
        return Framing.CLOSE
    if response.framing is Framing.CLOSE and request.minor == 1:
        return Framing.CHUNKED
    return response.framing


def _deliver(out: bytearray, scanner: Body, data: bytes, head: ResponseHead, request: RequestHead) -> None:
    framing = client_framing(head, request)
    if framing is head.framing:
        size = scanner.feed(data)
        out += data[:size]
        if scanner.done and framing is Framing.CHUNKED:
            out += trailer_section(scanner.trailers, NAMES, head.connection)
        return
    payload: list[bytes] = []
    scanner.feed(data, payload)
    for piece in payload:
        out += b"%x\r\n%b\r\n" % (len(piece), piece) if framing is Framing.CHUNKED else piece


def read_response(answered: Answered, request: RequestHead) -> tuple[list[int], Message, bool]:
    """The 1xx, the answer and whether its body is cut off, as h11 reads it up to the close."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
    connection.send(h11.Request(method=request.method, target=b"/", headers=[("Host", "game.example")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(bytes(answered.data))
    connection.receive_data(b"")
    informational = []
    event = connection.next_event()
    while isinstance(event, h11.InformationalResponse):
        informational.append(event.status_code)
        event = connection.next_event()
    assert isinstance(event, h11.Response), event
    content = b""
    trailers: list[tuple[str, str]] = []
    broken = False
    while True:
        try:
            more = connection.next_event()
        except h11.RemoteProtocolError:
            broken = True
            break
        if isinstance(more, h11.EndOfMessage):
            trailers = _text(more.headers)
            break
        assert isinstance(more, h11.Data), more
        content += more.data
    message = Message(_text(event.headers), content.decode("latin-1"), trailers, status=event.status_code)
    return informational, message, broken

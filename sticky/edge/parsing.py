"""Strict HTTP/1.1 heads in both directions (RFC 9112): where one ends, what it says, and every fault. Bytes in, values out.

Must not know brands, credentials or sockets. The pure reference of the head parser: a compiled twin has to give the same
values and the same refusals. One `fullmatch` checks a head, one scan finds the fields that matter; nothing else looks at
single bytes.
"""

from __future__ import annotations

import re

import attrs

from sticky import errors
from sticky.edge.grammar import (
    CHUNKED_CODING,
    FIELDS,
    HOST,
    LENGTH,
    REQUEST_LINE,
    STANDARD_OPTIONS,
    Field,
    Framing,
    HeadLimits,
    members,
    split_fields,
)
from sticky.edge.responses import MAX_INFORMATIONAL, ResponseHead, find_response_end, parse_response
from sticky.edge.unfinished import REQUEST, check_unfinished, request_fault

__all__ = [
    "MAX_INFORMATIONAL",
    "Framing",
    "HeadLimits",
    "RequestHead",
    "ResponseHead",
    "find_request_end",
    "find_response_end",
    "has_begun",
    "parse_request",
    "parse_response",
]


@attrs.define(repr=False)
class RequestHead:
    """A request's head that has been found valid. Never changed after `parse_request` made it (attrs' frozen classes take
    several times as long to build, and this is built for every request). The repr shows neither target nor fields.
    """

    method: bytes
    target: bytes  #: in origin form, or `*`; the query token is still in it
    minor: int  #: 1, or 0 for HTTP/1.0
    host: bytes  #: as sent, with its port; empty only for HTTP/1.0
    framing: Framing  #: NONE, LENGTH or CHUNKED
    length: int  #: of a LENGTH body, else 0
    keep_alive: bool  #: whether the client wants the connection to stay open after the answer
    expects_continue: bool  #: `Expect: 100-continue`, from a client that understands the answer
    websocket: bool  #: a well-formed WebSocket handshake, version 13 (RFC 6455, 4.2.1)
    wants_trailers: bool  #: `TE: trailers`
    connection: tuple[bytes, ...]  #: fields named by Connection, lower case, without the standard hop-by-hop ones
    block: bytes  #: the field lines as sent, each preceded by CRLF

    @property
    def fields(self) -> list[Field]:
        """All fields in order, names in the client's spelling. Split anew at each call."""
        return split_fields(self.block)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field (name in lower case), in order."""
        return [value for key, value in split_fields(self.block) if key.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field (name in lower case), or None."""
        return next(iter(self.values(name)), None)

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """What follows the first `?` of the target."""
        return self.target.partition(b"?")[2]

    def __repr__(self) -> str:
        return f"<RequestHead {self.method.decode('ascii')} {self.framing.value}>"


# --- where a head ends -----------------------------------------------------------------------------------------------


def has_begun(buffer: bytes | bytearray) -> bool:
    """Whether a request has begun: one stray CRLF between requests (RFC 9112, 2.2) does not count."""
    return len(buffer) > 2 or (len(buffer) > 0 and not b"\r\n".startswith(buffer))


def find_request_end(buffer: bytes | bytearray, searched_from: int, limits: HeadLimits) -> int:
    """The number of bytes of the request head at the start of the buffer, its empty line included, or -1: more is needed.

    `searched_from` is the buffer's length at the last call for this head, 0 at the first. One stray CRLF before the request
    line is taken as part of the head. A complete head is left to `parse_request`.

    Raises an `errors.Refusal` as soon as no continuation could make the bytes a valid head within the limits. The
    connection must close then: where the next request starts is not known.
    """
    end = buffer.find(b"\r\n\r\n", searched_from - 3 if searched_from > 3 else 0)
    if end >= 0:
        return end + 4
    check_unfinished(bytes(buffer), searched_from, REQUEST, limits)
    return -1


# --- requests --------------------------------------------------------------------------------------------------------

_REQUEST_HEAD = re.compile(rb"(?:\r\n)?" + REQUEST_LINE + rb"(" + FIELDS + rb")\r\n\r\n")
_REQUEST_FIELD = re.compile(
    rb"\r\n(host|content-length|transfer-encoding|connection|expect|upgrade|te|sec-websocket-(?:key|version))"
    rb":[ \t]*([^\r]*)",
    re.IGNORECASE,
)
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
_WEBSOCKET_KEY = re.compile(rb"[0-9A-Za-z+/]{22}==")

_ALLOWED = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE"})
_KEEP_ALIVE = [b"keep-alive"]  # by far the commonest Connection


def parse_request(head: bytes, limits: HeadLimits) -> RequestHead:
    """What a complete request head says; `head` ends with its empty line, as `find_request_end` found it.

    Raises an `errors.Refusal` for every fault: 400, 405 (CONNECT, TRACE), 414, 417, 426, 431, 501, 505. Success means that
    framing and Host are unambiguous, not that anybody may make this request.
    """
    match = _REQUEST_HEAD.fullmatch(head)
    if match is None or len(head) > limits.head:
        raise request_fault(head, limits)
    method, target, version, block = match.groups()
    if len(method) + len(target) > limits.target:
        raise errors.TargetTooLong
    if block.count(b"\n") > limits.fields:
        raise errors.HeadTooLarge
    minor = 1 if version == b"1" else 0
    keep_alive = minor == 1
    framing = Framing.NONE
    length = 0
    host: bytes | None = None
    named: tuple[bytes, ...] = ()
    options: list[bytes] | None = None
    expectation: bytes | None = None
    length_seen = coding_seen = wants_trailers = False
    handshake: list[Field] | None = None
    for name, value in _REQUEST_FIELD.findall(block):
        field = name.lower()
        if field == b"host":
            if host is not None:
                raise errors.BadHead("The request has two Host fields.")
            host = value.rstrip(b" \t")
            if HOST.fullmatch(host) is None:
                raise errors.BadHead("The Host is not valid.")
        elif field == b"connection":
            plain = options is None and value == b"keep-alive"
            options = _KEEP_ALIVE if plain else [*(options or ()), *members(value)]
        elif field == b"content-length":
            if length_seen or LENGTH.fullmatch(value) is None:
                raise errors.BadHead("The Content-Length is not one plain number.")
            length_seen = True
            length = int(value)
        elif field == b"transfer-encoding":
            if coding_seen or CHUNKED_CODING.fullmatch(value) is None:
                raise errors.UnknownCoding
            coding_seen = True
        elif field == b"expect":
            if expectation is not None or value.rstrip(b" \t").lower() != b"100-continue":
                raise errors.UnknownExpectation
            expectation = value
        elif field == b"te":
            wants_trailers = wants_trailers or b"trailers" in members(value)
        else:
            handshake = [] if handshake is None else handshake
            handshake.append((field, value.rstrip(b" \t")))

    if coding_seen:
        if length_seen:
            raise errors.BadHead("The request has both Content-Length and Transfer-Encoding.")
        if minor == 0:
            raise errors.BadHead("Transfer-Encoding does not exist in HTTP/1.0.")
        framing = Framing.CHUNKED
    elif length_seen:
        framing = Framing.LENGTH
    if options is _KEEP_ALIVE:
        keep_alive = True
    elif options is not None:
        keep_alive = b"close" not in options and (minor == 1 or b"keep-alive" in options)
        named = tuple(option for option in options if option not in STANDARD_OPTIONS)
    if host is None:
        if minor == 1:
            raise errors.BadHead("The request has no Host.")
        host = b""
    if method in _REFUSED_METHODS:
        raise errors.MethodNotAllowed(*_ALLOWED)
    if target[0] != 0x2F:
        target, host = _origin_form(method, target, host)
    websocket = False
    if handshake is not None and minor == 1 and method == b"GET" and options is not None and b"upgrade" in options:
        websocket = _is_handshake(handshake, framing)
    return RequestHead(
        method,
        target,
        minor,
        host,
        framing,
        length,
        keep_alive,
        expectation is not None and minor == 1,
        websocket,
        wants_trailers,
        named,
        block,
    )


def _origin_form(method: bytes, target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """The target that a gateway passes on (RFC 9112, 3.2.1 and 3.2.4) and the host, which both forms must agree on."""
    if target == b"*":
        if method == b"OPTIONS":
            return target, host
        raise errors.BadHead("The target * belongs to OPTIONS.")
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise errors.BadHead("The request target is not valid.")
    authority, rest = match.groups()
    if HOST.fullmatch(authority) is None or (host and authority.lower() != host.lower()):
        raise errors.BadHead("The Host disagrees with the request target.")
    if rest[:1] != b"/":
        rest = b"*" if method == b"OPTIONS" and not rest else b"/" + rest
    return rest, host or authority


def _is_handshake(handshake: list[Field], framing: Framing) -> bool:
    """Whether these are the fields of a WebSocket handshake; a faulty one is refused (RFC 6455, 4.2.1 and 4.2.2)."""
    upgrades = [value for name, value in handshake if name == b"upgrade"]
    if not any(b"websocket" in members(value) for value in upgrades):
        return False
    versions = [value for name, value in handshake if name == b"sec-websocket-version"]
    if versions != [b"13"]:
        raise errors.UpgradeRequired
    keys = [value for name, value in handshake if name == b"sec-websocket-key"]
    if len(keys) != 1 or _WEBSOCKET_KEY.fullmatch(keys[0]) is None:
        raise errors.BadHead("The Sec-WebSocket-Key is not valid.")
    if framing is not Framing.NONE:
        raise errors.BadHead("A WebSocket handshake has no body.")
    return True

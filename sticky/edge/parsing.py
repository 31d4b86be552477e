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
    FAULTY,
    FIELDS,
    LENGTH,
    TARGET,
    TOKEN,
    VALUE,
    Field,
    Framing,
    HeadLimits,
    members,
    split_fields,
)

__all__ = [
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


@attrs.define(repr=False)
class ResponseHead:
    """A response's head that has been found valid. Not changed after `parse_response` made it."""

    status: int
    minor: int
    reason: bytes
    framing: Framing
    length: int  #: of a LENGTH body, else 0
    keep_alive: bool  #: whether the container leaves its connection open after this response
    clean: bool  #: nothing in it is hop-by-hop: it may go to an HTTP/1.1 client as it is
    connection: tuple[bytes, ...]  #: fields named by Connection, lower case
    block: bytes  #: the field lines as sent, each preceded by CRLF
    raw: bytes  #: the whole head as sent

    @property
    def informational(self) -> bool:
        """A 1xx other than 101: the real answer is still to come."""
        return self.status < 200 and self.status != 101

    @property
    def fields(self) -> list[Field]:
        """All fields in order, names in the container's spelling. Split anew at each call."""
        return split_fields(self.block)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field (name in lower case), in order."""
        return [value for key, value in split_fields(self.block) if key.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field (name in lower case), or None."""
        return next(iter(self.values(name)), None)

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status} {self.framing.value}>"


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
    _check_unfinished(bytes(buffer), searched_from, _REQUEST, limits)
    return -1


def find_response_end(buffer: bytes | bytearray, searched_from: int, limits: HeadLimits) -> int:
    """The same for a response's head. Every fault is an `errors.BadGateway`."""
    end = buffer.find(b"\r\n\r\n", searched_from - 3 if searched_from > 3 else 0)
    if end >= 0:
        return end + 4
    try:
        _check_unfinished(bytes(buffer), searched_from, _RESPONSE, limits)
    except errors.Refusal:
        raise errors.BadGateway
    return -1


# --- requests --------------------------------------------------------------------------------------------------------

_REQUEST_LINE = rb"(" + TOKEN + rb") (" + TARGET + rb") HTTP/1\.([01])"
_REQUEST_HEAD = re.compile(rb"(?:\r\n)?" + _REQUEST_LINE + rb"(" + FIELDS + rb")\r\n\r\n")
_REQUEST_FIELD = re.compile(
    rb"\r\n(host|content-length|transfer-encoding|connection|expect|upgrade|te|sec-websocket-(?:key|version))"
    rb":[ \t]*([^\r]*)",
    re.IGNORECASE,
)
_HOST = re.compile(rb"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
_WEBSOCKET_KEY = re.compile(rb"[0-9A-Za-z+/]{22}==")

_ALLOWED = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE"})
_STANDARD_OPTIONS = frozenset({b"close", b"keep-alive", b"upgrade", b"te"})
_KEEP_ALIVE = [b"keep-alive"]  # by far the commonest Connection


def parse_request(head: bytes, limits: HeadLimits) -> RequestHead:
    """What a complete request head says; `head` ends with its empty line, as `find_request_end` found it.

    Raises an `errors.Refusal` for every fault: 400, 405 (CONNECT, TRACE), 414, 417, 426, 431, 501, 505. Success means that
    framing and Host are unambiguous, not that anybody may make this request.
    """
    match = _REQUEST_HEAD.fullmatch(head)
    if match is None or len(head) > limits.head:
        raise _request_fault(head, limits)
    method, target, version, block = match.groups()
    if len(target) > limits.target:
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
            if _HOST.fullmatch(host) is None:
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
        named = tuple(option for option in options if option not in _STANDARD_OPTIONS)
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
    if _HOST.fullmatch(authority) is None or (host and authority.lower() != host.lower()):
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


# --- responses -------------------------------------------------------------------------------------------------------

_STATUS_LINE = rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (" + VALUE + rb"))?"
_RESPONSE_HEAD = re.compile(_STATUS_LINE + rb"(" + FIELDS + rb")\r\n\r\n")
_RESPONSE_FIELD = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|keep-alive|proxy-connection|upgrade|te):[ \t]*([^\r]*)",
    re.IGNORECASE,
)


def parse_response(
    head: bytes, request_method: bytes, limits: HeadLimits | None = None, *, upgrading: bool = False
) -> ResponseHead:
    """What a complete response head says, as an answer to this method.

    `upgrading`: the request was a WebSocket handshake, so that a 101 may come; what it must hold is for the caller to
    check. Raises `errors.BadGateway` for every fault; the container's connection is of no use any more then.
    """
    match = _RESPONSE_HEAD.fullmatch(head)
    if match is None:
        raise errors.BadGateway
    version, code, reason, block = match.groups()
    if limits is not None and (len(head) > limits.head or block.count(b"\n") > limits.fields):
        raise errors.BadGateway("The container's answer has a head that is too large.")
    minor = 1 if version == b"1" else 0
    status = int(code)
    clean = minor == 1 and reason is not None
    keep_alive = minor == 1
    length = -1
    chunked = False
    named: tuple[bytes, ...] = ()
    options: list[bytes] = []
    for name, value in _RESPONSE_FIELD.findall(block):
        field = name.lower()
        if field == b"content-length":
            if length >= 0 or LENGTH.fullmatch(value) is None:
                raise errors.BadGateway("The Content-Length of the container's answer is not one plain number.")
            length = int(value)
        elif field == b"transfer-encoding":
            if chunked or minor == 0 or CHUNKED_CODING.fullmatch(value) is None:
                raise errors.BadGateway("The container's answer has a transfer coding that is not understood.")
            chunked = True
        else:
            clean = False
            if field == b"connection":
                options += members(value)
    if chunked and length >= 0:
        raise errors.BadGateway("The container's answer has both Content-Length and Transfer-Encoding.")
    if options:
        keep_alive = b"close" not in options and (minor == 1 or b"keep-alive" in options)
        named = tuple(option for option in options if option not in _STANDARD_OPTIONS)
    if status == 101 and not upgrading:
        raise errors.BadGateway("The container switched protocols without being asked.")
    bodiless = request_method == b"HEAD" or status < 200 or status == 204 or status == 304
    if bodiless:
        framing = Framing.NONE
        if chunked or (length >= 0 and (status < 200 or status == 204)):
            clean = False  # RFC 9110, 8.6; after HEAD and 304 a length stays: it tells of the body that is not there
    elif chunked:
        framing = Framing.CHUNKED
    elif length >= 0:
        framing = Framing.LENGTH
    else:
        framing = Framing.CLOSE
        keep_alive = False
    return ResponseHead(
        status,
        minor,
        reason or b"",
        framing,
        length if framing is Framing.LENGTH else 0,
        keep_alive,
        clean,
        named,
        block,
        head,
    )


# --- faults ----------------------------------------------------------------------------------------------------------

_ANY_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/(?!1\.[01]\Z)[0-9]\.[0-9]")
_LINES = re.compile(FIELDS)


@attrs.frozen
class _Direction:
    """What the two directions' unfinished heads differ in."""

    line: re.Pattern[bytes]  #: a complete first line
    beginning: re.Pattern[bytes]  #: any beginning of one
    stray: bool  #: whether one CRLF may come before it


_REQUEST = _Direction(
    re.compile(_REQUEST_LINE),
    re.compile(rb"(?:" + TOKEN + rb"(?: (?:" + TARGET + rb"(?: [HTP/0-9.]{0,8}\r?)?)?)?)?"),
    True,
)
_RESPONSE = _Direction(
    re.compile(_STATUS_LINE),
    re.compile(
        rb"(?:H(?:T(?:T(?:P(?:/(?:1(?:\.(?:[01](?: (?:[1-9][0-9]{0,2}(?: " + VALUE + rb")?)?)?)?)?)?)?)?)?)?)?\r?"
    ),
    False,
)


def _request_fault(head: bytes, limits: HeadLimits) -> errors.Refusal:
    """The refusal for a complete head that is too large or not in the grammar."""
    line, _, rest = head.removeprefix(b"\r\n").partition(b"\r\n")
    if len(line) > limits.target + 64:
        return errors.TargetTooLong()
    if len(head) > limits.head or rest.count(b"\n") > limits.fields + 1:
        return errors.HeadTooLarge()
    if _ANY_VERSION.fullmatch(line) is not None:
        return errors.VersionNotSupported()
    return errors.BadHead()


def _check_unfinished(buffer: bytes, searched_from: int, direction: _Direction, limits: HeadLimits) -> None:
    """Raise if a head that has not ended yet cannot become a valid one. Looks at nothing twice but the current line."""
    start = 2 if direction.stray and buffer[:2] == b"\r\n" else 0
    line_end = buffer.find(b"\r\n", start)
    if (len(buffer) if line_end < 0 else line_end) - start > limits.target + 64:
        raise errors.TargetTooLong
    if FAULTY.search(buffer, searched_from - 1 if searched_from > 1 else 0) is not None:
        raise errors.BadHead
    if line_end < 0:
        if direction.stray and buffer == b"\r":
            return
        if direction.beginning.fullmatch(buffer, start) is None:
            raise errors.BadHead
        return
    if direction.line.fullmatch(buffer, start, line_end) is None:
        raise _request_fault(buffer, limits)
    if len(buffer) > limits.head or buffer.count(b"\n") > limits.fields + 2:
        raise errors.HeadTooLarge
    # Only lines that came to their end since the last call; what is after the last CRLF may still become anything.
    last = buffer.rfind(b"\r\n")
    first = max(line_end, buffer.rfind(b"\r\n", 0, max(searched_from - 1, 0)))
    if _LINES.fullmatch(buffer, first, last) is None:
        raise errors.BadHead

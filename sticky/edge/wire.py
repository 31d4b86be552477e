"""Every name on the wire, from the brand, and the heads that Sticky passes on: what is stripped, kept and added (wire.md).

Must not know sockets, nor which credential a request was accepted for. In everything that is stripped `_` equals `-` and
case does not count, because containers' gateways (CGI, WSGI) treat the spellings alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import attrs

from sticky.core.values import EndReason
from sticky.edge.forwarding import Peer
from sticky.edge.grammar import Field, Framing
from sticky.edge.parsing import RequestHead, ResponseHead


def _either(name: bytes) -> bytes:
    return re.escape(name).replace(rb"\-", b"-").replace(b"-", b"[-_]")


@attrs.frozen
class Names:
    """Every name that contains the brand; field names in lower case. Built once, from one word of letters and digits."""

    brand: str = attrs.field(default="modal", validator=attrs.validators.matches_re(r"[a-z][a-z0-9]*"))

    word: bytes = attrs.field(init=False)  #: the brand as bytes: what no line without it needs to be searched for
    authorization: bytes = attrs.field(init=False)  #: session token of a data request, proxy token of a control call
    key: bytes = attrs.field(init=False)  #: the pair form of a proxy token: `wk-...`
    secret: bytes = attrs.field(init=False)  #: and `ws-...`
    query: bytes = attrs.field(init=False)  #: query parameter with a session token
    cookie: bytes = attrs.field(init=False)  #: cookie with a session token
    insecure_cookie: bytes = attrs.field(init=False)  #: its name where `insecure_cookie` is set
    subprotocol: bytes = attrs.field(init=False)  #: what Sticky answers if the container selects nothing
    subprotocol_token: bytes = attrs.field(init=False)  #: prefix of the subprotocol that carries a session token
    server_prefix: bytes = attrs.field(init=False)  #: fields of ours that no client may send to a container
    session_id: bytes = attrs.field(init=False)  #: added to every request of a session
    session_token: bytes = attrs.field(init=False)  #: of `terminate`
    session_name: bytes = attrs.field(init=False)  #: of `start`
    idle_timeout: bytes = attrs.field(init=False)  #: of `start`, whole seconds
    grace: bytes = attrs.field(init=False)  #: of `terminate`, seconds
    timestamp: bytes = attrs.field(init=False)  #: accepted, not trusted
    idempotency_key: bytes = attrs.field(init=False, default=b"x-idempotency-key")  #: of `start`
    affinity: tuple[bytes, ...] = attrs.field(init=False)  #: of plain Servers; the first present one counts
    control: bytes = attrs.field(init=False)  #: paths that begin with this are never forwarded

    stripped: re.Pattern[bytes] = attrs.field(init=False, repr=False, eq=False)  #: lines that never pass
    stripped_of_trusted: re.Pattern[bytes] = attrs.field(init=False, repr=False, eq=False)  #: from a trusted proxy
    credentials: re.Pattern[bytes] = attrs.field(init=False, repr=False, eq=False)  #: lines that may hold a token
    own_cookie: re.Pattern[bytes] = attrs.field(init=False, repr=False, eq=False)  #: in a Cookie's value

    def __attrs_post_init__(self) -> None:
        # The fields are derived, so they can only be set past attrs' own guard.
        brand = self.brand.encode("ascii")
        prefix = b"x-" + brand + b"-server-"
        cookie = brand + b"-session-token"
        values: dict[str, object] = {
            "word": brand,
            "authorization": brand + b"-authorization",
            "key": brand + b"-key",
            "secret": brand + b"-secret",
            "query": brand + b"_session_token",
            "cookie": b"__Host-" + cookie,
            "insecure_cookie": cookie,
            "subprotocol": brand + b"-session",
            "subprotocol_token": brand + b"-session-token.",
            "server_prefix": prefix,
            "session_id": prefix + b"session-id",
            "session_token": prefix + b"session-token",
            "session_name": prefix + b"session-name",
            "idle_timeout": prefix + b"session-idle-timeout",
            "grace": prefix + b"session-grace",
            "timestamp": b"x-" + brand + b"-timestamp",
            "affinity": (
                brand + b"-routing-affinity-key",
                brand + b"-session-id",
                brand + b"-affinity-routing-key",
            ),
            "control": b"/_" + brand + b"/",
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        own = [_either(self.authorization), _either(self.key), _either(self.secret), _either(prefix) + rb"[^:]*"]
        # Content_Length is no framing to us and may be one to a CGI-like gateway.
        never = [*own, *map(_either, sorted(_HOP_BY_HOP)), b"content_length", _PROXY_TOKEN]
        # A Cookie line with nothing but ours is the commonest case, and cheaper here than in `_rewrite`.
        never.append(rb"cookie(?=:[ \t]*+(?-i:(?:__Host-)?" + cookie + rb"[ \t]*=)[^;\r]*(?:\r|\Z))")
        patterns = {
            "stripped": _lines([*never, rb"x[-_]forwarded[-_][^:]*", b"forwarded"]),
            "stripped_of_trusted": _lines([*never, rb"x[-_]forwarded[-_](?:for|proto|host)"]),
            "credentials": re.compile(
                rb"\r\n(" + self.authorization + rb"|cookie|sec-websocket-protocol):[ \t]*([^\r]*)", re.IGNORECASE
            ),
            "own_cookie": re.compile(rb"(?:^|;)[ \t]*(?:__Host-)?" + cookie + rb"[ \t]*=[^;]*"),
        }
        for name, pattern in patterns.items():
            object.__setattr__(self, name, pattern)


# RFC 9110, 7.6.1, and what older peers send. Transfer-Encoding is stated anew from what was parsed.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
# An Authorization that is a proxy token; every other one is the application's own.
_PROXY_TOKEN = rb"authorization(?=:[ \t]*bearer[ \t]+wk-[^\r]*\.ws-)"

# Connection may name any field; these are not the sender's to take away (RFC 9110, 7.6.1: end-to-end fields that all
# recipients need).
_NOT_REMOVABLE = frozenset({b"host", b"content-length", b"content-type"})

# RFC 9110, 6.5.1: no framing, routing, authentication or content control in trailers.
_NOT_IN_TRAILERS = _HOP_BY_HOP | {
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"expect",
    b"forwarded",
    b"host",
    b"max-forwards",
    b"range",
    b"set-cookie",
    b"trailer",
}


def _lines(names: list[bytes]) -> re.Pattern[bytes]:
    return re.compile(rb"\r\n(?:" + b"|".join(names) + rb"):[^\r]*", re.IGNORECASE)


# --- towards the container -------------------------------------------------------------------------------------------


def container_head(head: RequestHead, names: Names, peer: Peer, session: bytes | None = None) -> bytes:
    """The complete head to send to the container.

    Every credential is stripped wherever it may travel, also the ones that did not decide; the other fields keep their
    order, spelling and repetition. `session`: the session's id, or None on a plain Server. The container gets HTTP/1.1,
    but for an HTTP/1.0 request without Host, which goes on as HTTP/1.0 and closes.
    """
    block = (names.stripped_of_trusted if peer.trusted else names.stripped).sub(b"", head.block)
    if names.word in block:
        if names.subprotocol in block:  # the cookie's name begins with it too
            block = _rewrite(block, names.insecure_cookie, b"cookie", names, _without_cookie)
            block = _rewrite(block, names.subprotocol, b"sec-websocket-protocol", names, _without_offers)
        block = _rewrite(block, names.query, b"referer", names, strip_query_token)
    if head.connection:
        block = _drop(block, head.connection)
    target = head.target
    if b"?" in target:
        target = strip_query_token(target, names)
    added = b""
    if session is not None:
        added = b"\r\n" + names.session_id + b": " + session
    if head.framing is Framing.CHUNKED:
        added += b"\r\nTransfer-Encoding: chunked"
    if head.websocket:
        added += b"\r\nConnection: Upgrade\r\nUpgrade: websocket"
    elif head.wants_trailers:
        added += b"\r\nConnection: TE\r\nTE: trailers"
    version = b" HTTP/1.1"
    if head.minor == 0:
        block = _drop(block, frozenset({b"expect"}))  # RFC 9110, 10.1.1: means nothing from HTTP/1.0
        if not head.host:
            version = b" HTTP/1.0"
            added += b"\r\nConnection: close"
        elif head.value(b"host") is None:
            added += b"\r\nHost: " + head.host
    return b"".join((head.method, b" ", target, version, block, added, peer.facts(head), b"\r\n\r\n"))


def strip_query_token(target: bytes, names: Names) -> bytes:
    """The target, or a URL, without every query parameter that carries a token; the rest byte for byte."""
    if names.query not in target and b"%" not in target:
        return target
    path, mark, query = target.partition(b"?")
    if not mark:
        return target
    parts = query.split(b"&")
    kept = [part for part in parts if query_name(part) != names.query]
    if len(kept) == len(parts):
        return target
    return path + b"?" + b"&".join(kept) if kept else path


def query_name(part: bytes) -> bytes:
    """The name of one `name=value`, decoded: what a container would take it for."""
    name = part.partition(b"=")[0]
    return _PERCENT.sub(lambda match: bytes((int(match[1], 16),)), name) if b"%" in name else name


_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


def is_own_offer(offer: bytes, names: Names) -> bool:
    """Whether this subprotocol is one of ours, not the application's."""
    offer = offer.strip(b" \t")
    return offer == names.subprotocol or offer.startswith(names.subprotocol_token)


def _without_cookie(value: bytes, names: Names) -> bytes:
    kept = names.own_cookie.sub(b"", value)
    if kept[:1] == b";" and value[:1] != b";":
        kept = kept[1:]  # ours was the first: its separator goes with it
    return kept.strip(b" \t")


def _without_offers(value: bytes, names: Names) -> bytes:
    return b",".join(offer for offer in value.split(b",") if not is_own_offer(offer, names)).strip(b" \t")


def _rewrite(block: bytes, mark: bytes, field: bytes, names: Names, without: Callable[[bytes, Names], bytes]) -> bytes:
    """The block with what is ours cut out of each line of this field that holds the mark; no line if nothing is left."""
    at = block.find(mark)
    while at >= 0:
        start = block.rfind(b"\r\n", 0, at)
        end = block.find(b"\r\n", at)
        if end < 0:
            end = len(block)
        colon = block.find(b":", start)
        if colon < at and _spelling(block[start + 2 : colon]) == field:
            value = without(block[colon + 1 : end].strip(b" \t"), names)
            line = block[start : colon + 1] + b" " + value if value else b""
            block = block[:start] + line + block[end:]
            end = start + len(line)
        at = block.find(mark, end)
    return block


def _drop(block: bytes, connection: Iterable[bytes]) -> bytes:
    """The block without the fields that Connection names, in any spelling.

    What may not be taken away is taken out after the spellings are made equal: `Connection: content_length` would otherwise
    leave a body without its length, and its bytes would be the next request on a shared connection.
    """
    names = frozenset(map(_spelling, connection)) - _NOT_REMOVABLE
    if not names:
        return block
    lines = block.split(b"\r\n")
    return b"\r\n".join(line for line in lines if _spelling(line.partition(b":")[0]) not in names)


def _spelling(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")


# --- towards the client ----------------------------------------------------------------------------------------------

_NOT_TO_CLIENTS = _lines([b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"])
_CONTENT_LENGTH = _lines([b"content-length"])


def client_head(response: ResponseHead, request: RequestHead, *, keep_alive: bool) -> bytes:
    """The complete head to send to the client: as the container sent it, without what concerns the other connection.

    HTTP/1.0 knows no chunks and gets the content until the close. What a container ends by closing goes to HTTP/1.1 clients
    in chunks: a container that dies must not pass for one that is done as far as we can tell them apart, and the client's
    connection stays open. `keep_alive`: whether that is so after the response; with CLOSE it cannot be. Of ours nothing is
    added but `Connection`, where the client's version does not say it already.
    """
    if response.clean and request.minor == 1 and response.framing is not Framing.CLOSE:
        if keep_alive or response.status < 200:
            return response.raw
        return response.raw[:-2] + b"Connection: close\r\n\r\n"
    status = response.status
    block = _NOT_TO_CLIENTS.sub(b"", response.block)
    if response.connection:
        block = _drop(block, response.connection)
    if status < 200 or status == 204:
        block = _CONTENT_LENGTH.sub(b"", block)  # RFC 9110, 8.6
    added = b""
    if request.minor == 1 and response.framing in (Framing.CHUNKED, Framing.CLOSE):
        added = b"\r\nTransfer-Encoding: chunked"
    if status >= 200:
        if not keep_alive:
            added += b"\r\nConnection: close"
        elif request.minor == 0:
            added += b"\r\nConnection: keep-alive"
    return b"".join((b"HTTP/1.1 %d " % status, response.reason, block, added, b"\r\n\r\n"))


# --- trailers, both ways ---------------------------------------------------------------------------------------------


def trailer_section(trailers: Iterable[Field], names: Names, connection: Iterable[bytes] = ()) -> bytes:
    """What ends a chunked body after its last chunk: the trailers that may pass, and the empty line.

    `connection`: the fields that the head's Connection named (`RequestHead.connection`).
    """
    named = {_spelling(name) for name in connection}
    lines = [
        b"%b: %b\r\n" % (name, value)
        for name, value in trailers
        if _may_trail(spelling := _spelling(name), names) and spelling not in named
    ]
    lines.append(b"\r\n")
    return b"".join(lines)


def _may_trail(name: bytes, names: Names) -> bool:
    return not (
        name in _NOT_IN_TRAILERS
        or name in (names.authorization, names.key, names.secret)
        or name.startswith((names.server_prefix, b"x-forwarded-", b"sec-websocket-"))
    )


# --- ends ------------------------------------------------------------------------------------------------------------

_CLOSE_CODES = {
    EndReason.CONTAINER_LOST: 1011,
    EndReason.CONTAINER_MAX_AGE: 4408,
    EndReason.DEPLOYMENT_ENDED: 1012,
    EndReason.SERVER_STOPPED: 1001,
    EndReason.IDLE_TIMEOUT: 4410,
    EndReason.TERMINATED: 4410,
    EndReason.UNKNOWN: 4410,
}


def close_code(reason: EndReason) -> int:
    """The WebSocket close code for the end of a session (semantics.md); the close reason is the reason's own value."""
    return _CLOSE_CODES[reason]

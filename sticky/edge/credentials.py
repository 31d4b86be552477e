"""Where a session token is in a request, and what becomes of the client's copy: the redirect and its cookie (wire.md).

Must not know whether a token is valid, nor whose it is.
"""

from __future__ import annotations

import re
from enum import Enum

import attrs

from sticky import errors
from sticky.edge.parsing import RequestHead
from sticky.edge.wire import Names, is_own_offer, query_name, strip_query_token
from sticky.isticky import Answer


class Source(Enum):
    """Where a credential was found."""

    HEADER = "header"
    QUERY = "query"
    COOKIE = "cookie"
    SUBPROTOCOL = "subprotocol"


@attrs.define
class Credential:
    """The session token that decides about a request. The repr hides it. Not changed (not frozen: see `RequestHead`)."""

    source: Source
    token: bytes = attrs.field(repr=False)  #: as sent, unverified, perhaps empty


_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_HEADER_IS_WRONG = "The header with the session token must be there once, as `Bearer TOKEN`."
_SAFE_TOKEN = re.compile(rb"[0-9A-Za-z._~-]+")


def find_credential(head: RequestHead, names: Names, *, insecure_cookie: bool = False) -> Credential | None:
    """The first credential present, in the order header, query, cookie, subprotocol (handshakes only); None if there is none.

    A bad one is not skipped in favour of the next. Raises `errors.BadCredential` where the place that decides contradicts
    itself: two cookies of ours with different values, two different headers, another scheme than Bearer. Only the cookie
    name that the Server sets is read: one left over from another setting must not block the way.
    """
    cookie = names.insecure_cookie if insecure_cookie else names.cookie
    headers: list[bytes] = []
    cookies: list[bytes] = []
    offers: list[bytes] = []
    for name, value in names.credentials.findall(head.block):
        size = len(name)
        if size == 6:
            if cookie in value:
                cookies += _cookie_values(value, cookie)
        elif size == len(names.authorization) and name.lower() == names.authorization:
            headers.append(value.rstrip(b" \t"))
        elif head.websocket:
            offers += value.split(b",")
    if headers:
        value = headers[0]
        token = value[7:].lstrip(b" ")
        if value[:7].lower() != b"bearer " or b" " in token or headers.count(value) != len(headers):
            raise errors.BadCredential(_HEADER_IS_WRONG)
        return Credential(Source.HEADER, token)
    if b"?" in head.target:
        found = _query_token(head.target, names)
        if found is not None:
            return Credential(Source.QUERY, found)
    if cookies:
        if len(cookies) > 1 and cookies.count(cookies[0]) != len(cookies):
            raise errors.BadCredential("The request carries two different session cookies.")
        return Credential(Source.COOKIE, cookies[0])
    for offer in offers:
        offer = offer.strip(b" \t")
        if offer.startswith(names.subprotocol_token):
            return Credential(Source.SUBPROTOCOL, offer[len(names.subprotocol_token) :])
    return None


def _cookie_values(value: bytes, cookie: bytes) -> list[bytes]:
    found = []
    for part in value.split(b";"):
        name, equals, token = part.partition(b"=")
        if equals and name.strip(b" \t") == cookie:
            found.append(token.strip(b" \t"))
    return found


def _query_token(target: bytes, names: Names) -> bytes | None:
    if names.query not in target and b"%" not in target:
        return None
    for part in target.partition(b"?")[2].split(b"&"):
        if query_name(part) == names.query:
            token = part.partition(b"=")[2]
            return _PERCENT.sub(lambda match: bytes((int(match[1], 16),)), token) if b"%" in token else token
    return None


def application_offers(head: RequestHead, names: Names) -> tuple[bytes, ...]:
    """The subprotocols that a handshake offers to the application: ours taken out, order kept."""
    return tuple(offer for offer in _offers(head) if not is_own_offer(offer, names))


def subprotocol_echo(head: RequestHead, names: Names) -> bytes | None:
    """The subprotocol that Sticky answers if the container selects none (RFC 6455: only one that was offered), or None."""
    return names.subprotocol if names.subprotocol in _offers(head) else None


def first_offer(head: RequestHead, names: Names) -> bytes | None:
    """The first subprotocol offered that is no token: what a 101 that only carries a close reason echoes."""
    return next((offer for offer in _offers(head) if not offer.startswith(names.subprotocol_token)), None)


def _offers(head: RequestHead) -> list[bytes]:
    value = b",".join(head.values(b"sec-websocket-protocol"))
    return [offer for part in value.split(b",") if (offer := part.strip(b" \t"))]


# --- the redirect ----------------------------------------------------------------------------------------------------


def is_navigation(head: RequestHead) -> bool:
    """Whether a browser opens a page with this request, or the client is none (no Sec-Fetch-Mode); never a handshake."""
    return not head.websocket and head.value(b"sec-fetch-mode") in (None, b"navigate")


def wants_redirect(head: RequestHead, credential: Credential) -> bool:
    """Whether this valid credential is answered with the 307 that turns it into a cookie."""
    return credential.source is Source.QUERY and is_navigation(head)


def redirect_answer(
    head: RequestHead,
    token: bytes,
    names: Names,
    base: bytes,
    *,
    third_party_frames: bool = False,
    insecure_cookie: bool = False,
) -> Answer:
    """The 307 to the same URL without the token, with the cookie set (seed 000). Only for a token that has been verified.

    `base`: scheme and host of the location, without a trailing slash (`public_base`). The request's body stays unread, so
    the connection has to close after it unless there is none. All headers are here, `cache-control` among them.
    """
    return Answer(
        307,
        (
            (b"location", base + strip_query_token(head.target, names)),
            (b"set-cookie", set_cookie(token, names, third_party_frames, insecure_cookie)),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
        ),
    )


def public_base(head: RequestHead, url: str | None, scheme: bytes) -> bytes:
    """Where clients see the Server: its `url` setting, or the request's Host with this scheme (`Peer.proto`)."""
    return url.encode("ascii") if url is not None else scheme + b"://" + head.host


def set_cookie(token: bytes, names: Names, third_party_frames: bool = False, insecure_cookie: bool = False) -> bytes:
    """The Set-Cookie value that stores a token. Raises ValueError for a token that is not cookie-safe."""
    if _SAFE_TOKEN.fullmatch(token) is None:
        raise ValueError("a token with characters that no cookie may hold")
    return _cookie(token, names, third_party_frames, insecure_cookie)


def clearing_cookie(names: Names, third_party_frames: bool = False, insecure_cookie: bool = False) -> bytes:
    """The Set-Cookie value that makes a browser forget the token; the attributes must be those that it was set with."""
    return _cookie(b"", names, third_party_frames, insecure_cookie) + b"; Max-Age=0"


def _cookie(token: bytes, names: Names, third_party_frames: bool, insecure_cookie: bool) -> bytes:
    name = names.insecure_cookie if insecure_cookie else names.cookie
    secure = b"" if insecure_cookie else b"; Secure"
    site = b"SameSite=None; Partitioned" if third_party_frames else b"SameSite=Lax"
    return name + b"=" + token + b"; Path=/" + secure + b"; HttpOnly; " + site

"""What control calls say in header fields and queries, as checked values (wire.md, Control calls). Must not know what it is for.

Limits that a Server sets (the longest idle timeout) are not known here; forms are.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from sticky.core.values import SessionId
from sticky.errors import BadGrace, BadIdempotencyKey, BadIdleTimeout, BadRequest, BadSessionName
from sticky.isticky import ControlRequest

if TYPE_CHECKING:
    from sticky.edge.wire import Names

DEFAULT_PAGE: Final = 100  #: sessions in one answer
LARGEST_PAGE: Final = 1000
LONGEST_GRACE: Final = 3600  #: seconds
LONGEST_NAME: Final = 128  #: characters

_WHOLE: Final = re.compile(rb"[0-9]{1,12}")
_SECONDS: Final = re.compile(rb"[0-9]{1,4}(\.[0-9]{1,6})?")
# RFC 9110, 5.6.2: the characters of a token.
_KEY: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{16,128}")
_SESSION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def idle_timeout(request: ControlRequest, names: Names) -> float | None:
    """The idle timeout asked for, in seconds; None: the Server's default. Raises `errors.BadIdleTimeout`."""
    text = _one(request, names.idle_timeout, BadIdleTimeout)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or int(text) < 1:
        raise BadIdleTimeout
    return float(int(text))


def idempotency_key(request: ControlRequest, names: Names) -> str | None:
    """The idempotency key, if there is one. Raises `errors.BadIdempotencyKey`."""
    text = _one(request, names.idempotency_key, BadIdempotencyKey)
    if text is None:
        return None
    if _KEY.fullmatch(text) is None:
        raise BadIdempotencyKey
    return text.decode("ascii")


def session_name(request: ControlRequest, names: Names) -> str | None:
    """What the client calls its session, if anything. Raises `errors.BadSessionName`; the error does not repeat the name."""
    text = _one(request, names.session_name, BadSessionName)
    if text is None:
        return None
    if not request.named:
        raise BadSessionName(
            "Sessions of this Server cannot be named by their clients: everybody would share the names."
        )
    try:
        name = text.decode("utf-8")
    except UnicodeDecodeError:
        raise BadSessionName from None
    if not 1 <= len(name) <= LONGEST_NAME or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise BadSessionName
    return name


def grace(request: ControlRequest, names: Names) -> float | None:
    """Seconds that requests in flight get; None: without limit. Raises `errors.BadGrace`."""
    text = _one(request, names.grace, BadGrace)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None or float(text) > LONGEST_GRACE:
        raise BadGrace
    return float(text)


def warning(query: bytes) -> float | None:
    """Seconds before a session's end at which its holder wants to be warned. Raises `errors.BadRequest`."""
    asked = _fields(query).get("warning")
    if asked is None:
        return None
    if _WHOLE.fullmatch(asked[0].encode()) is None or not 1 <= int(asked[0]) <= LONGEST_GRACE:
        raise BadRequest(f"`warning` must be a whole number from 1 to {LONGEST_GRACE}.")
    return float(int(asked[0]))


def page(query: bytes) -> tuple[SessionId | None, int]:
    """`after` and `limit` of a list. Raises `errors.BadRequest`; parameters of other names are passed over."""
    found = _fields(query)
    limit = found.get("limit", [str(DEFAULT_PAGE)])[0]
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 4 and 1 <= int(limit) <= LARGEST_PAGE):
        raise BadRequest(f"`limit` must be a whole number from 1 to {LARGEST_PAGE}.")
    after = found.get("after")
    if after is not None and _SESSION.fullmatch(after[0]) is None:
        raise BadRequest("`after` must be a session id.")
    return (None if after is None else SessionId(after[0])), int(limit)


def wants_events(request: ControlRequest) -> bool:
    """Whether the client takes Server-Sent Events for an answer (RFC 9110, 12.5.1; only a range that names them counts)."""
    for key, value in request.headers:
        if key.lower() == b"accept":
            for media_range in value.lower().split(b","):
                kind, *options = (part.strip() for part in media_range.split(b";"))
                if kind == b"text/event-stream" and not any(re.fullmatch(rb"q=0(\.0*)?", option) for option in options):
                    return True
    return False


def _fields(query: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise BadRequest("The query is not valid.")


def _one(request: ControlRequest, name: bytes, refusal: type[BadRequest]) -> bytes | None:
    values = {value.strip(b" \t") for key, value in request.headers if key.lower() == name}
    if len(values) > 1:
        raise refusal
    return next(iter(values), None)

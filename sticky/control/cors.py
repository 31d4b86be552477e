"""Calls from pages of other origins (the CORS protocol, https://fetch.spec.whatwg.org/#http-cors-protocol). Which origins are
allowed was decided before; must not know what the calls do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sticky.errors import BadOrigin
from sticky.isticky import Answer, ControlRequest

if TYPE_CHECKING:
    from sticky.edge.wire import Names

Fields = tuple[tuple[bytes, bytes], ...]

PREFLIGHT_SECONDS: Final = 600  #: how long a browser may remember what it is allowed to send


def is_preflight(request: ControlRequest) -> bool:
    """Whether a browser asks what a page of another origin may send."""
    return (
        request.method == b"OPTIONS"
        and request.header(b"origin") is not None
        and request.header(b"access-control-request-method") is not None
    )


def preflight(request: ControlRequest, names: Names, methods: bytes) -> Answer:
    """The answer to a preflight, without the fields of `readable`. Raises `errors.BadOrigin` for an origin not allowed."""
    if not request.origin_allowed:
        raise BadOrigin
    fields = (
        b"authorization",
        b"content-type",
        names.authorization,
        names.key,
        names.secret,
        names.session_token,
        names.session_name,
        names.idle_timeout,
        names.grace,
        names.timestamp,
        names.idempotency_key,
    )
    return Answer(
        204,
        (
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", b", ".join(fields)),
            (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
        ),
    )


def readable(request: ControlRequest) -> Fields:
    """The fields that let a page of an allowed origin read the answer, whatever the answer is."""
    origin = request.header(b"origin")
    if origin is None or not request.origin_allowed:
        return ()
    return (
        (b"access-control-allow-origin", origin),
        # With the cookie too: an allowed origin is exempt from the Origin rule for it.
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", b"retry-after"),
        (b"vary", b"Origin"),
    )

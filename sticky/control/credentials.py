"""Where a control call carries its proxy token (wire.md, Credentials). Must not know whether the token is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sticky.core.proxy_tokens import is_secret, is_token_id, parse_bearer
from sticky.errors import IS_SESSION_TOKEN, BadCredential, NoCredential
from sticky.isticky import ControlRequest

if TYPE_CHECKING:
    from sticky.edge.wire import Names


def proxy_credential(request: ControlRequest, names: Names) -> tuple[str, str]:
    """Id and secret of the proxy token that a call carries. The first form present decides, valid or not.

    In order: `Authorization: Bearer wk-….ws-…`; the brand's own field with the same text; the pair of key and secret. An
    Authorization that holds anything else is the container's business, as on data requests, and is passed over.

    Raises `errors.NoCredential` where there is none, `errors.BadCredential` where it is malformed, and where one form
    is there twice with different values. A retry does not help.
    """
    bearer = _one(request, b"authorization")
    if bearer is not None and _bearer(bearer).startswith("wk-"):
        return parse_bearer(_bearer(bearer))
    own = _one(request, names.authorization)
    if own is not None:
        return parse_bearer(_bearer(own))
    token_id, secret = _one(request, names.key), _one(request, names.secret)
    if token_id is None and secret is None and bearer is not None and _bearer(bearer).startswith("v4.public."):
        raise NoCredential(IS_SESSION_TOKEN)
    if token_id is None and secret is None:
        raise NoCredential("This call needs a proxy token: Authorization: Bearer wk-ID.ws-SECRET")
    if token_id is None or secret is None or not is_token_id(token_id) or not is_secret(secret):
        raise BadCredential
    return token_id, secret


def _one(request: ControlRequest, name: bytes) -> str | None:
    values = {value for key, value in request.headers if key.lower() == name}
    if len(values) > 1:
        raise BadCredential
    return next((value.decode("latin-1") for value in values), None)


def _bearer(value: str) -> str:
    """The token of a Bearer credential, or "" (RFC 9110, 11.4: the scheme is compared without case)."""
    scheme, _, token = value.partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else ""

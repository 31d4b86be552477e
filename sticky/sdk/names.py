"""The wire names of control calls as texts, taken from the one place that builds them. Loaded at the first call, not at import."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import attrs

from sticky.sdk.exception import InvalidError


@attrs.frozen
class Names:
    """What a client of control calls must spell."""

    authorization: str  #: of a session token
    idle_timeout: str
    idempotency_key: str
    timestamp: str
    session_token: str
    session_name: str
    grace: str
    sessions_path: str
    start_path: str
    terminate_path: str
    release_path: str
    status_path: str
    extend_path: str
    calls_path: str


def names_from(environ: Mapping[str, str] | None = None) -> Names:
    """For the brand in STICKY_BRAND, "modal" if that is not set. Raises `InvalidError` for what cannot be a brand."""
    brand = (os.environ if environ is None else environ).get("STICKY_BRAND") or "modal"
    if re.fullmatch(r"[a-z][a-z0-9]{0,31}", brand) is None:
        raise InvalidError(f"STICKY_BRAND={brand!r} is not allowed; it must be 1 to 32 lower-case letters and digits")
    return names_of(brand)


def names_of(brand: str) -> Names:
    """For a brand that is one."""
    from sticky.edge.wire import Names as WireNames

    wire = WireNames(brand)
    sessions = f"{wire.control.decode('ascii')}sessions"
    return Names(
        authorization=wire.authorization.decode("ascii"),
        idle_timeout=wire.idle_timeout.decode("ascii"),
        idempotency_key=wire.idempotency_key.decode("ascii"),
        timestamp=wire.timestamp.decode("ascii"),
        session_token=wire.session_token.decode("ascii"),
        session_name=wire.session_name.decode("ascii"),
        grace=wire.grace.decode("ascii"),
        sessions_path=sessions,
        start_path=f"{sessions}/start",
        terminate_path=f"{sessions}/terminate",
        release_path=f"{sessions}/release",
        status_path=f"{sessions}/status",
        extend_path=f"{sessions}/extend",
        calls_path=f"{wire.control.decode('ascii')}calls",
    )

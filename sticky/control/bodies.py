"""The JSON of control answers: what a client may read of a session. Must not know which call asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from sticky.errors import Refusal
from sticky.isticky import Answer, Credentials, QueuePosition, SessionStatus


def ok(body: Mapping[str, object]) -> Answer:
    """200 with a JSON body."""
    return Answer(200, ((b"content-type", b"application/json"),), json.dumps(body).encode("ascii"))


def credentials(given: Credentials) -> dict[str, object]:
    """What a start gives. The one place where a token leaves."""
    return {
        "session_id": given.session,
        "token": given.token,
        "idle_timeout": seconds(given.idle_timeout),
        "expires_at": seconds(given.expires_at),
        "created": given.created,
    }


def status(session: SessionStatus) -> dict[str, object]:
    """A session as its holder or owner sees it. Times in seconds; neither token nor container."""
    return {
        "session_id": session.session,
        "state": session.state,
        "in_flight": session.in_flight,
        "idle_timeout": seconds(session.idle_timeout),
        "idle_left": None if session.idle_left is None else seconds(session.idle_left),
        "age_left": seconds(session.age_left),
        "created_ago": seconds(session.created_ago),
        **({} if session.name is None else {"name": session.name}),
    }


def page(sessions: Sequence[SessionStatus], limit: int) -> dict[str, object]:
    """At most `limit` sessions of those found, and in `next` what to ask for `after` if more were found, else null."""
    shown = sessions[:limit]
    return {
        "sessions": [status(session) for session in shown],
        "next": shown[-1].session if len(sessions) > limit else None,
    }


def queued(position: QueuePosition, estimate: float | None) -> dict[str, object]:
    """Where a start stands; `estimate`: seconds until it is its turn, null while nothing is known."""
    return {
        "position": position.position,
        "estimate": None if estimate is None else seconds(estimate),
        "waited": seconds(position.waited),
        "deadline_in": seconds(position.deadline_in),
    }


def failed(refusal: Refusal) -> dict[str, object]:
    """A refusal inside an event stream, where no status and no Retry-After can follow any more."""
    return {
        **refusal.fields(),
        "status": refusal.status,
        "retry_after": None if refusal.retry_after is None else max(1, math.ceil(refusal.retry_after)),
    }


def seconds(value: float) -> int | float | None:
    """To the millisecond; whole seconds without a fraction; None for no limit, which JSON cannot say otherwise."""
    if not math.isfinite(value):
        return None
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded

"""What the answers of control calls mean to a user: values, or the error that says what to do. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sticky.sdk.exception import (
    AuthError,
    Error,
    ExecutionError,
    InvalidError,
    NotFoundError,
    QueueTimeout,
    SessionEndedError,
)
from sticky.sdk.steps import Reply

#: Codes of a 410, and of a 401 where a Server says it so, that are the reason of a session's end.
REASONS = frozenset(
    {
        "idle_timeout",
        "terminated",
        "container_lost",
        "container_max_age",
        "deployment_ended",
        "server_stopped",
        "ended",
    }
)


@attrs.frozen
class ServerSessionCredentials:
    """What a start gives. Everyone who holds the token shares the session; the repr hides it."""

    session_id: str
    token: str = attrs.field(repr=False)
    #: whether this start made the session; False: it was there, under its name
    created: bool = attrs.field(default=True, repr=False, eq=False)


@attrs.frozen(kw_only=True)
class SessionStatus:
    """A session at one moment. Times are seconds; None: without limit."""

    session_id: str
    state: str  #: "active", or "draining": it admits nothing new
    in_flight: int  #: requests and WebSockets
    idle_timeout: float | None
    idle_left: float | None  #: until it ends if nothing comes; None: something is in flight
    age_left: float | None  #: until its container's age limit
    created_ago: float
    name: str | None = None  #: by which it was started

    @classmethod
    def read(cls, fields: object) -> SessionStatus | None:
        """From an answer; None if that is something else. Members that are not known are passed over."""
        if not isinstance(fields, Mapping):
            return None
        given: dict[str, Any] = {field.name: fields.get(field.name) for field in attrs.fields(cls)}
        numbers = ("idle_timeout", "idle_left", "age_left")
        if (
            not all(isinstance(given[key], str) for key in ("session_id", "state"))
            or type(given["in_flight"]) is not int
            or not _is_number(given["created_ago"])
            or not all(given[key] is None or _is_number(given[key]) for key in numbers)
            or not isinstance(given["name"], str | None)
        ):
            return None
        return cls(**given)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def without(reply: Reply, secrets: Sequence[str]) -> Reply:
    """Errors quote the peer, and a peer that is no Sticky may quote us."""
    body = reply.body
    for secret in secrets:
        body = body.replace(secret.encode("ascii"), b"(token)")
    return Reply(reply.status, body)


def detail_of(reply: Reply) -> str | None:
    """Of an ended session's refusal: how its container was lost."""
    detail = reply.fields.get("detail")
    return detail if isinstance(detail, str) else None


def strange(url: str) -> Error:
    """An answer that no Sticky gives."""
    return ExecutionError(f"{url} gave no answer to this call: is this URL that of a Sticky Server?")


#: What to do about a 503, by its code.
_TODO = {
    "queue_timeout": "Raise max_containers or max_concurrency, or try later.",
    "queue_full": "Try later, or raise max_containers or max_queue.",
    "too_many_sessions": "End sessions that are not needed.",
    # Not what it is: clients are told nothing that a container has printed.
    "containers_failing": "On its machine `sticky status` has the reason, and `sticky logs` what containers have printed.",
}


def todo_of(code: str) -> str:
    """The same, as a sentence."""
    return _TODO.get(code, "Look at the daemon's log, or try later.")


def refused(url: str, reply: Reply, doing: str, *, by_session: bool = False) -> Error:
    """What an answer other than success means. `by_session`: it was the session token that let in, or did not."""
    code, what = reply.code, f"cannot {doing}: {url} answered {reply.quoted}"
    match reply.status:
        case 401 if by_session and code in REASONS:
            return SessionEndedError(f"{what}. Start another session.", code, detail_of(reply))
        case 401 | 403 if by_session:
            return AuthError(f"{what}. Use the token that sessions.start() gave, on the Server that it was started on.")
        case 401 | 403:
            return AuthError(
                f"{what}. Set STICKY_PROXY_TOKEN to a proxy token of this Server, or STICKY_STATE_DIR to its daemon's state."
            )
        case 404:
            return NotFoundError(f"{what}. Look at the Server's name and URL, and whether it is sessioned.")
        case 410:
            reason = reply.fields.get("reason")
            todo = "sessions.release() the name to begin anew" if code == "session_expired" else "Start another session"
            why = reason if isinstance(reason, str) else code or "ended"
            return SessionEndedError(f"{what}. {todo}.", why, detail_of(reply))
        case 429:
            return ExecutionError(f"{what}. Wait before the next try.")
        case status if 400 <= status < 500:
            return InvalidError(f"{what}. The request must change.")
        case 503 if code == "queue_timeout":
            return QueueTimeout(f"{what}, in every attempt. {todo_of(code)}")
        case 503:
            return ExecutionError(f"{what}, in every attempt. {todo_of(code)}")
        case status if status >= 500:
            return ExecutionError(f"{what}, in every attempt. Look at the daemon's log, or try later.")
    return ExecutionError(f"{what}, which is no answer to this call. Is this URL that of a Sticky Server?")

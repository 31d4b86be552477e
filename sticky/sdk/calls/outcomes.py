"""What each end of a call means to whoever made it: a value, or one of the SDK's errors. Must not know how calls are sent."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any, NoReturn, Protocol

from sticky.sdk.calls.client import Outcome, no_sense
from sticky.sdk.calls.sandboxes import forget_places, named
from sticky.sdk.exception import (
    AuthError,
    ConnectionError,
    ExecutionError,
    FunctionTimeoutError,
    InvalidRequestError,
    NotFoundError,
    RemoteExecutionError,
    ResourceExhaustedError,
    SessionEndedError,
    SessionExpiredError,
)
from sticky.sdk.steps import Reply

_ROOM = frozenset(
    {
        "queue_timeout",
        "queue_full",
        "too_many_sessions",
        "containers_failing",
        "shutting_down",
        "storage_failed",
        "unavailable",
    }
)
_DEATH_SEEN_WITHIN = 3.0  #: seconds that the daemon may take to notice that a sandbox has died


class Held(Protocol):
    """The session of a call."""

    server: str | None

    def credential(self) -> str:
        """Its token."""

    def expire(self, reason: str) -> None:
        """It is over."""


def value_of(session: Held | None, outcome: Outcome, url: str) -> Any:
    said = outcome.said
    if said.get("outcome") == "value":
        if said.get("as") == "json":
            return json.loads(outcome.value)
        try:
            return pickle.loads(outcome.value)
        except Exception as error:
            raise ExecutionError(
                f"the function returned something that cannot be unpickled here: {type(error).__name__}: {error}."
                ' Return plain data, perhaps with result="json".'
            ) from None
    code, message = str(said.get("code")), str(said.get("message"))
    lines = said.get("output")
    output = tuple(map(str, lines)) if isinstance(lines, list) else ()
    match code:
        case "exception":
            name = str(said.get("type"))
            text = f"{name}: {message}" if message else name
            raise RemoteExecutionError(text, type=name, traceback=str(said.get("traceback")), output=output)
        case "timeout":
            if session is not None:
                session.expire("container_lost")
            raise FunctionTimeoutError(f"the call took too long. {message}")
        case "invalid_request" | "bad_call":
            raise InvalidRequestError(message)
        case "unpicklable" | "unpicklable_result" | "too_large" | "cancelled" | "outcome_unknown":
            raise ExecutionError(message)
    raise no_sense(url)


def broken(session: Held | None, url: str, why: str) -> NoReturn:
    """The answer broke off. Whether that is the session's end, the daemon knows; it may need a moment to see it."""
    forget_places()
    reason = None if session is None else _end_of(session)
    if session is not None and reason is not None:
        session.expire(reason)
        raise expired(reason)
    what = f"the call broke off ({why}) at {url}: its sandbox may have died, or the network. Whether it had an effect is not known."
    raise ExecutionError(what) if session is None else ConnectionError(what)


def _end_of(session: Held) -> str | None:
    sessions = named(session.server)
    until = time.monotonic() + _DEATH_SEEN_WITHIN
    while True:
        try:
            sessions.status(session.credential())
        except SessionEndedError as error:
            return error.reason
        except (ExecutionError, ConnectionError, AuthError, NotFoundError):
            return None
        if time.monotonic() >= until:
            return None
        time.sleep(0.05)


def refused(session: Held | None, url: str, reply: Reply) -> NoReturn:
    code, text = reply.code, reply.message
    what = f"{url} answered {reply.status}{f' {code}' if code else ''}{f' ({text})' if text else ''}"
    match reply.status:
        case 401 | 403:
            raise AuthError(f"{what}. Set STICKY_PROXY_TOKEN to a proxy token of this Server.")
        case 404 | 405:
            raise NotFoundError(f"{what}. Is this a Server with a sandbox table?")
        case 410:
            reason = str(reply.fields.get("reason") or code or "ended")
            if session is not None:
                session.expire(reason)
            raise expired(reason)
        case 429:
            raise ResourceExhaustedError(f"{what}. Other calls of this session took too long.", code or "session_busy")
        case 502:
            broken(session, url, what)
        case 503 if code in _ROOM:
            raise ResourceExhaustedError(f"{what}. There is no room for another sandbox just now.", code)
    raise ExecutionError(what)


def expired(reason: str) -> SessionExpiredError:
    return SessionExpiredError(
        f"the session is over ({reason}) and its state is lost. Open a new Session to continue.", reason
    )

"""What each end of a call means to whoever made it: a value, or one of the SDK's errors. Must not know how calls are sent."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import attrs

from sticky.sdk.answers import REASONS, detail_of, todo_of
from sticky.sdk.calls.client import Outcome, no_sense
from sticky.sdk.calls.origins import located
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
CALL_TIMEOUT = "call_timeout"  #: the detail of a sandbox's end: a call took longer than its time limit
_DEATH_SEEN_WITHIN = 5.0  #: seconds that the daemon may take to notice that a sandbox has died


class Held(Protocol):
    """The session of a call."""

    def expire(self, token: str | None, reason: str, detail: str | None) -> None:
        """The one with this token is over."""


@attrs.frozen(kw_only=True)
class Sent:
    """Where a call went. `session`: None for one without; `token`: of the session that it went to, where that is known."""

    url: str
    server: str | None
    session: Held | None
    token: str | None = attrs.field(repr=False)

    def expire(self, reason: str, detail: str | None) -> None:
        """Its session is over, as an answer says."""
        if self.session is not None:
            self.session.expire(self.token, reason, detail)


def value_of(sent: Sent, outcome: Outcome, function: Callable[..., Any]) -> Any:
    """What the function returned. Raises what became of it instead."""
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
            where = located(str(said.get("traceback") or ""), function)
            raise RemoteExecutionError(text, type=name, traceback=where, output=output)
        case "timeout":
            sent.expire("container_lost", CALL_TIMEOUT)
            raise FunctionTimeoutError(f"the call took too long. {message}")
        case "invalid_request" | "bad_call":
            raise InvalidRequestError(message)
        case "unpicklable" | "unpicklable_result" | "too_large" | "cancelled" | "outcome_unknown":
            raise ExecutionError(message)
    raise no_sense(sent.url)


def broken(sent: Sent, why: str) -> NoReturn:
    """The answer broke off. Whether that is the session's end, the daemon knows; it may need a moment to see it."""
    forget_places()
    end = None if sent.token is None else _end_of(sent.server, sent.token)
    if end is not None:
        sent.expire(end.reason, end.detail)
        if end.detail == CALL_TIMEOUT:
            raise _too_long()
        raise _over(sent, end.reason, end.detail)
    what = (
        f"the call broke off ({why}) at {sent.url}: its sandbox may have died, or the network."
        " Whether it had an effect is not known."
    )
    raise ExecutionError(what) if sent.session is None else ConnectionError(what)


def _end_of(server: str | None, token: str) -> SessionEndedError | None:
    sessions = named(server)
    until = time.monotonic() + _DEATH_SEEN_WITHIN
    while True:
        try:
            sessions.status(token)
        except SessionEndedError as error:
            return error
        except (ExecutionError, ConnectionError, AuthError, NotFoundError):
            return None
        if time.monotonic() >= until:
            return None
        time.sleep(0.05)


def refused(sent: Sent, reply: Reply, overdue: bool = False) -> NoReturn:
    """A refusal of the proxy. `overdue`: the call had a time limit, which has passed."""
    code, what = reply.code, f"{sent.url} answered {reply.quoted}"
    match reply.status:
        case 401 if code in REASONS:  # the Server's `ended_status`
            sent.expire(code, detail_of(reply))
            raise _over(sent, code, detail_of(reply))
        case 401 | 403:
            raise AuthError(f"{what}. Set STICKY_PROXY_TOKEN to a proxy token of this Server.")
        case 404 | 405:
            raise NotFoundError(f"{what}. Is this a Server with a sandbox table?")
        case 410:
            reason, detail = str(reply.fields.get("reason") or code or "ended"), detail_of(reply)
            sent.expire(reason, detail)
            if overdue and detail == CALL_TIMEOUT:  # else it was the call before, for which this one has waited
                raise _too_long()
            raise _over(sent, reason, detail)
        case 429:
            raise ResourceExhaustedError(f"{what}. Other calls of this session took too long.", code or "session_busy")
        case 502:
            broken(sent, what)
        case 503 if code in _ROOM:
            raise ResourceExhaustedError(f"{what}. {todo_of(code)}", code)
    raise ExecutionError(what)


def expired(reason: str, detail: str | None) -> SessionExpiredError:
    """What each further call of a session that is over raises."""
    text = f"the session is over ({_why(reason, detail)}) and its state is lost. Open a new Session to continue."
    return SessionExpiredError(text, reason, detail)


def _over(sent: Sent, reason: str, detail: str | None) -> ExecutionError | SessionExpiredError:
    if sent.session is not None:
        return expired(reason, detail)
    return ExecutionError(
        f"the call's sandbox at {sent.url} ended before the call did ({_why(reason, detail)}). Whether it had an effect is not known."
    )


def _too_long() -> FunctionTimeoutError:
    return FunctionTimeoutError("the call took too long and could not be interrupted; its sandbox was ended.")


def _why(reason: str, detail: str | None) -> str:
    return f"{reason}: {detail}" if detail else reason

"""Starting and ending sessions over HTTP, blocking. Owns the retries and what each answer means to a user.

Every attempt of one start carries the same idempotency key, so a start whose answer was lost gives the session that was made.
Must not know where the daemon is found, nor how wire names are built.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import attrs

from sticky.sdk.daemon import Daemon
from sticky.sdk.exception import (
    AuthError,
    ConnectionError,
    ExecutionError,
    InvalidError,
    NotFoundError,
    QueueTimeout,
    SessionEndedError,
)
from sticky.sdk.http import Failure, Reply, Transport, post
from sticky.sdk.limits import NUMBERS, Range, check_number
from sticky.sdk.names import Names, names_from

BACKOFF = (0.5, 1.0, 2.0, 4.0)  #: seconds between the five attempts
LONGEST_QUEUE = 300.0  #: seconds; the highest queue_timeout that a Server may have
ANSWER_TIME = 15.0  #: seconds on top for the answer itself; also for calls that do not queue
_IDLE = Range(1, NUMBERS["idle_timeout"].high, whole=True, unit="seconds")


@attrs.frozen
class ServerSessionCredentials:
    """What a start gives. Everyone who holds the token shares the session; the repr hides it."""

    session_id: str
    token: str = attrs.field(repr=False)


class Sessions:
    """The sessions of one Server. Blocks; safe to call from several threads."""

    def __init__(
        self,
        server: str,
        daemon: Daemon,
        *,
        longest_wait: float | None = None,
        transport: Transport = post,
        sleep: Callable[[float], object] = time.sleep,
        wall_clock: Callable[[], float] = time.time,
        new_key: Callable[[], str] = lambda: uuid.uuid4().hex,
        names: Callable[[], Names] = names_from,
    ) -> None:
        self._server = server
        self._daemon = daemon
        self._longest_wait = LONGEST_QUEUE if longest_wait is None else longest_wait  #: seconds that a start may queue
        self._transport = transport
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._new_key = new_key
        self._names = names

    def start(self, idle_timeout: int = 600) -> ServerSessionCredentials:
        """Start a session that ends after `idle_timeout` whole seconds with no request in flight.

        Waits in the Server's queue until a container has room, five times at most. Success does not promise that the session
        still lives when it is used. Raises `InvalidError`, `AuthError`, `NotFoundError` (a retry is of no use), `QueueTimeout`,
        `ExecutionError`, `ConnectionError` (later it may work).
        """
        check_number("idle_timeout", idle_timeout, _IDLE)
        names = self._names()
        headers = {names.idle_timeout: str(idle_timeout), names.idempotency_key: self._new_key()}
        url, reply = self._call(names.start_path, headers, names, self._longest_wait + ANSWER_TIME)
        if reply.status != 200:
            _refused(url, reply, f"start a session of {self._server!r}")
        fields = reply.fields
        session, token = fields.get("session_id"), fields.get("token")
        if not isinstance(session, str) or not isinstance(token, str):
            raise ExecutionError(f"{url} answered 200 without a session: is this URL that of a Sticky Server?")
        return ServerSessionCredentials(session, token)

    def terminate(self, token: str) -> None:
        """End a session: new requests are refused at once, those in flight complete. One that is over already is success.

        Raises `InvalidError`, `AuthError` (a retry is of no use), `ExecutionError`, `ConnectionError` (later it may work).
        """
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
            # The value is not shown: it may well be a token with a line break at its end.
            raise InvalidError(
                "token is not a session token; it must be the token that sessions.start() gave, as it is"
            )
        names = self._names()
        url, reply = self._call(names.terminate_path, {names.session_token: token}, names, ANSWER_TIME)
        if reply.status not in (200, 404):
            _refused(url, reply, f"terminate a session of {self._server!r}")

    def _call(self, path: str, headers: Mapping[str, str], names: Names, timeout: float) -> tuple[str, Reply]:
        """POST until there is an answer below 500 or the attempts are used up."""
        url = self._daemon.url(self._server) + path
        bearer = self._daemon.proxy_token()
        authorization = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        secrets = [value for value in (bearer, headers.get(names.session_token)) if value]
        outcome: Reply | Failure = Failure("no attempt was made")
        for pause in (*BACKOFF, None):
            stamp = {names.timestamp: f"{self._wall_clock():.0f}"}
            outcome = self._transport(url, {**authorization, **headers, **stamp}, timeout)
            if isinstance(outcome, Reply) and outcome.status < 500:
                break
            if pause is not None:
                self._sleep(pause)
        if isinstance(outcome, Failure):
            raise ConnectionError(
                f"no answer from {url} in {len(BACKOFF) + 1} attempts: {outcome.reason}. Is the daemon running there?"
            )
        return url, _without(outcome, secrets)


def _without(reply: Reply, secrets: Sequence[str]) -> Reply:
    """Errors quote the peer, and a peer that is no Sticky may quote us."""
    body = reply.body
    for secret in secrets:
        body = body.replace(secret.encode("ascii"), b"(token)")
    return Reply(reply.status, body)


def _refused(url: str, reply: Reply, doing: str) -> NoReturn:
    """Raise what an answer other than success means."""
    code, text = reply.code, reply.message
    what = f"cannot {doing}: {url} answered {reply.status}{f' {code}' if code else ''}{f' ({text})' if text else ''}"
    match reply.status:
        case 401 | 403:
            raise AuthError(
                f"{what}. Set STICKY_PROXY_TOKEN to a proxy token of this Server, or STICKY_STATE_DIR to its daemon's state."
            )
        case 404:
            raise NotFoundError(f"{what}. Look at the Server's name and URL, and whether it is sessioned.")
        case 410:
            raise SessionEndedError(f"{what}. Start another session.", code or "ended")
        case 429:
            raise ExecutionError(f"{what}. Wait before the next try.")
        case status if 400 <= status < 500:
            raise InvalidError(f"{what}. The request must change.")
        case 503 if code == "queue_timeout":
            raise QueueTimeout(f"{what}, in every attempt. Raise max_containers or max_concurrency, or try later.")
        case status if status >= 500:
            raise ExecutionError(f"{what}, in every attempt. Look at the daemon's log, or try later.")
    raise ExecutionError(f"{what}, which is no answer to this call. Is this URL that of a Sticky Server?")

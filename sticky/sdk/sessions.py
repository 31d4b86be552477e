"""Starting, looking at and ending sessions over HTTP. Owns the retries; `answers` says what comes back means.

Every attempt of one start carries the same idempotency key, so a start whose answer was lost gives the session that was made.
Must not know where the daemon is found, how wire names are built, nor what carries the steps out.
"""

from __future__ import annotations

import builtins
import time
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from sticky.sdk.answers import ServerSessionCredentials, SessionStatus, refused, strange, without
from sticky.sdk.calling import Carriers, call
from sticky.sdk.daemon import Daemon, Place
from sticky.sdk.exception import ConnectionError, ExecutionError, InvalidError
from sticky.sdk.limits import NUMBERS, Range, check_number
from sticky.sdk.names import Names
from sticky.sdk.steps import Ask, Failure, Reply, Steps, asking, pausing

__all__ = ["ServerSessionCredentials", "SessionStatus", "Sessions"]

BACKOFF = (0.5, 1.0, 2.0, 4.0)  #: seconds between the five attempts
LONGEST_QUEUE = 300.0  #: seconds; the highest queue_timeout that a Server may have
ANSWER_TIME = 15.0  #: seconds on top for the answer itself; also for calls that do not queue
PAGE = 1000  #: sessions in one answer
_GRACE = Range(0, 3600, unit="seconds")
_IDLE = Range(1, NUMBERS["idle_timeout"].high, whole=True, unit="seconds")
LONGEST_NAME = 128  #: characters


class Sessions:
    """The sessions of one Server. Each call blocks, and has an `.aio` for asyncio; safe to call from several threads.

    An attempt that gets no answer, or one of 500 and above, is made again: five times in all, 0.5, 1, 2 and 4 seconds apart.
    """

    def __init__(
        self,
        app: str,
        server: str,
        daemon: Daemon,
        *,
        longest_wait: float | None = None,
        carriers: Carriers | None = None,
        wall_clock: Callable[[], float] = time.time,
        new_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """`longest_wait`: seconds that a start may queue, None if that is not known here."""
        self._app = app
        self._server = server
        self._daemon = daemon
        self._longest_wait = LONGEST_QUEUE if longest_wait is None else longest_wait
        self.carriers = Carriers() if carriers is None else carriers
        self._wall_clock = wall_clock
        self._new_key = new_key

    def __repr__(self) -> str:
        return f"<sessions of {self._server!r}>"

    @call
    def start(self, idle_timeout: int = 600, *, name: str | None = None) -> Steps[ServerSessionCredentials]:
        """Start a session that ends after `idle_timeout` whole seconds with no request in flight.

        With a `name` (1 to 128 characters, the owner's own) the first start makes the session and later ones give the same;
        `created` tells which it was. A named session that is over is a `SessionEndedError` until `release`, never another one.

        Waits in the Server's queue until a container has room, five times at most. Success does not promise that the session
        still lives when it is used. Raises `InvalidError`, `AuthError`, `NotFoundError`, `SessionEndedError` (a retry is of no
        use), `QueueTimeout`, `ExecutionError`, `ConnectionError` (later it may work).
        """
        check_number("idle_timeout", idle_timeout, _IDLE)
        field = None if name is None else _field(name)
        place = yield from self._daemon.find(self._app, self._server)
        names = place.names
        headers = {names.idle_timeout: str(idle_timeout), names.idempotency_key: self._new_key()}
        if field is not None:
            headers[names.session_name] = field
        url, reply = yield from self._attempts(
            "POST", place, names.start_path, headers, self._longest_wait + ANSWER_TIME
        )
        if reply.status != 200:
            raise refused(url, reply, f"start a session of {self._server!r}")
        fields = reply.fields
        session, token = fields.get("session_id"), fields.get("token")
        if not isinstance(session, str) or not isinstance(token, str):
            raise ExecutionError(f"{url} answered 200 without a session: is this URL that of a Sticky Server?")
        return ServerSessionCredentials(session, token, fields.get("created") is not False)

    @call
    def terminate(self, token: str, *, grace: float | None = None) -> Steps[None]:
        """End a session: new requests are refused at once, those in flight complete. One that is over already is success.

        An open WebSocket is in flight. What still is after `grace` seconds (0 to 3600) is cut; without it nothing is.

        Raises `InvalidError`, `AuthError` (a retry is of no use), `ExecutionError`, `ConnectionError` (later it may work).
        """
        yield from self._terminate(token, grace)

    @call
    def release(self, name: str, *, grace: float | None = None) -> Steps[None]:
        """Give a name back: its session is terminated, and the next start of this name makes another. An unknown one is success.

        `grace` is that of `terminate`.

        Raises `InvalidError`, `AuthError` (a retry is of no use), `ExecutionError`, `ConnectionError` (later it may work).
        """
        field = _field(name)
        _check_grace(grace)
        place = yield from self._daemon.find(self._app, self._server)
        headers = {place.names.session_name: field, **_grace(place.names, grace)}
        url, reply = yield from self._attempts("POST", place, place.names.release_path, headers)
        if reply.status != 200 and not (reply.status == 404 and reply.code == "unknown_name"):
            raise refused(url, reply, f"release a name on {self._server!r}")

    @call
    def status(self, token: str) -> Steps[SessionStatus]:
        """A session at this moment; asking touches nothing.

        Raises `SessionEndedError` with the reason, `InvalidError`, `AuthError` (a retry is of no use), `ExecutionError`,
        `ConnectionError` (later it may work).
        """
        _check_token(token)
        place = yield from self._daemon.find(self._app, self._server)
        return (yield from self._look("GET", place, place.names.status_path, token, "look at a session"))

    @call
    def extend(self, token: str) -> Steps[SessionStatus]:
        """Restart a session's idle clock, as a request would, and look at it. Raises as `status`; one that drains is over."""
        _check_token(token)
        place = yield from self._daemon.find(self._app, self._server)
        return (yield from self._look("POST", place, place.names.extend_path, token, "extend a session"))

    @call
    def list(self) -> Steps[builtins.list[SessionStatus]]:
        """All sessions of the proxy token's owner on this Server, in the order of their ids.

        Asks for a page after the other, so one that starts or ends meanwhile may be missing or there. Raises `AuthError`,
        `NotFoundError` (a retry is of no use), `ExecutionError`, `ConnectionError` (later it may work).
        """
        place = yield from self._daemon.find(self._app, self._server)
        found: builtins.list[SessionStatus] = []
        after: object = None
        while True:
            query = {"limit": PAGE} if after is None else {"limit": PAGE, "after": after}
            path = f"{place.names.sessions_path}?{urlencode(query)}"
            url, reply = yield from self._attempts("GET", place, path, {})
            if reply.status != 200:
                raise refused(url, reply, f"list the sessions of {self._server!r}")
            page = reply.fields.get("sessions")
            statuses = [SessionStatus.read(one) for one in page] if isinstance(page, builtins.list) else [None]
            found += [status for status in statuses if status is not None]
            if None in statuses:
                raise strange(url)
            before, after = after, reply.fields.get("next")
            if after is None:
                return found
            if not isinstance(after, str) or after == before:
                raise strange(url)

    # --- inside

    def _terminate(
        self, token: str, grace: float | None, timeout: float = ANSWER_TIME, pauses: Sequence[float] = BACKOFF
    ) -> Steps[None]:
        _check_token(token)
        _check_grace(grace)
        place = yield from self._daemon.find(self._app, self._server)
        headers = {place.names.session_token: token, **_grace(place.names, grace)}
        url, reply = yield from self._attempts(
            "POST", place, place.names.terminate_path, headers, timeout, pauses=pauses
        )
        if reply.status not in (200, 404):
            raise refused(url, reply, f"terminate a session of {self._server!r}")

    def _look(self, method: str, place: Place, path: str, token: str, doing: str) -> Steps[SessionStatus]:
        headers = {place.names.authorization: f"Bearer {token}"}
        url, reply = yield from self._attempts(method, place, path, headers, by_session=True)
        if reply.status != 200:
            raise refused(url, without(reply, [token]), f"{doing} of {self._server!r}", by_session=True)
        status = SessionStatus.read(reply.fields)
        if status is None:
            raise strange(url)
        return status

    def _attempts(
        self,
        method: str,
        place: Place,
        path: str,
        headers: Mapping[str, str],
        timeout: float = ANSWER_TIME,
        *,
        by_session: bool = False,
        pauses: Sequence[float] = BACKOFF,
    ) -> Steps[tuple[str, Reply]]:
        """Ask until there is an answer below 500 or the attempts are used up. `by_session`: without the proxy token.

        `pauses`: seconds between the attempts.
        """
        url = place.url + path
        bearer = None if by_session else place.bearer
        authorization = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        secrets = [value for value in (bearer, headers.get(place.names.session_token)) if value]
        outcome: Reply | Failure = Failure("no attempt was made")
        for pause in (*pauses, None):
            stamp = {place.names.timestamp: f"{self._wall_clock():.0f}"}
            outcome = yield from asking(
                Ask(method=method, url=url, headers={**authorization, **headers, **stamp}, timeout=timeout)
            )
            if isinstance(outcome, Reply) and outcome.status < 500:
                break
            if pause is not None:
                yield from pausing(pause)
        if isinstance(outcome, Failure):
            counted = f"{len(pauses) + 1} attempts" if pauses else "the one attempt"
            raise ConnectionError(f"no answer from {url} in {counted}: {outcome.reason}. Is the daemon running there?")
        return url, without(outcome, secrets)


def _field(name: object) -> str:
    """A session's name as the field's value: its UTF-8, as a text of those bytes."""
    controls = isinstance(name, str) and any(unicodedata.category(letter) == "Cc" for letter in name)
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or name != name.strip(" ") or controls:
        raise InvalidError(
            f"name={str(name)[:80]!r} is not allowed; it must be 1 to {LONGEST_NAME} characters,"
            " none of them a control character, and no space at an end"
        )
    try:
        return name.encode("utf-8").decode("latin-1")
    except UnicodeEncodeError:
        raise InvalidError(f"name={name[:80]!r} is not allowed; it must be text that has a UTF-8 form") from None


def _check_grace(grace: float | None) -> None:
    if grace is not None:
        check_number("grace", grace, _GRACE)


def _grace(names: Names, grace: float | None) -> dict[str, str]:
    return {} if grace is None else {names.grace: f"{grace:.3f}"}


def _check_token(token: object) -> None:
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        # The value is not shown: it may well be a token with a line break at its end.
        raise InvalidError("token is not a session token; it must be the token that sessions.start() gave, as it is")
    if token.startswith("wk-"):
        raise InvalidError(
            "token is a proxy token, which starts sessions; it must be the token that sessions.start() gave"
        )

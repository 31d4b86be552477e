"""Where sandboxes are, and how their sessions begin: the sessions of a Server that runs calls. Blocking and asyncio, as all of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from sticky.sdk.answers import refused, todo_of
from sticky.sdk.calling import call
from sticky.sdk.daemon import Daemon, Place
from sticky.sdk.exception import ExecutionError, InvalidError, ResourceExhaustedError
from sticky.sdk.sessions import ANSWER_TIME, Sessions
from sticky.sdk.steps import Steps

SERVER = "calls"  #: the Server that runs calls, unless STICKY_CALLS_SERVER or `server=` names another
HURRY_TIME = 5.0  #: seconds for an answer that somebody waits for who has an error to see
REMEMBERED = 5.0  #: seconds that the place of a Server is believed without asking again


class Sandboxes(Sessions):
    """The sessions of one such Server."""

    @call
    def place(self) -> Steps[Place]:
        """Where it is."""
        return (yield from self._daemon.find(self._app, self._server))

    @call
    def open(self, name: str | None) -> Steps[str]:
        """A session's token. The Server says how long its sandboxes wait: unlike `start` this sends no idle timeout."""
        place = yield from self._daemon.find(self._app, self._server)
        names = place.names
        headers = {names.idempotency_key: self._new_key()}
        if name is not None:
            headers[names.session_name] = name.encode().decode("latin-1")
        url, reply = yield from self._attempts(
            "POST", place, names.start_path, headers, self._longest_wait + ANSWER_TIME
        )
        if reply.status == 503:
            raise ResourceExhaustedError(
                f"{url} answered {reply.quoted}, in every attempt. {todo_of(reply.code)}", reply.code
            )
        if reply.status != 200:
            raise refused(url, reply, f"open a session of {self._server!r}")
        token = reply.fields.get("token")
        if not isinstance(token, str):
            raise ExecutionError(f"{url} answered 200 without a session: is this URL that of a Sticky Server?")
        return token

    @call
    def end(self, token: str, *, hurry: bool = False) -> Steps[None]:
        """As `terminate`. `hurry`: one attempt, and no long wait for its answer."""
        if hurry:
            yield from self._terminate(token, None, HURRY_TIME, pauses=())
        else:
            yield from self._terminate(token, None)


_lock = threading.Lock()
_places: dict[tuple[str, ...], tuple[float, Place]] = {}


def name_of(server: str | None) -> str:
    """Which Server is meant: the one of this name, or the one that the environment names."""
    return server or os.environ.get("STICKY_CALLS_SERVER") or SERVER


def named(server: str | None) -> Sandboxes:
    """That Server's sessions."""
    name = name_of(server)
    return Sandboxes(name, name, Daemon())


def place_of(server: str | None, clock: Callable[[], float] = time.monotonic) -> Place:
    """Where the Server is; asked again every few seconds only, because each call needs it."""
    names = ("STICKY_URL", "STICKY_PROXY_TOKEN", "STICKY_STATE_DIR", "STICKY_CALLS_SERVER", "STICKY_ADMIN_URL")
    key = (server or "", os.getcwd(), *(os.environ.get(name, "") for name in names))
    with _lock:
        found = _places.get(key)
    if found is not None and clock() - found[0] < REMEMBERED:
        return found[1]
    place = named(server).place()
    with _lock:
        _places[key] = clock(), place
    return place


def forget_places() -> None:
    """A call broke off: the daemon may be somewhere else now."""
    with _lock:
        _places.clear()


def check_name(name: object) -> None:
    """Raises `InvalidError` for what cannot be a session's name."""
    if not isinstance(name, str) or not 1 <= len(name) <= 128 or not name.isprintable() or name != name.strip():
        raise InvalidError("a session's name must have 1 to 128 printable characters, without blanks at its ends")

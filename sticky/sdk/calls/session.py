"""`Session`: a sandbox that is kept from call to call, from its first call to its end. Must not know what is called in it."""

from __future__ import annotations

import asyncio
import threading

from sticky.sdk import arguments, limits
from sticky.sdk.calls.client import CallConnection
from sticky.sdk.calls.outcomes import expired
from sticky.sdk.calls.sandboxes import check_name, name_of, named
from sticky.sdk.daemon import Place
from sticky.sdk.exception import Error, NotFoundError, SessionEndedError

_BLOCK_OVER = ("terminated", None)  # the reason of a session that has ended with its block, and the detail


class Session:
    """A sandbox that keeps its state from call to call: variables, models, imports.

    With a name it is the same session for every program of this owner that uses the name; without one it is this object's own, and
    ends with the `with` or `async with` block that it is used by. A session starts with its first call. It ends when it was idle
    for too long, or its sandbox dies: then each further call raises `SessionExpiredError`. Calls of one session run one at a time,
    in their order. Safe to use from several threads.
    """

    @arguments.named("sticky.Session")
    def __init__(self, name: str | None = None, *, server: str | None = None) -> None:
        """Raises `InvalidError` for what can be no name; asks nobody."""
        if name is not None:
            check_name(name)
        if server is not None:
            limits.check_name("server", server)
        self.name = name
        self.server = server
        self._lock = threading.Lock()
        self._token: str | None = None
        self._ended: tuple[str, str | None] | None = None  # reason and detail
        self._idle: list[CallConnection] = []

    def __repr__(self) -> str:
        # Without the lock: whoever starts the session holds it meanwhile.
        ended = self._ended
        state = f"over ({ended[0]})" if ended is not None else "begun" if self._token is not None else "not begun"
        called = "without a name" if self.name is None else repr(self.name)
        return f"<sticky.Session {called} on {name_of(self.server)!r}, {state}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """A session without a name is over: nobody else could use it. Calls of it that run elsewhere complete.

        Raises what `release` does where it could not be ended; if the block has raised, a note of its error says so instead.
        """
        try:
            if self.name is None:
                self._end_with_block(error)
        finally:
            self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """As `__exit__`, while the event loop goes on."""
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    def close(self) -> None:
        """Give connections back. The sandbox stays, until it was idle for too long: nothing is sent."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def release(self) -> None:
        """End the session; its name, if it has one, may be used afresh. One that is over already, or never began, is success."""
        sessions = named(self.server)
        if self.name is not None:
            try:
                sessions.release(self.name)
            except NotFoundError:
                pass
        elif self._token is not None:
            sessions.terminate(self._token)
        with self._lock:
            self._token, self._ended = None, None
        self.close()

    def credential(self) -> str:
        """The session's token; the first call starts it. Raises `SessionExpiredError`, `ResourceExhaustedError`."""
        with self._lock:
            if self._ended is not None:
                raise expired(*self._ended)
            if self._token is None:
                try:
                    self._token = named(self.server).open(self.name)
                except SessionEndedError as error:
                    self._ended = error.reason, error.detail
                    raise expired(*self._ended) from None
            return self._token

    def expire(self, token: str | None, reason: str, detail: str | None) -> None:
        """The one with this token is over, as a call has found out. A no-op if that was released meanwhile."""
        with self._lock:
            if token == self._token:
                self._ended = reason, detail

    def borrow(self, place: Place) -> CallConnection:
        """A connection for one call."""
        with self._lock:
            return self._idle.pop() if self._idle else CallConnection(place)

    def give_back(self, connection: CallConnection) -> None:
        """It may carry another call, if there may be any."""
        with self._lock:
            over = self._ended is not None
            if not over:
                self._idle.append(connection)
        if over:
            connection.close()

    def _end_with_block(self, error: BaseException | None) -> None:
        with self._lock:
            token, over = self._token, self._ended is not None
            # Otherwise a call after the block would start another session in silence, which nobody ends.
            self._ended = self._ended or _BLOCK_OVER
        if token is None or over:
            return
        try:
            # With an error on its way to whoever is to see it, for the sake of which nobody waits for a daemon that is gone.
            named(self.server).end(token, hurry=error is not None)
        except Error as problem:
            if error is None:
                raise
            error.add_note(
                f"sticky: the block's session could not be ended, and stays until it was idle for too long: {problem}"
            )

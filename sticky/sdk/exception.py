"""The errors that users of the SDK meet. Owns their classes; must not know who raises them.

Every text says what happened, on which URL, and what to do. No text or repr holds a token.
"""

from __future__ import annotations

__all__ = [
    "AuthError",
    "ConnectionError",
    "Error",
    "ExecutionError",
    "FunctionTimeoutError",
    "InvalidError",
    "InvalidRequestError",
    "NotFoundError",
    "QueueTimeout",
    "RemoteExecutionError",
    "ResourceExhaustedError",
    "SessionEndedError",
    "SessionExpiredError",
]


class Error(Exception):
    """Anything that the SDK raises on purpose."""


class InvalidError(Error):
    """An argument or a declaration is wrong. Retrying does not help; nothing was sent or changed."""


class ExecutionError(Error):
    """The daemon answered, but could not do it (5xx after all attempts, or an answer that makes no sense). May work later."""


class AuthError(Error):
    """The proxy token is missing, wrong, expired or not valid for this Server. Retrying does not help."""


class NotFoundError(Error):
    """There is no such Server, or it has no sessions. Retrying does not help."""


class SessionEndedError(Error):
    """The session is over and never comes back: start another one."""

    def __init__(self, message: str, reason: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason  #: a name from semantics.md: "idle_timeout", "terminated", "container_lost", ...
        #: how the container was lost: "exited", "killed", "out_of_memory", "call_timeout", ...; None for other reasons
        self.detail = detail


class QueueTimeout(Error):
    """No container had room for the session in time, in any of the attempts. May work later."""


class ConnectionError(Error):
    """The daemon could not be found or reached, in any of the attempts. May work once it runs."""


class RemoteExecutionError(Error):
    """The function raised. The call has finished and the session lives on, with whatever the function had done until then.

    Uncaught it shows, besides where the call was made, where in the function that was.
    """

    def __init__(self, message: str, *, type: str, traceback: str, output: tuple[str, ...]) -> None:
        super().__init__(message)
        self.type = type  #: the exception's class, by name
        self.traceback = traceback  #: as Python prints it, of the function's own frames
        self.output = output  #: the last lines that the call printed
        if traceback:
            self.add_note(f"In the sandbox:\n{traceback.rstrip()}")


class SessionExpiredError(SessionEndedError):
    """The session's sandbox is gone, and with it all state. To continue, open a new `Session`."""


class ResourceExhaustedError(Error):
    """No place, or no turn, in time. `code` tells which: "session_busy", or a lack of room such as "queue_timeout". May work later."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidRequestError(InvalidError):
    """The call cannot run as it was asked for: its sandbox came from a snapshot, or lacks a package. Retrying does not help."""


class FunctionTimeoutError(Error):
    """The function took longer than its `timeout`. It was interrupted, and its session is over."""

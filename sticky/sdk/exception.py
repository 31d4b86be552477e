"""The errors that users of the SDK meet. Owns their classes; must not know who raises them.

Every text says what happened, on which URL, and what to do. No text or repr holds a token.
"""

from __future__ import annotations

__all__ = [
    "AuthError",
    "ConnectionError",
    "Error",
    "ExecutionError",
    "InvalidError",
    "NotFoundError",
    "QueueTimeout",
    "SessionEndedError",
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

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason  #: a name from semantics.md: "idle_timeout", "terminated", "container_lost", ...


class QueueTimeout(Error):
    """No container had room for the session in time, in any of the attempts. May work later."""


class ConnectionError(Error):
    """The daemon could not be found or reached, in any of the attempts. May work once it runs."""

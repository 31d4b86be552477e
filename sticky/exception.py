"""`sticky.exception`: the SDK's errors under the name that users write. Owns nothing."""

from sticky.sdk.exception import (
    AuthError,
    ConnectionError,
    Error,
    ExecutionError,
    FunctionTimeoutError,
    InvalidError,
    InvalidRequestError,
    NotFoundError,
    QueueTimeout,
    RemoteExecutionError,
    ResourceExhaustedError,
    SessionEndedError,
    SessionExpiredError,
)

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

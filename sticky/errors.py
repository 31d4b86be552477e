"""The error tree: every refusal a client can meet, with its code, HTTP status, text and whether a retry is sensible.

The tree is the table: the edge turns any `Refusal` into an answer without knowing which one it is. Must not know where or
how it is answered. No text here may hold a token, a secret or an address.
"""

from __future__ import annotations

from typing import ClassVar


class StickyError(Exception):
    """Anything that Sticky itself raises on purpose."""


class IllegalEvent(StickyError):
    """Our own misuse of the core: an event that cannot happen in this state. Raised before anything has changed."""


class ConfigError(StickyError):
    """A setting is wrong. One line for the operator: where (file or argument), key, value, and what is allowed."""

    def __init__(self, source: str, key: str, problem: str) -> None:
        self.source = source
        self.key = key
        self.problem = problem
        super().__init__(f"{source}: {key}: {problem}" if key else f"{source}: {problem}")


class RestartNeeded(ConfigError):
    """The setting is right, but only a new daemon can take it."""


class Refusal(StickyError):
    """A request that is answered with an error. Subclasses fix `status` and `code`; instances may say more.

    `retry`: whether the same request can succeed later without the client changing anything. Clients retry 5xx and treat
    4xx as final, so a lack of capacity is never a 4xx on control calls (wire.md).
    """

    status: ClassVar[int] = 500
    code: str = "internal_error"
    text: ClassVar[str] = "Something went wrong inside the proxy."
    retry: ClassVar[bool] = False

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        self.message = self.text if message is None else message
        self.retry_after = retry_after  #: seconds, sent as Retry-After (rounded up) when not None
        super().__init__(self.message)

    def fields(self) -> dict[str, object]:
        """What a client reads of it in JSON."""
        return {"error": self.code, "message": self.message}


# --- 400: the request itself is wrong


class BadRequest(Refusal):
    status = 400
    code = "bad_request"
    text = "The request is not valid."


class BadIdleTimeout(BadRequest):
    code = "bad_idle_timeout"
    text = "The idle timeout must be a whole number of seconds within the allowed range."


class BadIdempotencyKey(BadRequest):
    code = "bad_idempotency_key"
    text = "An idempotency key has 16 to 128 token characters."


class BadSessionName(BadRequest):
    code = "bad_session_name"
    text = "A session's name has 1 to 128 characters of UTF-8, none of them a control character."


class MissingSessionToken(BadRequest):
    code = "missing_session_token"
    text = "This call names its session in the session token header."


class BadGrace(BadRequest):
    code = "bad_grace"
    text = "The grace must be a number of seconds from 0 to 3600."


class AmbiguousId(BadRequest):
    """Admin API only: people shorten ids."""

    code = "ambiguous_id"
    text = "Several ids begin like this."


class NothingBefore(Refusal):
    """Admin API only."""

    status = 409
    code = "nothing_before"
    text = "There is no definition before this one: nothing was deployed since the daemon began."


class BadConfiguration(BadRequest):
    """Admin API only: a configuration was to be checked and is wrong. The message is the `ConfigError`'s."""

    code = "bad_configuration"
    text = "The configuration is wrong."


class NeedsRestart(BadRequest):
    """Admin API only: nothing is wrong with the definition, but this daemon cannot take it. It says what is to be done."""

    code = "needs_restart"
    text = "A setting has changed that only a new daemon can take."


class BadHead(BadRequest):
    code = "bad_head"
    text = "The request's head is not valid HTTP/1.1."


class BadBody(BadRequest):
    code = "bad_body"
    text = "The request's body is not framed as its head says."


# --- 401: who are you


#: For whoever took one kind of token for the other.
IS_PROXY_TOKEN = "This is a proxy token, which starts sessions; here the session token is needed that a start gives."
IS_SESSION_TOKEN = (
    "This is a session token, which is for requests of its session; here a proxy token (wk-ID.ws-SECRET) is needed."
)


class NoCredential(Refusal):
    status = 401
    code = "no_credential"
    text = "This request needs a token and carries none of the kind that counts here."


class BadCredential(Refusal):
    status = 401
    code = "bad_credential"
    text = "The token is malformed, forged or no longer valid."


# --- 403: you, but not here


class WrongServer(Refusal):
    status = 403
    code = "wrong_server"
    text = "The session token belongs to another Server."


class OutOfScope(Refusal):
    status = 403
    code = "out_of_scope"
    text = "The proxy token is not valid for this Server."


class BadOrigin(Refusal):
    status = 403
    code = "bad_origin"
    text = "A page of another origin may not do this with this credential."


# --- 404 to 422


class NotFound(Refusal):
    status = 404
    code = "not_found"
    text = "There is nothing at this address."


class UnknownHost(NotFound):
    code = "unknown_host"
    text = "No Server is configured for this host name."


class MisdirectedRequest(Refusal):
    """A host that no Server has, asked for on a connection whose TLS handshake named another one (RFC 9110, 15.5.20)."""

    status = 421
    code = "misdirected_request"
    text = "This connection was opened for another host name."


class UnknownSession(NotFound):
    code = "unknown_session"
    text = "There is no such session."


class UnknownServer(NotFound):
    """Admin API only."""

    code = "unknown_server"
    text = "There is no Server of this name."


class UnknownContainer(NotFound):
    """Admin API only."""

    code = "unknown_container"
    text = "There is no such container."


class UnknownName(NotFound):
    code = "unknown_name"
    text = "No session of this caller has this name, nor had one since it was released."


class UnknownToken(NotFound):
    """Admin API only."""

    code = "unknown_token"
    text = "There is no such proxy token."


class NotSessioned(NotFound):
    code = "not_sessioned"
    text = "This Server has no sessions."


class MethodNotAllowed(Refusal):
    status = 405
    code = "method_not_allowed"
    text = "This method is not allowed here."

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        super().__init__()


class SlowHead(Refusal):
    status = 408
    code = "request_timeout"
    text = "The request's head did not arrive in time."
    retry = True


class SlowBody(Refusal):
    status = 408
    code = "slow_body"
    text = "The request's body arrived too slowly."
    retry = True


class SessionEnded(Refusal):
    """The session is over; it never comes back. `code` is the reason's name as in semantics.md."""

    status = 410
    code = "ended"
    text = "The session has ended."

    def __init__(self, reason: str = "ended", detail: str | None = None) -> None:
        self.code = reason
        self.detail = detail
        super().__init__(f"The session has ended ({reason}{f': {detail}' if detail else ''}).")

    def fields(self) -> dict[str, object]:
        """With the detail, which tells apart the ends that share a reason."""
        return {**super().fields(), **({"detail": self.detail} if self.detail else {})}


class SessionExpired(Refusal):
    """The name is known and its session is over. It answers so until it is released; a retry does not help."""

    status = 410
    code = "session_expired"
    text = "The session of this name has ended."

    def __init__(self, reason: str = "ended", detail: str | None = None) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(
            f"The session of this name has ended ({reason}{f': {detail}' if detail else ''}). "
            "Release the name to start afresh, or use another."
        )

    def fields(self) -> dict[str, object]:
        """With the reason, and the detail where there is one."""
        return {**super().fields(), "reason": self.reason, **({"detail": self.detail} if self.detail else {})}


class TargetTooLong(Refusal):
    status = 414
    code = "target_too_long"
    text = "The request target is longer than this server takes."


class UnknownExpectation(Refusal):
    status = 417
    code = "unknown_expectation"
    text = "The only expectation that can be met is 100-continue."


class KeyReused(Refusal):
    status = 422
    code = "idempotency_key_reused"
    text = "This idempotency key was used with other parameters."


class UpgradeRequired(Refusal):
    """The answer names the version that is spoken: `Sec-WebSocket-Version: 13` (RFC 6455, 4.2.2)."""

    status = 426
    code = "websocket_version"
    text = "Only version 13 of the WebSocket protocol is spoken here."


# --- 429: too often


class TooManyFailures(Refusal):
    status = 429
    code = "too_many_failures"
    text = "Too many wrong credentials from this address."
    retry = True


class SessionBusy(Refusal):
    """A `serial` Server serves one request of a session at a time, and those before this one took too long."""

    status = 429
    code = "session_busy"
    text = "Other requests of this session took too long."
    retry = True


class ServerBusy(Refusal):
    """A plain Server's containers all have `max_concurrency` requests in flight. Another container starts if there may be one."""

    status = 429
    code = "server_busy"
    text = "This Server has as many requests in flight as it takes."
    retry = True


class HeadTooLarge(Refusal):
    status = 431
    code = "head_too_large"
    text = "The request's head has more bytes or fields than this server takes."


# --- 5xx: later


class UnknownCoding(Refusal):
    status = 501
    code = "unknown_transfer_coding"
    text = "The only transfer coding understood is a single final chunked."


class BadGateway(Refusal):
    status = 502
    code = "bad_gateway"
    text = "The container's answer was not valid HTTP or broke off."
    retry = True


class Unavailable(Refusal):
    status = 503
    code = "unavailable"
    text = "This cannot be served just now."
    retry = True


def _explained(cause: str, more: str) -> str:
    if more.startswith(("by ", "with ")):
        return f"{cause} {more}"  # killed by SIGKILL, exited with status 3
    return f"{cause}: {more}" if more else cause


class QueueTimedOut(Unavailable):
    """`cause`: how the last container failed to start, where none is ready; in one word of semantics.md. `more`: a clause on it."""

    code = "queue_timeout"
    text = "No container had room for the session in time."

    def __init__(self, cause: str = "", *, more: str = "", retry_after: float | None = None) -> None:
        self.cause = cause
        why = f"{self.text[:-1]} (containers fail to start: {_explained(cause, more)})." if cause else None
        super().__init__(why, retry_after=retry_after)


class QueueFull(Unavailable):
    code = "queue_full"
    text = "Too many session starts are waiting."


class TooManySessions(Unavailable):
    code = "too_many_sessions"
    text = "This caller holds as many sessions as one caller may."


class NoContainerReady(Unavailable):
    """A plain Server's container is about to start, or to be started."""

    code = "no_container"
    text = "No container of this Server is ready."


class ContainersFailing(Unavailable):
    """`cause`: how the last one failed, in one word of semantics.md (`startup_timeout`, `exited`, ...). `more`: a clause on it."""

    code = "containers_failing"
    text = "Containers of this Server fail to start."

    def __init__(self, cause: str = "", *, more: str = "", retry_after: float | None = None) -> None:
        self.cause = cause
        why = f"{self.text[:-1]} ({_explained(cause, more)})." if cause else None
        super().__init__(why, retry_after=retry_after)


class StorageFailed(Unavailable):
    """Nothing can be made durable just now: the disk is full or read-only, or the state directory was moved. Sessions that live
    are not touched.
    """

    code = "storage_failed"
    text = "Nothing new can be started or ended just now."


class ShuttingDown(Unavailable):
    code = "shutting_down"
    text = "The service is shutting down."


class RestartUnderWay(Unavailable):
    """A new daemon is about to take over, and has read already what this call would change. Nothing has changed."""

    code = "restart_under_way"
    text = "A new daemon is about to take over."

    def __init__(self) -> None:
        super().__init__(retry_after=5.0)


class ContainerUnavailable(Unavailable):
    """The session lives, its container does not accept a connection just now. The session stays."""

    code = "container_unavailable"
    text = "The session's container does not accept connections just now."


class GatewayTimeout(Refusal):
    status = 504
    code = "gateway_timeout"
    text = "The container did not answer in time."
    retry = True


class VersionNotSupported(Refusal):
    status = 505
    code = "version_not_supported"
    text = "Only HTTP/1.1 and HTTP/1.0 are spoken here."


# --- never answered as they are


class BodyFault(StickyError):
    """A body breaks the framing its head announced. Of a request it is answered as `BadBody` while no answer has begun;
    of a response it can only be shown by closing. No retry can help.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem  #: what is wrong, without a byte of the body
        super().__init__(problem)

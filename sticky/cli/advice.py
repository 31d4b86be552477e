"""What to do about each refusal: one text a code, for docs/errors.md and for whoever meets it in the command. No rule here."""

from __future__ import annotations

#: `Refusal.code`, or the reason of an ended session -> what to do.
ADVICE = {
    # 400
    "bad_request": "Correct the request; the message says what is wrong with it.",
    "bad_idle_timeout": "Ask for whole seconds from 1 to the Server's `max_idle_timeout`, or for none: then its default counts.",
    "bad_idempotency_key": "Use a fresh random key of 16 to 128 letters, digits, `-`, `_` or `.` for each session you want.",
    "bad_session_name": "Use 1 to 128 characters; an unauthenticated Server also needs `public_names`. Or leave the name out.",
    "missing_session_token": "Send the session's token in the session token header, as `sessions.terminate` does.",
    "bad_grace": "Give a number of seconds from 0 to 3600, or none.",
    "ambiguous_id": "Write more of the id; `sticky sessions list` and `sticky containers list` show them in full.",
    "bad_configuration": "Mend the file or the app at the place that the message names, then check it again.",
    "needs_restart": "Until then the daemon goes on with the definition that it has.",
    "bad_head": "Something between client and Sticky garbles requests, or the client builds them by hand: look at the access log.",
    "bad_body": "The client's Content-Length or chunks do not match what it sends; send it again in whole.",
    # 401
    "no_credential": "Start a session and send its token; for control calls send a proxy token.",
    "bad_credential": "Copy the token again, in whole. If the signing key or the proxy tokens changed, get a new one.",
    # 403
    "wrong_server": "Use the URL of the Server that the session was started on.",
    "out_of_scope": "Use a proxy token whose `servers` hold this Server, or add it there.",
    "bad_origin": "Add the page's origin to the Server's `allowed_origins`, or send the token in a header instead of the cookie.",
    # 404 to 422
    "not_found": "Look at the address: control calls have fixed names.",
    "misdirected_request": "Open a connection for the host that is asked for; it is none of the Servers' `hosts`, either.",
    "unknown_host": "Use one of the Servers' `hosts`, or add this one; `sticky status` shows each Server's URL.",
    "unknown_name": "There is nothing to release: the next use of this name starts a session.",
    "unknown_session": "It has ended or never was: start another. `sticky sessions list` shows those there are.",
    "unknown_server": "`sticky status` shows the names.",
    "unknown_container": "`sticky containers list` shows them; one that ended long ago is forgotten.",
    "unknown_token": "`sticky tokens list` shows their ids, which begin with wk-.",
    "not_sessioned": "Send requests to this Server directly, without a session.",
    "method_not_allowed": "Use a method that the `Allow` field names.",
    "request_timeout": "Send the whole head at once; a network that is this slow needs a proxy in front.",
    "target_too_long": "Put long values into the body.",
    "unknown_expectation": "Leave the `Expect` field out, or send `100-continue`.",
    "nothing_before": "Deploy the version that you want: keep each in a folder of its own (docs/deploying.md).",
    "idempotency_key_reused": "Use a new key for a request with other parameters.",
    "websocket_version": "Use a WebSocket client of RFC 6455.",
    # 429, 431
    "session_busy": "Wait as `Retry-After` says; give long work a session of its own, or raise `session_wait_timeout`.",
    "too_many_failures": "Wait as `Retry-After` says and use the right token; behind a proxy set `trusted_proxies`.",
    "head_too_large": "Send fewer or smaller cookies and fields.",
    # 5xx
    "internal_error": "This is a fault of Sticky: the daemon's log has the traceback. A retry may work.",
    "unknown_transfer_coding": "Send the body with Content-Length or as `chunked` alone.",
    "bad_gateway": "Look at the container's output: `sticky logs`. A retry may work.",
    "unavailable": "Try again as `Retry-After` says.",
    "queue_timeout": "Try again. If it lasts, raise `max_containers` or `max_concurrency`; `sticky status` shows the queue.",
    "queue_full": "Try again later. If it lasts, raise `max_containers`, `max_queue` or `max_queue_per_caller`.",
    "too_many_sessions": "Terminate sessions that are not needed, or raise `max_sessions_per_caller`.",
    "no_container": "Try again: one is starting. `min_containers = 1` keeps one ready.",
    "server_busy": "Try again. If it lasts, raise `max_containers` or `max_concurrency`, or lower `target_concurrency`.",
    "containers_failing": "The reason is in `sticky status`, the output in `sticky logs`: mend the program or its command.",
    "slow_body": "Send faster, or have the operator lower `min_body_rate`: the Server wants a body to keep a pace.",
    "storage_failed": "Look at the daemon's log: it says whether the state directory's disk is full (free space) or the directory"
    " itself was moved or removed (put it back, or restart the daemon). Sessions go on meanwhile.",
    "restart_under_way": "Ask again in some seconds: the new daemon answers then, or the old one if that fails.",
    "shutting_down": "Try again when the daemon is back.",
    "container_unavailable": "Try again: the session stays. If it lasts, look at `sticky logs`.",
    "gateway_timeout": "Look at what the container is doing, or raise the Server's `response_timeout`.",
    "version_not_supported": "Speak HTTP/1.1.",
    # 410: how sessions end
    "session_expired": "Its state is lost. Release the name to start afresh (`POST …/sessions/release`), or use another name.",
    "ended": "Start another session.",
    "idle_timeout": "Start another session, with a longer idle timeout if people come back later than this.",
    "terminated": "Somebody ended it on purpose: start another session.",
    "container_lost": "Its container died; why is in `sticky status` and `sticky logs`. Start another session.",
    "container_max_age": "Start another session; `container_max_age` bounds every session's life.",
    "deployment_ended": "A new version replaced this one: start another session.",
    "server_stopped": "The operator stopped it: start another session, when the Server is back.",
}


def advice_for(code: str) -> str:
    """One or more sentences; empty for a code that is not known."""
    return ADVICE.get(code, "")

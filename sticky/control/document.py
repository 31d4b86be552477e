"""Writes docs/http.md (`python -m sticky.control.document`): every control call, with what it takes and gives.

Holds the words; that they name exactly the calls, fields and members that there are is a test's business.
"""

from __future__ import annotations

import sys

import attrs

from sticky.control import parameters
from sticky.control.calls import CALLS
from sticky.edge.wire import Names

_INTRODUCTION = """\
# Control calls

This page is generated from `sticky/control/document.py`; a test fails when it does not match the calls.

Sessions are started, watched and ended by HTTP calls on the Server's own URL. They are answered by Sticky and never reach a container.
Names have the default brand, `modal`; another one (`brand` in [configuration.md](configuration.md)) changes the word everywhere.

Bodies are JSON, with `cache-control: no-store`; a request's body is not looked at. Times are seconds. What is refused has a status, an
`error` and a `message`: [errors.md](errors.md) lists them, with those that a retry may help. Another method gets 405, another name 404.

## Who may call

| credential | where it travels |
| --- | --- |
| proxy token | `Authorization: Bearer wk-….ws-…`, else `Modal-Authorization` with the same, else `Modal-Key` and `Modal-Secret` |
| session token | as with any request to the Server: `Modal-Authorization: Bearer …`, query parameter or cookie |

On a Server that is `unauthenticated` anybody may start and terminate. Pages may, from the Server's own origin or one of its
`allowed_origins`; they also read the answers then.

## Try them

```sh
sticky init api && cd api
```

<!-- block: terminal 8080 -->
```sh
sticky serve app.py
```

```sh
URL=http://localhost:8080
PROXY_TOKEN=$(cat state/proxy-token)
```
"""


@attrs.frozen
class Member:
    """One member of an answer."""

    name: str
    meaning: str


@attrs.frozen
class Words:
    """What is said of one call."""

    summary: str
    credential: str
    takes: tuple[tuple[str, str], ...]  #: name on the wire, meaning
    gives: tuple[Member, ...]
    more: str  #: what else there is to know
    example: str  #: shell
    shown: str  #: what it prints


def words(names: Names) -> dict[bytes, Words]:
    """Every call's, by the key of `CALLS`."""

    def field(name: bytes) -> str:
        return f"field `{name.decode('ascii')}`"

    session = (
        Member("session_id", "`sd-…`; also what containers see in `x-modal-server-session-id`"),
        Member("state", "`active`, or `draining` while it ends"),
        Member("in_flight", "requests and WebSockets under way"),
        Member("idle_timeout", "how long it may have none of them"),
        Member("idle_left", "how long of that is left; null while something is in flight"),
        Member("age_left", "until its container's age limit, with which it ends"),
        Member("created_ago", "its age"),
        Member("name", "only if it has one"),
    )
    return {
        b"sessions/start": Words(
            "Start a session. Waits until a container has room, up to the Server's `queue_timeout`.",
            "proxy token",
            (
                (
                    field(names.idle_timeout),
                    "whole seconds with nothing in flight after which it ends; else the Server's",
                ),
                (
                    field(names.idempotency_key),
                    "16 to 128 token characters. Starts with one key are one start, and the repetition gets the same session",
                ),
                (
                    field(names.session_name),
                    "what the owner calls it: the same name again is the same session ([names.md](names.md))",
                ),
                (field(names.timestamp), "Unix seconds; accepted, and trusted for nothing"),
                ("field `accept: text/event-stream`", "the answer is a stream of events (see below)"),
            ),
            (
                Member("session_id", "`sd-…`"),
                Member("token", "the session's token. Everyone who has it shares the session"),
                Member("idle_timeout", "the one that counts"),
                Member("expires_at", "Unix time after which the token is of no use in any case"),
                Member("created", "false: there was such a session already (idempotency key, name)"),
            ),
            """\
A lack of room is never 4xx: 503 with `Retry-After` says that a retry may help, and 4xx that it will not. Retry with the same
idempotency key, so that an answer that got lost costs nothing.

With `accept: text/event-stream` a start that waits tells of it: `queued` (`position`, `estimate`, `waited`, `deadline_in`) whenever
its place changes, then one `started` with the members above or one `failed` with `error`, `message`, `status`, `retry_after`.""",
            'curl -s -X POST "$URL/_modal/sessions/start" -H "Authorization: Bearer $PROXY_TOKEN" \\\n'
            '  -H "x-modal-server-session-idle-timeout: 60" > answer.json\n'
            'TOKEN=$(python3 -c \'import json; print(json.load(open("answer.json"))["token"])\')\ncat answer.json',
            '{"session_id": "sd-...", "token": "...", "idle_timeout": 60, "expires_at": ..., "created": true}',
        ),
        b"sessions/status": Words(
            "How a session stands. Looking is no use of it: its idle clock goes on.",
            "session token",
            (
                ("field `accept: text/event-stream`", "the answer goes on until the session has ended (see below)"),
                (
                    "query `warning`",
                    "seconds before the end at which a `warning` comes; else 60, or a share of a short idle timeout",
                ),
            ),
            session,
            """\
As a stream of events: `status` (the members above) at once and when `state` changes, `warning` (the same, with `reason` and
`ends_in`) when the end is near by the idle clock or by age, then `ended` with the reason as `error`.""",
            'curl -s "$URL/_modal/sessions/status" -H "Modal-Authorization: Bearer $TOKEN"',
            '{"session_id": "sd-...", "state": "active", "in_flight": 0, "idle_timeout": 60, "idle_left": ...}',
        ),
        b"sessions/extend": Words(
            "Restart a session's idle clock, as a request to it would.",
            "session token",
            (),
            session,
            "With the cookie as its credential the call must come from the Server's own origin or one of `allowed_origins`.",
            'curl -s -X POST "$URL/_modal/sessions/extend" -H "Modal-Authorization: Bearer $TOKEN"',
            '{"session_id": "sd-...", "state": "active", ...}',
        ),
        b"sessions": Words(
            "The sessions of the proxy token's owner on this Server, in the order of their ids.",
            "proxy token, also on an `unauthenticated` Server",
            (
                ("query `after`", "only ids behind this one"),
                (
                    "query `limit`",
                    f"{parameters.DEFAULT_PAGE} at most, or this number, up to {parameters.LARGEST_PAGE}",
                ),
            ),
            (
                Member("sessions", "a list, each with the members of `status`"),
                Member("next", "what to ask for as `after`, or null at the end"),
            ),
            "",
            'curl -s "$URL/_modal/sessions?limit=10" -H "Authorization: Bearer $PROXY_TOKEN"',
            '{"sessions": [{"session_id": "sd-...", ...}], "next": null}',
        ),
        b"sessions/terminate": Words(
            "End a session: new requests are refused at once, those in flight complete.",
            "proxy token",
            (
                (field(names.session_token), "the session's token. Must be given"),
                (
                    field(names.grace),
                    f"seconds (up to {parameters.LONGEST_GRACE}) after which what is still in flight is cut; else it is not",
                ),
            ),
            (Member("session_id", "`sd-…`"),),
            "A session that is over already, or a token that is not one of this Server's, gets 404: nothing is left to do.",
            'curl -s -X POST "$URL/_modal/sessions/terminate" -H "Authorization: Bearer $PROXY_TOKEN" \\\n'
            '  -H "x-modal-server-session-token: $TOKEN"',
            '{"session_id": "sd-..."}',
        ),
        b"sessions/release": Words(
            "Free a name; the session that it stands for is terminated.",
            "proxy token",
            (
                (field(names.session_name), "the name. Must be given"),
                (field(names.grace), "as with `terminate`"),
            ),
            (),
            "Answered once it is durable, with an empty object. A name that is free already gets 404.",
            'curl -s -o /dev/null -X POST "$URL/_modal/sessions/start" -H "Authorization: Bearer $PROXY_TOKEN" \\\n'
            '  -H "x-modal-server-session-name: my-notebook"\n'
            'curl -s -X POST "$URL/_modal/sessions/release" -H "Authorization: Bearer $PROXY_TOKEN" \\\n'
            '  -H "x-modal-server-session-name: my-notebook"',
            "{}",
        ),
    }


def document(names: Names | None = None) -> str:
    """The whole page."""
    names = names or Names()
    parts = [_INTRODUCTION]
    for path, said in words(names).items():
        method = CALLS[path].method.decode("ascii")
        lines = [f"## `{method} {names.control.decode('ascii')}{path.decode('ascii')}`", ""]
        lines += [said.summary, "", f"Credential: {said.credential}.", ""]
        if said.takes:
            lines += [
                "| it takes | |",
                "| --- | --- |",
                *(f"| {name} | {meaning} |" for name, meaning in said.takes),
                "",
            ]
        if said.gives:
            lines += ["| 200 gives | |", "| --- | --- |"]
            lines += [*(f"| `{member.name}` | {member.meaning} |" for member in said.gives), ""]
        lines += [said.more, ""] if said.more else []
        lines += ["```sh", said.example, "```", "", "```json", said.shown, "```", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(document())

"""The admin API's calls: which there are, what they take, what they answer. Reaches state through `IInspection` only.

Must not know HTTP beyond methods, paths and JSON; `web` turns what is raised and returned here into answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from sticky import errors
from sticky.admin import bodies
from sticky.admin.bodies import Body
from sticky.admin.parameters import Call, flag, grace, seconds, session_name, sources, whole
from sticky.admin.recent import Recent
from sticky.admin.streams import LogStream, Wanted
from sticky.config.settings import Settings
from sticky.iinspection import IDeploying, IInspection
from sticky.ioperating import IOperating
from sticky.irestarting import IRestarting

LONGEST_PAGE: Final = 1000
_Done = TypeVar("_Done")

#: A configuration file and an app, either may be None, seen from this folder. Blocks, so it is called in a thread.
Check = Callable[[Path | None, str | None, Path], Settings]
InThread = Callable[..., Deferred[Any]]

Result = Body | LogStream | Deferred[Body]


class AdminCalls:
    """Answers calls: a JSON object now or later, or a stream. Raises, or fails with, `errors.Refusal`."""

    def __init__(
        self,
        inspection: IInspection,
        recent: Recent,
        check: Check,
        in_thread: InThread,
        clock: IReactorTime,
        deploying: IDeploying | None = None,
        operating: IOperating | None = None,
        restarting: IRestarting | None = None,
    ) -> None:
        """`deploying`, `operating`, `restarting`: None where that cannot be done; the calls for it are not there then."""
        self._inspection = inspection
        self._recent = recent
        self._check = check
        self._in_thread = in_thread
        self._clock = clock
        self._deploying = deploying
        self._operating_or_none = operating
        self._restarting = restarting

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, object]) -> Result:
        """Find the call and make it. Raises `errors.NotFound`, `errors.MethodNotAllowed`, and what the call raises."""
        allowed = []
        for route in ROUTES:
            found = re.fullmatch(route.path, path)
            if found and route.method == method:
                unknown = query.keys() - route.query
                if unknown:
                    raise errors.BadRequest(f"Unknown parameter {min(unknown)!r}; there are: {_list(route.query)}.")
                return route.call(self, Call(found.groups(), query, body))
            if found:
                allowed.append(route.method)
        if allowed:
            raise errors.MethodNotAllowed(*allowed)
        raise errors.NotFound

    # --- looking

    def _status(self, call: Call) -> Result:
        servers = [bodies.server(view, self._recent.requests[view.name]) for view in self._inspection.servers()]
        workers = [bodies.worker(view) for view in self._inspection.workers()]
        return {"daemon": bodies.daemon(self._inspection.daemon()), "workers": workers, "servers": servers}

    def _containers(self, call: Call) -> Result:
        server = call.query.get("server")
        ended = [
            bodies.ended(one)
            for view in self._inspection.servers()
            if server is None or view.name == server
            for one in view.ended
        ]
        return {"containers": [bodies.container(view) for view in self._inspection.containers(server)], "ended": ended}

    def _sessions(self, call: Call) -> Result:
        limit = whole(call.query.get("limit"), "limit", 1, LONGEST_PAGE, 100)
        server, container, owner, after = map(call.query.get, ("server", "container", "owner", "after"))
        found = self._inspection.sessions(server, container, owner, after, limit + 1)
        return bodies.sessions(found, limit)

    def _session(self, call: Call) -> Result:
        return bodies.session(self._inspection.session(call.arguments[0]))

    def _logs(self, call: Call) -> Result:
        query = call.query
        kinds = query.get("kinds", "output").split(",")
        if not {*kinds} <= {"output", "events"}:
            raise errors.BadRequest("The kinds of log are output and events.")
        wanted = Wanted(
            server=query.get("server"),
            container=call.arguments[0] if call.arguments else query.get("container"),
            session=None if query.get("session") is None else self._session_id(query["session"]),
            output="output" in kinds,
            events="events" in kinds,
            follow=query.get("follow") == "1",
            last=whole(query.get("lines"), "lines", 0, 100_000, 100),
        )
        return LogStream(self._inspection, self._recent, wanted, self._clock)

    def _session_id(self, text: str) -> str:
        """Of one that the Servers know, else of one that the log is about still."""
        try:
            return self._inspection.session_id(text)
        except errors.UnknownSession:
            found = {event.session for event in self._recent.after(0) if event.session is not None}
            meant = {session for session in found if session.startswith(text)}
            if text in meant:
                return text
            if len(text) < 4 or not meant:
                raise
            if len(meant) > 1:
                raise errors.AmbiguousId from None
            return meant.pop()

    # --- doing

    def _start(self, call: Call) -> Result:
        server = call.body.get("server")
        if not isinstance(server, str):
            raise errors.BadRequest('The body names the Server: {"server": "…"}.')
        idle_timeout = seconds(call.body.get("idle_timeout"), errors.BadIdleTimeout)
        started = self._inspection.start(server, idle_timeout, session_name(call.body.get("name")))
        return started.addCallback(lambda given: self._given(given, server))

    def _release(self, call: Call) -> Result:
        server, name = call.body.get("server"), session_name(call.body.get("name"))
        if not isinstance(server, str) or name is None:
            raise errors.BadRequest('The body names the Server and the session: {"server": "…", "name": "…"}.')
        released = self._inspection.release(server, name, grace(call))
        return released.addCallback(
            lambda meant: {"name": name, "session": None if meant is None else self._left(meant)}
        )

    def _token(self, call: Call) -> Result:
        view = self._inspection.session(call.arguments[0])
        return self._given(self._inspection.credentials(view.status.session), view.server)

    def _given(self, given: Any, server: str) -> Body:
        url = next(view.url for view in self._inspection.servers() if view.name == server)
        return bodies.credentials(given, server, url, self._inspection.daemon().brand)

    def _terminate(self, call: Call) -> Result:
        limit = grace(call)
        view = self._inspection.session(call.arguments[0])
        done = self._inspection.terminate(view.status.session, limit)
        return done.addCallback(lambda _: self._left(view.status.session))

    def _left(self, session: str) -> Body:
        """What goes on of a session that was terminated."""
        try:
            view = self._inspection.session(session)
        except (errors.SessionEnded, errors.UnknownSession):
            return {"session_id": session, "in_flight": 0, "cut_left": None, "age_left": None}
        left = bodies.session(view)
        return {"session_id": session, **{name: left[name] for name in ("in_flight", "cut_left", "age_left")}}

    def _extend(self, call: Call) -> Result:
        return bodies.session(self._inspection.extend(call.arguments[0]))

    def _stop_container(self, call: Call) -> Result:
        return bodies.container(self._inspection.stop_container(call.arguments[0]))

    def _check_config(self, call: Call) -> Result:
        file, app, folder = sources(call)
        if folder is None:
            raise errors.BadRequest("The body names a configuration file, an app, or both.")
        return self._in_thread(self._check, file, app, folder).addCallback(bodies.checked)

    # --- deploying

    def _deploy(self, call: Call) -> Result:
        file, app, folder = sources(call)
        recreate, force = flag(call, "recreate"), flag(call, "force")
        doing = self._deployer.deploy(file, app, folder, recreate=recreate, force=force)
        return shielded(doing).addCallback(bodies.deployed)

    def _undo(self, call: Call) -> Result:
        return shielded(self._deployer.undo(recreate=flag(call, "recreate"))).addCallback(bodies.deployed)

    def _rollout(self, call: Call) -> Result:
        return bodies.rollout(self._deployer.rollout())

    # --- setting

    def _access(self, call: Call) -> Result:
        app, server = call.body.get("app"), call.body.get("server")
        if not isinstance(server, str) or not isinstance(app, str | None):
            raise errors.BadRequest('The body names the Server, and perhaps its app: {"app": "…", "server": "…"}.')
        url = self._inspection.address(app, server)
        return {"url": url, "brand": self._inspection.daemon().brand, "proxy_token": self._operating.bearer()}

    def _scaling(self, call: Call) -> Result:
        return bodies.scaling(self._operating.scaling(call.arguments[0]))

    def _scale(self, call: Call) -> Result:
        return bodies.scaling(self._operating.scale(call.arguments[0], call.body))

    def _tokens(self, call: Call) -> Result:
        return {"tokens": [bodies.proxy_token(view) for view in self._operating.tokens()]}

    def _create_token(self, call: Call) -> Result:
        view, bearer = self._operating.create_token(call.body)
        return {**bodies.proxy_token(view), "bearer": bearer}

    def _revoke_token(self, call: Call) -> Result:
        fresh = self._operating.revoke_token(call.arguments[0])
        return {"id": call.arguments[0], "replaced_by": None if fresh is None else fresh.id}

    def _keys(self, call: Call) -> Result:
        return bodies.keys(self._operating.keys())

    def _rotate_key(self, call: Call) -> Result:
        return shielded(self._operating.rotate_key(revoke=flag(call, "revoke"))).addCallback(bodies.rotated)

    @property
    def _operating(self) -> IOperating:
        if self._operating_or_none is None:
            raise errors.NotFound
        return self._operating_or_none

    def _restart(self, call: Call) -> Result:
        if self._restarting is None:
            raise errors.NotFound
        return shielded(self._restarting.restart()).addCallback(dict)

    @property
    def _deployer(self) -> IDeploying:
        if self._deploying is None:
            raise errors.NotFound
        return self._deploying


@attrs.frozen
class Route:
    """One row of the table of calls."""

    method: str
    path: str  #: a regular expression; its groups are the call's arguments
    call: Callable[[AdminCalls, Call], Result]
    query: frozenset[str] = frozenset()


_ID = r"([A-Za-z0-9_-]{1,64})"
_NAME = r"([A-Za-z0-9_.-]{1,80})"
_LOGS = frozenset({"kinds", "follow", "lines"})

ROUTES: Final = (
    Route("GET", "/v1/status", AdminCalls._status),
    Route("GET", "/v1/containers", AdminCalls._containers, frozenset({"server"})),
    Route("POST", f"/v1/containers/{_ID}/stop", AdminCalls._stop_container),
    Route("GET", f"/v1/containers/{_ID}/logs", AdminCalls._logs, _LOGS),
    Route("GET", "/v1/logs", AdminCalls._logs, _LOGS | {"server", "container", "session"}),
    Route(
        "GET",
        "/v1/sessions",
        AdminCalls._sessions,
        frozenset({"server", "container", "owner", "after", "limit"}),
    ),
    Route("POST", "/v1/sessions", AdminCalls._start),
    Route("POST", "/v1/sessions/release", AdminCalls._release),
    Route("GET", f"/v1/sessions/{_ID}", AdminCalls._session),
    Route("POST", f"/v1/sessions/{_ID}/terminate", AdminCalls._terminate),
    Route("POST", f"/v1/sessions/{_ID}/extend", AdminCalls._extend),
    Route("POST", f"/v1/sessions/{_ID}/token", AdminCalls._token),
    Route("POST", "/v1/check", AdminCalls._check_config),
    Route("POST", "/v1/deploy", AdminCalls._deploy),
    Route("GET", "/v1/rollout", AdminCalls._rollout),
    Route("POST", "/v1/rollout/undo", AdminCalls._undo),
    Route("POST", "/v1/restart", AdminCalls._restart),
    Route("POST", "/v1/access", AdminCalls._access),
    Route("GET", "/v1/tokens", AdminCalls._tokens),
    Route("POST", "/v1/tokens", AdminCalls._create_token),
    Route("POST", f"/v1/tokens/{_NAME}/revoke", AdminCalls._revoke_token),
    Route("GET", "/v1/keys", AdminCalls._keys),
    Route("POST", "/v1/keys/rotate", AdminCalls._rotate_key),
    Route("GET", f"/v1/servers/{_NAME}/autoscaler", AdminCalls._scaling),
    Route("POST", f"/v1/servers/{_NAME}/autoscaler", AdminCalls._scale),
)


def shielded(doing: Deferred[_Done]) -> Deferred[_Done]:
    """The same, but who asked may leave: what has begun goes on."""
    answer: Deferred[_Done] = Deferred()

    def over(result: _Done | Failure) -> None:
        if not answer.called:
            answer.callback(result)  # a Failure goes the errbacks' way

    doing.addBoth(over)
    return answer


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"

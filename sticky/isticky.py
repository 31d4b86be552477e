"""The seams: what one room may ask of another, and the values that cross. No behaviour.

The edge and the control calls reach rules and state only through these; `sticky.wiring` is the one place that ties them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from zope.interface import Attribute, Interface

from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, ServerName, SessionId

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from sticky.core.tokens import Claims


# --- data requests ---------------------------------------------------------------------------------------------------


@attrs.frozen
class TCPAddress:
    """Where a container listens."""

    host: str
    port: int
    network: str = ""  #: the container's own network namespace, as `sticky.networks` names it; empty: the machine's


@attrs.frozen
class UNIXAddress:
    """Where a container listens, as a socket's path."""

    path: str


Address = TCPAddress | UNIXAddress


#: In the place of a session's id: the request belongs to none, it is a plain Server's.
NO_SESSION = SessionId("-")


@attrs.frozen
class Visit:
    """A request to a plain Server, which needs no session."""

    server: ServerName
    key: bytes = attrs.field(repr=False, default=b"")  #: of its affinity; empty: none
    #: Whoever decides has to let this in; None: it is in.
    shown: ControlRequest | None = attrs.field(repr=False, default=None)
    container: ContainerId | None = None  #: where it is in flight already, let in by an earlier daemon


class ILeaseHolder(Interface):
    """Whoever keeps a request in flight: an exchange of the edge, a WebSocket relay, a worker."""

    def session_ended(reason: EndReason, detail: str | None) -> None:
        """The session is over while this holder still had it in flight: cut the exchange now.

        Called at most once, never after `release`, and perhaps from within `begin` of somebody else. The lease is already
        released; a `release` afterwards does nothing.
        """


class IToldHolder(ILeaseHolder):
    """A holder in another process, which hears of an end a moment later."""

    def settled() -> Deferred[None]:
        """Fires when it has acknowledged everything that it was told until now, or was cut off. Never fails."""


class IFarHolder(IToldHolder):
    """A holder in another process, which serves all requests of the session that reach it: a worker's one lease of it.

    The daemon counts the lease; how many requests there are is known elsewhere, and told now and then.
    """

    in_flight = Attribute("requests in flight there, as told last; 0 while it keeps the lease for the next one")
    idle_for = Attribute("seconds since the last of them, as told last; 0.0 while there are any")

    def session_drains(reason: EndReason) -> None:
        """No further request of the session may begin there; the lease comes back with the last one."""


class ILease(Interface):
    """One request of a session in flight. It counts until released; release it exactly when semantics.md says so."""

    session: SessionId = Attribute("the session's id, for the x-modal-server-session-id header; or NO_SESSION")
    container: ContainerId = Attribute("the container's id: the key of upstream pools and a log field")
    address: Address = Attribute("where the container listens")

    def release() -> None:
        """The exchange is over. A second call does nothing."""

    def transfer(holder: ILeaseHolder) -> None:
        """From now on this holder is told when the session ends."""

    def suspend() -> None:
        """Count no longer, but stay: the holder is still told when the session ends, perhaps from within this call.

        A no-op on a lease that is suspended or over.
        """

    def resume() -> None:
        """Count again. Raises `errors.SessionEnded` where that is too late; the lease is over then, and `release` a no-op.

        A no-op on a lease that is not suspended.
        """


class IRouting(Interface):
    """The one gate of data requests: every request passes it, and leaves by its lease."""

    def begin(claims: Claims | Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        """Put one request of the claims' session, or one to a plain Server, in flight for this holder. WebSockets take no
        turn on a `serial` Server.

        A lease now, or a Deferred of one (cancelling it releases a lease that would be granted later).

        Raises (or fails with) `errors.SessionEnded` (final), `errors.SessionBusy` (others took too long), `errors.ServerBusy`
        (a plain Server's; retry), `errors.Unavailable` (the session stays; retry).
        Success does not promise that the container accepts the connection.
        """


# --- control calls ---------------------------------------------------------------------------------------------------


@attrs.frozen
class Credentials:
    """What a start gives. The repr hides the token."""

    session: SessionId
    token: str = attrs.field(repr=False)
    idle_timeout: float  #: seconds
    expires_at: float  #: Unix time of the token's hard expiry
    created: bool  #: False when an idempotency key or a name found a session that was there already


@attrs.frozen
class StartRequest:
    """A client asks for a session."""

    server: ServerName
    caller: Caller  #: whom the queue's and the sessions' limits count
    owner: str  #: the proxy token's owner; "" on an unauthenticated Server
    idle_timeout: float | None  #: seconds; None: the Server's default
    key: str | None = attrs.field(repr=False, default=None)  #: idempotency key
    name: str | None = attrs.field(repr=False, default=None)  #: what the client calls the session: get or create


@attrs.frozen
class QueuePosition:
    """Where a waiting start stands."""

    position: int  #: 1 is next
    waited: float  #: seconds
    deadline_in: float  #: seconds until it is refused


@attrs.frozen
class SessionStatus:
    """What a session's holder may know of it."""

    session: SessionId
    state: str  #: "active" or "draining"
    in_flight: int
    idle_timeout: float  #: seconds
    idle_left: float | None  #: seconds until it ends; None while something is in flight
    age_left: float  #: seconds until the container's age limit
    owner: str
    container: ContainerId
    created_ago: float  #: seconds
    name: str | None = attrs.field(repr=False, default=None)  #: what its client calls it


class ISessions(Interface):
    """Starting and ending sessions."""

    def start(request: StartRequest) -> Deferred[Credentials]:
        """Queue a start. Cancelling the Deferred means that the client left: its place is freed.

        With a name the session of this owner and name is found, or started if the name was never seen or was released.

        Fails with `errors.BadIdleTimeout`, `errors.KeyReused`, `errors.SessionExpired` (final) or an `errors.Unavailable`
        (retry, see its `retry_after`). Success promises a session that lived at the moment of the answer, on a ready container.
        """

    def position(waiting: Deferred[Credentials]) -> QueuePosition | None:
        """Where a start stands in the queue; None once it is decided."""

    def terminate(claims: Claims, grace: float | None) -> Deferred[None]:
        """End a session: new requests are refused from now on, those in flight complete (at most `grace` seconds).

        Fires when that would survive a crash of the daemon; fails with `errors.StorageFailed` (retry) where it would not.
        Raises `errors.UnknownSession` where there is nothing to terminate; a session that drains already is accepted.
        """

    def release(server: ServerName, owner: str, name: str, grace: float | None) -> Deferred[None]:
        """Forget a name, so that its next use starts afresh; a session that it stands for is terminated.

        Fires when that would survive a crash of the daemon; fails with `errors.StorageFailed` (retry) where it would not.
        Raises `errors.UnknownName`.
        """

    def status(claims: Claims) -> SessionStatus:
        """Raises `errors.SessionEnded`. Touches nothing."""

    def extend(claims: Claims) -> SessionStatus:
        """Restart the idle clock. Raises `errors.SessionEnded`, also for a session that drains."""

    def sessions(server: ServerName, owner: str, after: SessionId | None, limit: int) -> Sequence[SessionStatus]:
        """The owner's sessions in the order of their ids, those after `after`, at most `limit`."""


# --- containers ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ContainerSpec:
    """What a backend needs to run one container. Everything is resolved but the address, which is the backend's choice.

    `command` may hold the placeholders {port} {host} {socket} {container_id} {url}, in any argument.
    """

    container: ContainerId
    server: ServerName
    deployment: DeploymentId
    app: str
    command: tuple[str, ...]
    directory: Path  #: working directory
    log: Path  #: output goes here, O_APPEND
    scratch: Path  #: a folder of this container's own for its socket and the like
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)  #: over what is inherited and what we set
    url: str = ""  #: the Server's public URL
    port: int | None = None  #: where the program listens if it ignores PORT (then only one copy can run)
    host: str = "127.0.0.1"
    ready_path: str | None = None  #: probe with GET and expect a status under 400; None: an open port is enough
    reports_ready: bool = False  #: the program says itself when its enter hooks are done (our Python runtime)
    snapshot: tuple[str, ...] = ()  #: a process that forks this program, once it has prepared it; empty: there is none
    #: how an end of the program's own doing is called: exit status, or the negative number of a signal -> `Exit.detail`
    endings: Mapping[int, str] = attrs.field(factory=dict, repr=False)
    options: Mapping[str, object] = attrs.field(factory=dict, repr=False)  #: what only this backend understands
    backend: str = ""  #: its name; empty: that of the Server's newest deployment


@attrs.frozen
class Exit:
    """How a container ended."""

    detail: str  #: "exited", "killed", "failed", "out_of_memory", ...
    status: int | None  #: exit status; None if a signal ended it or it never ran
    signal: int | None
    last_lines: tuple[str, ...] = ()  #: of its output, at most 20 lines of 500 characters
    message: str = ""  #: one line for the operator: what happened and why


class IContainerListener(Interface):
    """Hears the facts of one container, in this order: `ready` at most once, then `exited` exactly once."""

    def ready(container: ContainerId, address: Address) -> None:
        """It answers on this address, and the listening socket is its own."""

    def exited(container: ContainerId, exit: Exit) -> None:
        """It is gone, or never came: nothing of it runs any more as far as the backend can tell."""


class IContainer(Interface):
    """One running copy. Signals to a container that is gone are no-ops."""

    id: ContainerId = Attribute("its id")
    place: Mapping[str, object] = Attribute(
        "what its backend needs to find this very container again after a restart of the daemon: JSON values, known as soon "
        "as `spawn` has returned, empty where it never ran"
    )

    def waits_for() -> str:
        """What it lacks to be ready, as a clause for its operator: which port it is expected on, how its program is told that,
        and where it listens instead, as far as that can be seen from here.

        Empty where nothing is known, and once it is ready or gone. May take some milliseconds.
        """

    def halted() -> bool:
        """Whether somebody has stopped its main process (SIGSTOP) or paused it. The kernel takes connections for it all the same,
        and nobody ever answers them. False where that cannot be told."""

    def terminate() -> None:
        """Ask it to end (SIGTERM to its process group)."""

    def kill() -> None:
        """End it now (SIGKILL to its process group)."""


class IContainerBackend(Interface):
    """A way to run containers; found as a Twisted plugin by `name`."""

    name: str = Attribute("as in the `backend` setting")

    def spawn(spec: ContainerSpec, listener: object) -> IContainer:
        """Start one container and report to this `IContainerListener`, never from within this call.

        Never raises for what is wrong with the program: that is an `exited` with the reason in its message.
        """

    def adopt(
        spec: ContainerSpec, place: Mapping[str, object], address: Address | None, listener: IContainerListener
    ) -> IContainer | None:
        """Take over a container that an earlier daemon spawned with this spec, wherever that left off.

        `place` is what its `IContainer` had; empty if the earlier daemon died before it could be noted. `address` is where it
        was ready, None if it was not: its readiness is watched for then. Reports to the listener as `spawn` does (an `exited`
        without a status where the system does not tell strangers), never from within this call.

        None: it is gone, or is not the same process any more; whatever carries its mark has been killed.
        """

    def orphans(known: Collection[ContainerId]) -> Collection[ContainerId]:
        """Kill containers of this state directory that are not `known`; called once, when all that could be were adopted.

        Returns those that were found. What belongs to another daemon's state directory is never touched.
        """

    def stop() -> Deferred[None]:
        """Release what the backend itself holds (timers, sockets). Containers must be gone already."""


class IPreparedBackend(Interface):
    """A backend, besides `IContainerBackend`, that has to know of all its Servers before the first container."""

    def prepare(options: Sequence[Mapping[str, object]]) -> None:
        """The options of the Servers that use this backend, before the first `adopt` or `spawn` of one with such options.

        Called at the daemon's start and again for each new definition. Opens nothing yet.
        """


@attrs.frozen
class Snapshot:
    """A process that has prepared a Server's program, and is forked for its containers."""

    state: str  #: "warming" (it prepares), "warm" (it forks), "dead" (containers start from scratch)
    pid: int | None
    memory: int | None  #: bytes that it has in memory; forks share them until one of them writes
    problem: str  #: why it is dead, in a line; empty otherwise


class ISnapshotBackend(Interface):
    """A backend, besides `IContainerBackend`, that can fork containers from a process which has prepared what they need."""

    def warm(spec: ContainerSpec) -> None:
        """Containers like this one may be wanted from now on, and no others of their Server: have their `snapshot` ready.

        A no-op where it is. Never raises for what is wrong with it: then containers start from scratch.
        """

    def cool(server: ServerName) -> None:
        """No new container of this Server is wanted any more. Those there are go on."""

    def snapshot(server: ServerName) -> Snapshot | None:
        """How it is with that process; None where there is none to be."""


# --- what the edge asks of the control calls -------------------------------------------------------------------------


@attrs.frozen
class Answer:
    """An HTTP answer of our own. The edge adds Content-Length and `cache-control: no-store`."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


@attrs.frozen
class ControlRequest:
    """A control call, as far as anybody but the edge needs to know it. Bodies are not read."""

    server: ServerName
    sessioned: bool
    unauthenticated: bool
    method: bytes
    path: bytes  #: without the query, e.g. b"/_modal/sessions/start"
    query: bytes
    #: As sent, in order, names in the client's spelling.
    headers: Sequence[tuple[bytes, bytes]] = attrs.field(repr=False)
    client: str  #: the client's address, after trusted proxies
    origin_allowed: bool  #: no Origin, or this Host's own, or one in allowed_origins
    #: As on a data request: first present credential.
    session_token: bytes | None = attrs.field(repr=False, default=None)
    named: bool = True  #: whether clients may name their sessions
    session_from_cookie: bool = False  #: that credential is the cookie, which a browser sends unasked: the Origin rule

    def header(self, name: bytes) -> bytes | None:
        """The only value of a field (name in lower case), or None; of several lines the first."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class IEventStream(Interface):
    """A control answer that goes on: Server-Sent Events."""

    def start(write: object, finish: object) -> None:
        """Begin: call `write(bytes)` for each event and `finish()` after the last."""

    def stop() -> None:
        """The client left, perhaps before `start`. Not called after `finish`."""


class IControl(Interface):
    """Answers `/_modal/...`."""

    def answer(request: object) -> object:
        """Answer one `ControlRequest`.

        Returns an `Answer`, an `IEventStream`, or a Deferred of either (cancelling it means that the client left).
        Raises, or fails with, an `errors.Refusal`.
        """

    def let_in(request: object) -> object:
        """Whether this `ControlRequest`, which is to a plain Server and no control call, brings what that Server asks for.

        None: it does. The request itself: another process judges, and it is to be `shown` with the `Visit`. Raises an
        `errors.Refusal` where it does not.
        """

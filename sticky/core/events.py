"""What happened: the facts that a fleet is told, and the answers that ledgers give. Past tense, frozen, no behaviour."""

from __future__ import annotations

import attrs

from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, Policy, SessionId, WaiterId


@attrs.frozen
class StartRequested:
    """A client asks for a session and waits."""

    waiter: WaiterId
    caller: Caller
    owner: str  #: scope of the idempotency key; "" where everybody is one owner
    idle_timeout: float | None = None  #: seconds; None: the policy's default
    key: str | None = attrs.field(default=None, repr=False)
    name: str | None = attrs.field(default=None, repr=False)  #: the session's; the key beside it is not looked at


@attrs.frozen
class StartAbandoned:
    """The client of this waiter left. A no-op when it was answered in the same moment."""

    waiter: WaiterId


@attrs.frozen
class ContainerReady:
    """The container answers on its port. A no-op for one that is being stopped."""

    container: ContainerId


@attrs.frozen
class ContainerExited:
    """The container is gone, for whatever reason; `detail` is a short word such as "exited" or "killed"."""

    container: ContainerId
    detail: str = "exited"


@attrs.frozen
class Deployed:
    """A new deployment is the newest from now on. `recreate`: containers of older ones stop now."""

    deployment: DeploymentId
    policy: Policy
    recreate: bool = False


@attrs.frozen
class PolicyChanged:
    """The newest deployment has other limits from now on; no container is replaced for it.

    What is under way keeps the times it was promised: waiting starts, containers that start or drain. A container with more
    sessions than it may hold now keeps them and takes no more.
    """

    policy: Policy


@attrs.frozen
class ContainerStopRequested:
    """An operator wants this container stopped in an orderly way. A no-op for one that is being stopped."""

    container: ContainerId
    reason: EndReason = EndReason.SERVER_STOPPED


@attrs.frozen
class ContainerUnhealthy:
    """A container that was ready does not answer any more. A no-op for one that is being stopped."""

    container: ContainerId
    detail: str = "unhealthy"


@attrs.frozen
class StopRequested:
    """The Server, or the daemon, is to stop in an orderly way. Doubled: a no-op."""

    reason: EndReason = EndReason.SERVER_STOPPED


@attrs.frozen
class TimePassed:
    """Nothing but time; the timer's event."""


@attrs.frozen
class Admitted:
    """A ledger took the session."""

    container: ContainerId
    session: SessionId
    caller: Caller
    version: int  #: of the ledger's snapshot; higher is newer
    sessions: int  #: in the ledger after this


@attrs.frozen
class Full:
    """A ledger has no room."""

    container: ContainerId
    session: SessionId
    version: int
    sessions: int


@attrs.frozen
class Closed:
    """A ledger takes nothing any more: the answer to `Close`, and to `Admit` (then with the session)."""

    container: ContainerId
    session: SessionId | None
    version: int
    sessions: int


@attrs.frozen
class HasSessions:
    """A ledger refuses to close."""

    container: ContainerId
    version: int
    sessions: int


@attrs.frozen
class SessionLeft:
    """A session of this ledger has ended; told to admission so that the place is free, and why for the session's name."""

    container: ContainerId
    session: SessionId
    caller: Caller
    version: int
    sessions: int
    reason: EndReason
    detail: str | None = None


@attrs.frozen
class SessionDraining:
    """A session that has a name takes no requests any more, while some are still in flight."""

    container: ContainerId
    session: SessionId
    reason: EndReason


Event = (
    StartRequested
    | StartAbandoned
    | ContainerReady
    | ContainerExited
    | ContainerStopRequested
    | ContainerUnhealthy
    | Deployed
    | PolicyChanged
    | StopRequested
    | TimePassed
)
LedgerAnswer = Admitted | Full | Closed | HasSessions | SessionLeft | SessionDraining

"""What to do next: the requests that a fleet makes of the world and of its ledgers. Imperative, frozen, no behaviour."""

from __future__ import annotations

import attrs

from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId, StopCause, TurnId, WaiterId
from sticky.errors import Refusal


@attrs.frozen
class GrantStart:
    """Answer these waiting clients with credentials. No waiters: everybody left, the session lives by its idle clock."""

    waiters: tuple[WaiterId, ...]
    session: SessionId
    container: ContainerId
    idle_timeout: float  #: seconds
    created: bool  #: False: an idempotency key or a name found the session


@attrs.frozen
class RefuseStart:
    """Answer these waiting clients with this error."""

    waiters: tuple[WaiterId, ...]
    error: Refusal


@attrs.frozen
class SpawnContainer:
    """Run a new container; answer with `ContainerReady` and in the end `ContainerExited`."""

    container: ContainerId
    deployment: DeploymentId


@attrs.frozen
class TerminateContainer:
    """Ask the container to end (SIGTERM)."""

    container: ContainerId
    cause: StopCause


@attrs.frozen
class KillContainer:
    """End the container now (SIGKILL)."""

    container: ContainerId


@attrs.frozen
class EndSession:
    """The session is over: cut what it still has in flight and tell everybody why."""

    session: SessionId
    container: ContainerId
    reason: EndReason
    detail: str | None
    forget_at: float  #: when its token has expired for certain, and the tombstone may go


@attrs.frozen
class GiveTurn:
    """This request has waited and is the one that its session serves now."""

    turn: TurnId


@attrs.frozen
class RefuseTurn:
    """This request waits no longer: answer it with this error. It is not in flight any more."""

    turn: TurnId
    error: Refusal


@attrs.frozen
class CutRequests:
    """A container of a plain Server stops: cut whatever request it still has in flight and tell everybody why."""

    container: ContainerId
    reason: EndReason
    detail: str | None


@attrs.frozen
class Admit:
    """Ask a ledger to take a session. Answer: `Admitted`, `Full` or `Closed`."""

    container: ContainerId
    session: SessionId
    caller: Caller
    idle_timeout: float
    name: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Close:
    """Ask a ledger to take nothing any more, if it is empty. Answer: `Closed` or `HasSessions`."""

    container: ContainerId


Effect = (
    GrantStart
    | RefuseStart
    | SpawnContainer
    | TerminateContainer
    | KillContainer
    | EndSession
    | GiveTurn
    | RefuseTurn
    | CutRequests
)
LedgerRequest = Admit | Close

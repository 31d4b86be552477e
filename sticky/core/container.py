"""One container as admission sees it: its states, the table of what moves it, its deadlines. Knows no session but by number."""

from __future__ import annotations

from enum import Enum

import attrs

from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, EndReason, SessionId, StopCause
from sticky.errors import IllegalEvent

KILL_AFTER = 30.0  #: seconds from SIGTERM to SIGKILL (semantics.md, Container)
PROVEN_AFTER = 30.0  #: seconds that one must be READY before its end is no failed start any more


class ContainerState(Enum):
    """Where a container stands. States only move forward."""

    STARTING = "starting"  # spawned; its port does not answer yet
    READY = "ready"  # takes sessions
    DRAINING = "draining"  # takes nothing new; in-flight work completes
    STOPPING = "stopping"  # asked to end
    GONE = "gone"  # no process any more


class ContainerInput(Enum):
    """What can move a container."""

    READY = "ready"  # its port answers
    DRAIN = "drain"  # it has to stop, gently: age, deployment, operator
    STOP = "stop"  # end it now: empty, too slow to start, the time to drain is over, or it does not answer any more
    EXIT = "exit"  # its process is gone


TRANSITIONS: dict[tuple[ContainerState, ContainerInput], ContainerState] = {
    (ContainerState.STARTING, ContainerInput.READY): ContainerState.READY,
    (ContainerState.STARTING, ContainerInput.STOP): ContainerState.STOPPING,
    (ContainerState.STARTING, ContainerInput.EXIT): ContainerState.GONE,
    (ContainerState.READY, ContainerInput.DRAIN): ContainerState.DRAINING,
    (ContainerState.READY, ContainerInput.STOP): ContainerState.STOPPING,
    (ContainerState.READY, ContainerInput.EXIT): ContainerState.GONE,
    (ContainerState.DRAINING, ContainerInput.STOP): ContainerState.STOPPING,
    (ContainerState.DRAINING, ContainerInput.EXIT): ContainerState.GONE,
    (ContainerState.STOPPING, ContainerInput.READY): ContainerState.STOPPING,  # it answered while it was being stopped
    (ContainerState.STOPPING, ContainerInput.EXIT): ContainerState.GONE,
}


@attrs.define(eq=False)
class Container:
    """One container, with the newest snapshot of its ledger and the grants that the snapshot does not show yet.

    `close_asked`: READY only, its ledger is asked to close: nothing is placed on it, and it counts as STOPPING.
    `stop_at`: when time alone moves it on: start-up time-out, end of draining, or SIGKILL.
    `proven_at`: READY only, when time alone shows that its start has succeeded; UNBOUNDED once that is shown.
    """

    id: ContainerId
    deployment: DeploymentId
    born: float
    max_age: float  #: seconds
    limit: int  #: sessions that its ledger takes; as the policy says for as long as its deployment is the newest
    order: int  #: of creation; lower is older
    state: ContainerState = ContainerState.STARTING
    reason: EndReason = EndReason.CONTAINER_LOST  #: for its sessions, from DRAINING on
    sessions: int = 0
    requests: int = 0  #: in flight that belong to no session: those of a plain Server
    version: int = 0
    grants: set[SessionId] = attrs.field(factory=set)
    empty_since: float = UNBOUNDED
    close_asked: bool = False
    stop_at: float = UNBOUNDED
    proven_at: float = UNBOUNDED
    single_use: bool = False  #: one session in its life
    used: bool = False  #: it has, had, or was asked to take a session

    def move(self, what: ContainerInput) -> None:
        """Take one row of the table. Raises `IllegalEvent`, having changed nothing, where there is none."""
        try:
            self.state = TRANSITIONS[self.state, what]
        except KeyError:
            raise IllegalEvent(f"container in {self.state.value} cannot {what.value}") from None

    @property
    def load(self) -> int:
        """Sessions that it has or is being asked to take, never less than what its ledger holds, as far as we know; and
        requests of a plain Server.
        """
        return self.sessions + len(self.grants) + self.requests

    @property
    def dies_at(self) -> float:
        """Its age limit."""
        return self.born + self.max_age

    def fits_until(self, idle_timeout: float) -> float:
        """Up to when (exclusive) it can take a session of this idle timeout: the age limit must lie farther away."""
        return self.dies_at - idle_timeout

    @property
    def has_place(self) -> bool:
        """Whether its ledger takes one more session."""
        return self.load < self.limit and not self.spent

    @property
    def spent(self) -> bool:
        """Whether what an earlier session left behind could be met by another one."""
        return self.single_use and self.used

    def serves(self, now: float, idle_timeout: float) -> bool:
        """Whether it goes on, for such a session long enough. The newest deployment is the caller's to see to."""
        return self.state is ContainerState.READY and not self.close_asked and now < self.fits_until(idle_timeout)

    def takes(self, now: float, idle_timeout: float) -> bool:
        """Whether a start of this idle timeout could be placed here now."""
        return self.serves(now, idle_timeout) and self.has_place

    def saw(self, now: float, version: int, sessions: int) -> None:
        """A snapshot of its ledger arrived; an older one than we have is ignored."""
        self.used = self.used or version > 0
        if version >= self.version:
            self.version = version
            self.sessions = sessions
        self.note_empty(now)  # in any case: a letter that is old news may have settled the last grant

    def note_empty(self, now: float) -> None:
        """Start or stop the clock of scale-down, whichever the load says."""
        if self.load or self.state is not ContainerState.READY:
            self.empty_since = UNBOUNDED
        elif self.empty_since == UNBOUNDED:
            self.empty_since = now


def stop_cause(reason: EndReason, stopping: EndReason | None) -> StopCause:
    """Why one is asked to go whose sessions end for this reason. `stopping`: why all of its Server's are to go, if they are."""
    if reason is EndReason.CONTAINER_MAX_AGE:
        return StopCause.TOO_OLD
    if reason is EndReason.DEPLOYMENT_ENDED:
        return StopCause.REMOVED if stopping is reason else StopCause.REPLACED
    return StopCause.DAEMON_STOPS if stopping is reason else StopCause.ASKED

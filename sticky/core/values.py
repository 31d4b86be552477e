"""The nouns of the core: ids, limits, reasons. Frozen values without behaviour of their own; must not know any rule.

All times are float seconds. A point in time is on the monotonic clock that `now` comes from; durations are non-negative.
"""

from __future__ import annotations

from enum import Enum
from typing import NewType

import attrs

SessionId = NewType("SessionId", str)  #: "sd-" and 22 URL-safe characters (128 random bits)
ContainerId = NewType("ContainerId", str)  #: "ct-" and 22 URL-safe characters; never an address
DeploymentId = NewType("DeploymentId", str)  #: one version of a Server
ServerName = NewType("ServerName", str)  #: what an operator calls a Server
WaiterId = NewType("WaiterId", int)  #: one connection that waits for a start; unique in the daemon's life
TurnId = NewType("TurnId", int)  #: one request of a `serial` Server; unique in the daemon's life
Caller = NewType("Caller", str)  #: who limits count against: the proxy token's owner, or a client address

MAX_SESSIONS = 1000  #: cap and default of max_concurrency (seed 000, "Session concurrency and autoscaling")
UNBOUNDED = float("inf")


class EndReason(Enum):
    """Why a session ended. The value is what clients read in a 410 and in a WebSocket's close reason."""

    IDLE_TIMEOUT = "idle_timeout"  # nothing in flight for the session's idle timeout
    TERMINATED = "terminated"  # a client or an operator asked
    CONTAINER_LOST = "container_lost"  # its container died, was killed or was unhealthy; the detail says which
    CONTAINER_MAX_AGE = "container_max_age"  # its container reached its age limit
    DEPLOYMENT_ENDED = "deployment_ended"  # a new deployment with `recreate`, or the Server was removed
    SERVER_STOPPED = "server_stopped"  # the operator, or the daemon's own tidy stop
    UNKNOWN = "ended"  # a verified token whose session nobody remembers


class StopCause(Enum):
    """Why a container is asked to go. The value is a word for whoever tells an operator."""

    STARTUP_TIMEOUT = "startup_timeout"  # it was not ready in time
    SCALED_DOWN = "scaled_down"  # nobody needs it
    SPENT = "spent"  # it is there for one session, which has ended
    TOO_OLD = "too_old"  # its age limit is reached, or too near for another session
    REPLACED = "replaced"  # a newer deployment has taken its place
    REMOVED = "removed"  # its Server is no more
    ASKED = "asked"  # an operator wants it stopped
    DAEMON_STOPS = "daemon_stops"  # everything stops


class Placement(Enum):
    """How admission chooses among containers that can take a start."""

    SPREAD = "spread"  # fewest sessions, below target first, oldest on ties
    PACK = "pack"  # most sessions still below target


@attrs.frozen(kw_only=True)
class Policy:
    """The limits of one Server, as config.md names them. Validated by `sticky.config`; the core trusts them."""

    max_concurrency: int = MAX_SESSIONS  #: sessions a container may hold at once, 1..1000
    target_concurrency: int | None = None  #: sessions a container should hold; None: max_concurrency
    min_containers: int = 0
    max_containers: int = 8
    buffer_containers: int = 0  #: extra open containers while there is any demand
    max_total_containers: int | None = None  #: over all deployments; None: twice max_containers
    scaleup_window: float = 0.0
    scaledown_window: float = 60.0
    startup_timeout: float = 30.0
    exit_grace_period: float = 0.0
    container_max_age: float = 86_400.0
    idle_timeout: float = 600.0  #: for sessions that name none
    max_idle_timeout: float | None = None  #: None: half of container_max_age
    queue_timeout: float = 60.0
    max_queue: int = 1000
    max_queue_per_caller: int | None = None  #: None: max_queue
    max_sessions_per_caller: int = 10_000
    placement: Placement = Placement.SPREAD
    single_use: bool = False  #: a container that has had a session gets no other, and stops when that has ended
    serial: bool = False  #: one request at a time in each session
    session_wait_timeout: float = 60.0  #: how long a request waits for its turn
    max_session_waiters: int = 100  #: requests of one session that wait at most
    sessioned: bool = True  #: False: a plain Server; what is counted, limited and scaled by are requests in flight

    @property
    def target(self) -> int:
        """Sessions a container should hold."""
        return self.max_concurrency if self.target_concurrency is None else self.target_concurrency

    @property
    def total(self) -> int:
        """Containers that may exist at once, all deployments together."""
        return 2 * self.max_containers if self.max_total_containers is None else self.max_total_containers

    @property
    def queue_per_caller(self) -> int:
        """Starts of one caller that may wait."""
        return self.max_queue if self.max_queue_per_caller is None else self.max_queue_per_caller

    @property
    def longest_idle(self) -> float:
        """The longest idle timeout that a start may ask for, in seconds."""
        return self.container_max_age / 2 if self.max_idle_timeout is None else self.max_idle_timeout

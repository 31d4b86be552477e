"""A session's status that goes on: `status`, a `warning` before it ends for want of use or for age, then `ended`.

Must not know who asked, nor keep the session alive: looking is no use of it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from twisted.logger import Logger
from zope.interface import implementer

from sticky.control import bodies
from sticky.control.events import INTERVAL, QUIET, event
from sticky.errors import IllegalEvent, Refusal
from sticky.isticky import IEventStream, SessionStatus

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IReactorTime


WARNING: Final = 60.0  #: seconds before the end, where the client asks for no other number
SAME_END: Final = 0.01  #: seconds between two reckonings of one end, at most: they are sums of floats
SHARE: Final = 1 / 4  #: of the idle timeout: a shorter one would else be warned of from its beginning


class Phase(Enum):
    """How far the answer is."""

    HELD = "held"  # nobody has asked for events yet
    OPEN = "open"  # the session is looked at once a second
    OVER = "over"  # it ended and that was told, or the client left


# (phase, event) -> phase. Anything that is not listed is our own misuse.
TRANSITIONS: Final = {
    (Phase.HELD, "start"): Phase.OPEN,
    (Phase.HELD, "stop"): Phase.OVER,
    (Phase.OPEN, "end"): Phase.OVER,
    (Phase.OPEN, "stop"): Phase.OVER,
    (Phase.OVER, "stop"): Phase.OVER,  # the client left while the last event was on its way
}


@implementer(IEventStream)
class StatusEvents:
    """The answer to a status call that takes events.

    `look` gives the session as it stands and raises a `Refusal` once it is over. `warning`: seconds before its end (by the
    idle clock or by age) at which the client is told, once for each time that the end comes near; None: `WARNING`, or a
    share of a short idle timeout. A `status` event is written at once and when the state changes.
    """

    _log = Logger()

    def __init__(self, look: Callable[[], SessionStatus], clock: IReactorTime, warning: float | None) -> None:
        self._look = look
        self._clock = clock
        self._warning = warning
        self._phase = Phase.HELD
        self._write: Callable[[bytes], None] | None = None
        self._finish: Callable[[], None] | None = None
        self._tick: IDelayedCall | None = None
        self._state: str | None = None  # told last
        self._warned_of: dict[str, float] = {}  # the end of each kind that was warned of last, by the clock
        self._quiet_since = 0.0

    def start(self, write: object, finish: object) -> None:
        """See `IEventStream`."""
        self._enter("start")
        self._write = cast(Callable[[bytes], None], write)
        self._finish = cast(Callable[[], None], finish)
        self._tell()

    def stop(self) -> None:
        """See `IEventStream`."""
        self._enter("stop")

    def _enter(self, what: str) -> None:
        try:
            self._phase = TRANSITIONS[self._phase, what]
        except KeyError:
            raise IllegalEvent(f"{what} while {self._phase.value}")
        if self._phase is Phase.OVER and self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _tell(self) -> None:
        self._tick = None
        try:
            session = self._look()
        except Refusal as refusal:
            self._end(refusal)
            return
        except Exception:
            self._log.failure("A session's status could not be looked at.")
            self._end(Refusal())
            return
        if session.state != self._state:
            self._state = session.state
            self._send("status", bodies.status(session))
        near = self._near(session)
        if near is not None:
            reason, left = near
            ends_at = self._clock.seconds() + left
            # An end that has moved is another end: between two looks a client may have extended, or used, its session.
            if ends_at - self._warned_of.get(reason, 0.0) > SAME_END:
                self._warned_of[reason] = ends_at
                told = {"reason": reason, "ends_in": bodies.seconds(left)}
                self._send("warning", {**bodies.status(session), **told})
        if self._clock.seconds() - self._quiet_since >= QUIET:
            self._written(b": still there\n\n")
        self._tick = self._clock.callLater(self._next_look(session), self._tell)

    def _by_idle(self, session: SessionStatus) -> float:
        return self._warning or min(WARNING, session.idle_timeout * SHARE)

    def _next_look(self, session: SessionStatus) -> float:
        """In how many seconds: sooner where a warning is due before, since the end may come before the look after that."""
        ahead = [session.age_left - (self._warning or WARNING)]
        if session.idle_left is not None:
            ahead.append(session.idle_left - self._by_idle(session))
        return min([INTERVAL, *(max(left, SAME_END) for left in ahead if left > 0)])

    def _near(self, session: SessionStatus) -> tuple[str, float] | None:
        """The end that is near, if one is: what comes first, and in how many seconds."""
        by_idle = self._by_idle(session)
        if session.idle_left is not None and session.idle_left <= min(by_idle, session.age_left):
            return "idle_timeout", session.idle_left
        if session.age_left <= (self._warning or WARNING):
            return "container_max_age", session.age_left
        return None

    def _end(self, refusal: Refusal) -> None:
        self._enter("end")
        self._send("ended", bodies.failed(refusal))
        assert self._finish is not None
        self._finish()

    def _send(self, name: str, data: dict[str, object]) -> None:
        self._written(event(name, data))

    def _written(self, what: bytes) -> None:
        assert self._write is not None
        self._quiet_since = self._clock.seconds()
        self._write(what)

"""A start that tells its client how it stands: `queued` events, then one `started` or `failed`. Must not know who asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from zope.interface import implementer

from sticky.control import bodies
from sticky.control.events import INTERVAL, QUIET, event
from sticky.errors import IllegalEvent, Refusal
from sticky.isticky import Credentials, IEventStream, QueuePosition

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.python.failure import Failure


class Phase(Enum):
    """How far the answer is."""

    HELD = "held"  # nobody has asked for events yet
    OPEN = "open"  # events are written as things change
    OVER = "over"  # the last event is written, or the client left


# (phase, event) -> phase. Anything that is not listed is our own misuse.
TRANSITIONS: Final[Mapping[tuple[Phase, str], Phase]] = {
    (Phase.HELD, "start"): Phase.OPEN,
    (Phase.HELD, "decide"): Phase.HELD,  # kept, and told at the start
    (Phase.HELD, "stop"): Phase.OVER,
    (Phase.OPEN, "decide"): Phase.OVER,
    (Phase.OPEN, "stop"): Phase.OVER,
    (Phase.OVER, "decide"): Phase.OVER,  # the client left: the cancelled start reports
    (Phase.OVER, "stop"): Phase.OVER,  # it left while the last event was on its way
}


@implementer(IEventStream)
class QueueEvents:
    """The answer to a start that takes events.

    `waiting` is the start, in the queue already; `position` says where it stands. When the client leaves it is
    cancelled. A `queued` event is written at once and then when the position changes, at most one a second.
    """

    _log = Logger()

    def __init__(
        self,
        waiting: Deferred[Credentials],
        position: Callable[[Deferred[Credentials]], QueuePosition | None],
        clock: IReactorTime,
    ) -> None:
        self._waiting = waiting
        self._position = position
        self._clock = clock
        self._phase = Phase.HELD
        self._last_event: bytes | None = None  # kept from its decision to its writing
        self._write: Callable[[bytes], None] = _nowhere
        self._finish: Callable[[], None] = _no_end
        self._tick: IDelayedCall | None = None
        self._told: tuple[int, float] | None = None  # the position written last, and when anything was
        self._first: tuple[int, float] | None = None  # the position written first, and when: gives the pace
        waiting.addCallbacks(self._granted, self._refused).addErrback(self._untold)

    def start(self, write: object, finish: object) -> None:
        """See `IEventStream`."""
        self._enter("start")
        self._write = cast(Callable[[bytes], None], write)
        self._finish = cast(Callable[[], None], finish)
        if self._last_event is None:
            self._look()
        else:
            self._decide(self._last_event)

    def stop(self) -> None:
        """See `IEventStream`."""
        self._enter("stop")
        self._waiting.cancel()

    def _enter(self, event: str) -> Phase:
        try:
            self._phase = TRANSITIONS[self._phase, event]
        except KeyError:
            raise IllegalEvent(f"{event} while {self._phase.value}")
        if self._phase is Phase.OVER and self._tick is not None:
            self._tick.cancel()
            self._tick = None
        return self._phase

    def _granted(self, given: Credentials) -> None:
        self._decide(event("started", bodies.credentials(given)))

    def _refused(self, failure: Failure) -> None:
        if failure.check(CancelledError) is not None and self._phase is Phase.OVER:
            return
        refusal = failure.value
        if not isinstance(refusal, Refusal):
            self._log.failure("A start failed in a way that no client can be told.", failure)
            refusal = Refusal()
        self._decide(event("failed", bodies.failed(refusal)))

    def _untold(self, failure: Failure) -> None:
        self._log.failure("How a start was decided could not be told.", failure)

    def _decide(self, last_event: bytes) -> None:
        self._last_event = last_event
        was_open = self._phase is Phase.OPEN
        self._enter("decide")
        if was_open:
            self._last_event = None
            self._write(last_event)
            self._finish()

    def _look(self) -> None:
        self._tick = self._clock.callLater(INTERVAL, self._look)
        stands = self._position(self._waiting)
        if stands is None:
            return
        now = self._clock.seconds()
        if self._first is None:
            self._first = (stands.position, now)
        if self._told is None or self._told[0] != stands.position:
            self._told = (stands.position, now)
            self._write(event("queued", bodies.queued(stands, self._estimate(stands.position, now))))
        elif now - self._told[1] >= QUIET:
            self._told = (stands.position, now)
            self._write(b": still queued\n\n")

    def _estimate(self, position: int, now: float) -> float | None:
        """Seconds left at the pace seen so far; None until somebody ahead has left."""
        assert self._first is not None
        passed, elapsed = self._first[0] - position, now - self._first[1]
        return position * elapsed / passed if passed > 0 else None


def _nowhere(_: bytes) -> None:
    raise IllegalEvent("written before the start")


def _no_end() -> None:
    raise IllegalEvent("finished before the start")

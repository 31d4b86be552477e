"""What becomes of starts: taken in, placed on a container, refused. A base of `core.fleet.Fleet`.

The queue itself is `starts`, which container takes one is `admission`. Must not know ledgers, nor when time passes.
"""

from __future__ import annotations

from collections.abc import Callable

from sticky import errors
from sticky.core.admission import choose
from sticky.core.backoff import Backoff
from sticky.core.capacity import Capacity, Demand
from sticky.core.effects import Admit, Effect, GrantStart, LedgerRequest, RefuseStart
from sticky.core.events import LedgerAnswer, StartRequested
from sticky.core.mail import Mail
from sticky.core.names import Names
from sticky.core.records import Record
from sticky.core.starts import Start, StartQueue, StartState
from sticky.core.values import EndReason, Policy, SessionId


class StartCalls:
    """The rules about waiting starts, and what they ask of containers."""

    backoff: Backoff
    capacity: Capacity
    effects: list[Effect | Record]
    mail: list[LedgerRequest | LedgerAnswer]
    names: Names
    post: Mail
    starts: StartQueue
    stopping: EndReason | None
    _new_session: Callable[[], SessionId]
    _refused: bool

    @property
    def policy(self) -> Policy:
        """The newest deployment's limits."""
        raise AssertionError("the fleet's own")

    def _start_requested(self, now: float, event: StartRequested) -> None:
        if self.starts.waits(event.waiter):
            raise errors.IllegalEvent("this waiter waits already")
        try:
            self._accept(now, event)
        except errors.Refusal as refusal:
            self.effects.append(RefuseStart((event.waiter,), refusal))

    def _accept(self, now: float, event: StartRequested) -> None:
        idle_timeout = self.policy.idle_timeout if event.idle_timeout is None else event.idle_timeout
        if not 1 <= idle_timeout <= self.policy.longest_idle:
            raise self._bad_idle_timeout()
        if self.stopping is not None:
            raise errors.ShuttingDown(retry_after=5.0)
        bound = None if event.name is None else self.names.find(event.owner, event.name)
        if bound is not None:
            found = GrantStart((event.waiter,), bound.session, bound.container, bound.idle_timeout, created=False)
            self.effects.append(found)
            return
        start = self.starts.known(now, event, idle_timeout)
        if start is not None and start.state is StartState.ANSWERED:
            assert start.session is not None and start.container is not None
            grant = GrantStart((event.waiter,), start.session, start.container, idle_timeout, created=False)
            self.effects.append(grant)
        elif self._hopeless() and (start is None or start.state is not StartState.PLACED):
            self._refused = True
            raise self.backoff.failing(now)
        elif start is not None:
            self.starts.join(start, event.waiter)
        else:
            holds = self.post.held_by(event.caller) + self.starts.outstanding(event.caller)
            self.starts.add(now, event, idle_timeout, self.policy, holds)

    def _place(self, now: float) -> None:
        waiting = list(self.starts.waiting())
        queued = len(waiting)
        for start in waiting:
            if not self.capacity.has_room(now):
                return
            container = choose(now, start.idle_timeout, self.capacity.newest(), self.policy, queued)
            if container is None:
                continue  # no current container fits this one: it is passed over and blocks nobody
            queued -= 1
            session = self._new_session()
            self.starts.place(start, container.id, session)
            container.grants.add(session)
            container.used = True
            container.note_empty(now)
            self.mail.append(Admit(container.id, session, start.caller, start.idle_timeout, start.name))

    def _refuse(self, start: Start, error: errors.Refusal) -> None:
        self.effects.append(RefuseStart(tuple(sorted(start.waiters)), error))

    def _refuse_all(self, error: errors.Refusal) -> None:
        for start in list(self.starts.waiting()):
            self.starts.refuse(start)
            self._refuse(start, error)

    def _demand(self) -> Demand:
        waiting = [start.idle_timeout for start in self.starts.waiting()]
        return Demand(len(waiting) or int(self._refused), max(waiting, default=self.policy.idle_timeout))

    def _hopeless(self) -> bool:
        return self.backoff.hopeless and not self.capacity.any_ready()

    def _timed_out(self) -> errors.QueueTimedOut:
        failing = self.backoff.failures and not self.capacity.any_ready()
        return errors.QueueTimedOut(self.backoff.cause if failing else "", retry_after=1.0)

    def _give_up(self, now: float) -> None:
        """Refuse queued starts that waiting cannot help."""
        if self._hopeless():
            self._refused = self._refused or any(True for _ in self.starts.waiting())
            self._refuse_all(self.backoff.failing(now))
        # A deployment may have come since they were taken, whose containers do not live as long as they may be idle.
        # Each of them would call for one container after the other, and none would fit.
        age = self.policy.container_max_age
        for start in [start for start in self.starts.waiting() if start.idle_timeout >= age]:
            self.starts.refuse(start)
            self._refuse(start, self._bad_idle_timeout())

    def _bad_idle_timeout(self) -> errors.BadIdleTimeout:
        longest = self.policy.longest_idle
        return errors.BadIdleTimeout(f"The idle timeout must be a whole number of seconds from 1 to {longest:.0f}.")

"""How the Hypothesis machine drives a fleet: tells the books and the fleet the same, and audits after every step.

Time passes as a good timer would have it, from deadline to deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.effects import Admit, RefuseStart, RefuseTurn
from sticky.core.events import (
    Admitted,
    Closed,
    Event,
    SessionDraining,
    SessionLeft,
    StartAbandoned,
    StartRequested,
    TimePassed,
)
from sticky.core.fleet import Fleet, Ids
from sticky.core.values import Caller, ContainerId, EndReason, Policy, SessionId, WaiterId
from tests.core.audit import audit
from tests.core.books import Books
from tests.core.entries import Place


@attrs.define
class Numbers:
    """Ids that can be foretold, and carried to a twin by pickle."""

    jitter: float
    last: int = 0

    def session(self) -> SessionId:
        """The next session id."""
        self.last += 1
        return SessionId(f"sd-{self.last:06}")

    def container(self) -> ContainerId:
        """The next container id."""
        self.last += 1
        return ContainerId(f"ct-{self.last:06}")

    def uniform(self) -> float:
        """No randomness."""
        return self.jitter


class FleetDriver(RuleBasedStateMachine):
    """A fleet and its books. `prompt=False` leaves mail between admission and ledgers to be delivered."""

    prompt: ClassVar[bool] = True
    seen: ClassVar[Counter[str]] = Counter()

    def open_books(self, policy: Policy, jitter: float) -> None:
        """A new world."""
        self.waiters = 0
        self.strangers = 0  # sessions that another admitter placed
        self.told_of_draining: set[SessionId] = set()
        self.sound = True
        self.books = Books(policy, jitter, self.prompt)
        self.books.seen = type(self).seen
        self.fleet = self._new_fleet()
        self._step(TimePassed())

    def _new_fleet(self) -> Fleet:
        numbers = self.numbers = Numbers(self.books.jitter, getattr(self, "numbers", Numbers(0.0)).last)
        ids = Ids(numbers.session, numbers.container, numbers.uniform)
        return Fleet(self.books.policy, self.books.newest, ids, prompt=self.prompt)

    def _request(
        self, caller: str, idle_timeout: float | None, key: str | None, owned: bool, name: str | None = None
    ) -> StartRequested:
        self.waiters += 1
        owner = caller if owned else ""
        return StartRequested(WaiterId(self.waiters), Caller(caller), owner, idle_timeout, key, name)

    def _any_session(self, data: st.DataObject) -> SessionId:
        """Mostly one that lives, sometimes one that has ended."""
        live, all_of_them = sorted(self.books.granted & set(self.books.stays)), sorted(self.books.granted)
        return data.draw(st.sampled_from(live) | st.sampled_from(all_of_them) if live else st.sampled_from(all_of_them))

    def _in(self, *states: ContainerState) -> list[ContainerId]:
        return sorted(container for container, box in self.books.boxes.items() if box.state in states)

    def _held_by(self, caller: Caller) -> int:
        """Sessions of this caller of which admission has heard: mail under way is what makes the difference."""
        unheard = Counter(type(letter) for letter in self.fleet.mail if getattr(letter, "caller", None) == caller)
        live = sum(stay.caller == caller for stay in self.books.stays.values())
        return live - unheard[Admitted] + unheard[SessionLeft]

    def _refused(self, session: SessionId, refusal: errors.SessionEnded) -> None:
        """Invariant 5: refused means that it drains or is over, with that reason."""
        stay, home = self.books.stays.get(session), self.books.homes[session]
        if stay is not None:
            assert stay.drains is not None and refusal.code == stay.drains.value
        elif self.books.tombstone_stands(home):
            reason, detail = self.books.ended[session]
            assert (refusal.code, refusal.detail) == (reason.value, detail)
        else:
            here = home in self.books.boxes
            forgotten = EndReason.UNKNOWN if here else EndReason.CONTAINER_LOST
            assert refusal.code in (forgotten.value, self.books.ended[session][0].value)

    def _finish(self, session: SessionId) -> None:
        stay = self.books.stays[session]
        if not self.books.plain(session):
            self._give_back(session, self.books.lines[session][0])
            return
        core = stay.open.pop()
        if not stay.open:
            stay.last = self.books.now
        expected = self.fleet.wake_at
        follows = self.fleet.finish(self.books.now, stay.container, core)
        assert follows or (not self.fleet.effects and self.fleet.wake_at == expected), "whoever waits was not told"
        self._do(self.fleet.take)
        assert stay.drains is None or stay.open or session not in self.books.stays

    def _give_back(self, session: SessionId, place: Place) -> None:
        """A request that has, or waits for, a turn is over."""
        stay = self.books.stays[session]
        core = stay.open.pop()
        if not stay.open:
            stay.last = self.books.now
        self.books.forget(session, place)
        self.fleet.give_back(self.books.now, stay.container, core, place.id)
        self._do(self.fleet.take)

    def _leave(self, waiter: WaiterId) -> None:
        self.books.leave(waiter)
        self._do(lambda: self.fleet.step(self.books.now, StartAbandoned(waiter)))

    def _step(self, event: Event) -> None:
        self.books.event(event)
        self._do(lambda: self.fleet.step(self.books.now, event))

    def _do(self, call: Callable[[], list[Any]]) -> None:
        self.sound = False
        effects = call()
        mail = self.fleet.mail
        self.books.unheard = {letter.session for letter in mail if isinstance(letter, SessionLeft)}
        self._note_draining()
        overtaking = self._overtaking()
        self.books.enter(effects, {session: start.rank for session, start in self.fleet.starts.placed.items()})
        assert not overtaking
        self.books.cause = TimePassed()
        audit(self.books, self.fleet)
        self.sound = True

    def _note_draining(self) -> None:
        """Of which sessions admission has heard that they drain: letters that were under way and are not any more."""
        under_way = {letter.session for letter in self.fleet.mail if isinstance(letter, SessionDraining)}
        self.books.refusing |= self.told_of_draining - under_way
        self.told_of_draining |= under_way

    def _overtaking(self) -> list[Admit]:
        """Invariant 3 where mail is slow: decisions are the letters that are new in this step."""
        fleet, asked = self.fleet, self.books.placed
        return [
            letter
            for letter in fleet.mail
            if isinstance(letter, Admit) and letter.session not in asked and letter.session in fleet.starts.placed
            for other in fleet.starts.waiting()
            if other.rank < fleet.starts.placed[letter.session].rank
            and self.books.now < fleet.capacity.containers[letter.container].fits_until(other.idle_timeout)
        ]

    def _pass_until(self, then: float) -> None:
        """What a timer that is on time does."""
        for _ in range(1000):
            self.books.now = min(max(self.fleet.wake_at, self.books.now), max(then, self.books.now))
            self._step(TimePassed())
            if self.books.now >= then:
                return
        raise AssertionError("time stands still")

    def _deliver(self, index: int) -> None:
        letter = self.fleet.mail[index]
        refused = isinstance(letter, Closed) and letter.session is not None
        self.books.seen[f"{type(letter).__name__} delivered{' for a session' if refused else ''}"] += 1
        if isinstance(letter, SessionLeft) and letter.container in self.books.boxes:
            self.books.prove(self.books.boxes[letter.container])
        self._do(lambda: self.fleet.deliver(self.books.now, index))

    def _deliver_all(self) -> None:
        for _ in range(200):
            if not self.fleet.mail:
                return
            self._deliver(0)
        raise AssertionError("mail makes ever more mail")


def plain(effect: Any) -> Any:
    """An effect that can be compared: errors are equal only to themselves."""
    if isinstance(effect, RefuseTurn):
        return (effect.turn, str(effect.error))
    if isinstance(effect, RefuseStart):
        return (effect.waiters, type(effect.error), effect.error.retry_after, effect.error.message)
    return effect

"""What the books of the Hypothesis machine know of turns: the line of each session, and who is to be given or refused one."""

from __future__ import annotations

from collections import Counter

from sticky import errors
from sticky.core.effects import GiveTurn, RefuseTurn
from sticky.core.values import SessionId, TurnId
from tests.core.entries import Place
from tests.core.name_books import NameBooks


class TurnBooks(NameBooks):
    """The base of `tests.core.books.Books`."""

    now: float
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[SessionId, list[Place]] = {}

    def plain(self, session: SessionId) -> int:
        """Requests in flight that take no turn."""
        return len(self.stays[session].open) - len(self.lines.get(session, ()))

    def ask(self, session: SessionId, turn: TurnId, timeout: float) -> bool:
        """One more request; whether it must have the turn at once."""
        line = self.lines.setdefault(session, [])
        line.append(Place(turn, self.now + timeout, not line))
        return line[-1].held

    def forget(self, session: SessionId, place: Place) -> None:
        """It is over."""
        self.lines[session].remove(place)
        if not self.lines[session]:
            del self.lines[session]

    def end_line(self, session: SessionId) -> None:
        """The session is over: who had the turn is cut, who waited must be told."""
        for place in [place for place in self.lines.get(session, []) if place.held]:
            self.forget(session, place)

    def gave(self, effect: GiveTurn) -> None:
        """A turn was given: to the first who waited, after the one before."""
        (line,) = (line for line in self.lines.values() if any(place.id == effect.turn for place in line))
        assert line[0].id == effect.turn and not line[0].held, "a turn out of turn"
        line[0].held = True

    def refused_turn(self, effect: RefuseTurn) -> None:
        """A turn was refused: too late, or the session takes no requests any more."""
        session, place = self._find(effect.turn)
        stay = self.stays.get(session)
        assert not place.held, "refused although it has the turn"
        if isinstance(effect.error, errors.SessionBusy):
            assert place.deadline <= self.now, "refused early"
            self.seen["waited too long for a turn"] += 1
        else:
            assert isinstance(effect.error, errors.SessionEnded)
            reason, detail = self.why(session)
            assert (effect.error.code, effect.error.detail) == (reason.value, detail)
            self.seen["a waiter was refused by the end"] += 1
        self.forget(session, place)
        if stay is not None:
            stay.open.pop()
            if not stay.open:
                stay.last = self.now

    def _find(self, turn: TurnId) -> tuple[SessionId, Place]:
        return next((s, place) for s, line in self.lines.items() for place in line if place.id == turn)

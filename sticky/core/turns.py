"""One request at a time in each session: who has the turn and who waits for it, first come, first served. Knows no ledger.

Sessions never wait on each other. Of a session it is only looked at whether it still takes requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import heapify, heappop, heappush

import attrs

from sticky import errors
from sticky.core.session import Session, SessionState
from sticky.core.values import UNBOUNDED, ContainerId, SessionId, TurnId

RETRY_AFTER = 1.0  #: seconds; how long the one before will take is not known


class TurnState(Enum):
    """Where a request stands."""

    WAITING = "waiting"  # others are before it
    HELD = "held"  # it is the one that its session serves
    OVER = "over"  # served, refused, or its client left


class TurnInput(Enum):
    """What can move a turn."""

    GIVE = "give"  # the one before is done
    REFUSE = "refuse"  # it waited too long, or the session takes no requests any more
    LEAVE = "leave"  # it is done, or its client left
    END = "end"  # the session is over


TRANSITIONS: dict[tuple[TurnState, TurnInput], TurnState] = {
    (TurnState.WAITING, TurnInput.GIVE): TurnState.HELD,
    (TurnState.WAITING, TurnInput.REFUSE): TurnState.OVER,
    (TurnState.WAITING, TurnInput.LEAVE): TurnState.OVER,
    (TurnState.HELD, TurnInput.LEAVE): TurnState.OVER,
    (TurnState.HELD, TurnInput.END): TurnState.OVER,
}


@attrs.define(eq=False)
class Turn:
    """One request's place."""

    id: TurnId
    container: ContainerId
    session: Session
    deadline: float
    state: TurnState

    def move(self, what: TurnInput) -> None:
        """Take one row of the table. Raises `IllegalEvent`, having changed nothing, where there is none."""
        try:
            self.state = TRANSITIONS[self.state, what]
        except KeyError:
            raise errors.IllegalEvent(f"a turn that is {self.state.value} cannot {what.value}") from None


@attrs.define(eq=False)
class Line:
    """The turns of one session; the first of them is held."""

    session: Session
    turns: dict[TurnId, Turn] = attrs.field(factory=dict)


class Turns:
    """The turns of one Server's sessions."""

    def __init__(self) -> None:
        self._lines: dict[SessionId, Line] = {}
        self._turns: dict[TurnId, Turn] = {}
        self._heap: list[tuple[float, TurnId, Turn]] = []  # those that wait, and some that do not any more

    def check(self, session: SessionId, most: int) -> None:
        """Raises `SessionBusy` where `most` requests wait already."""
        line = self._lines.get(session)
        if line is not None and len(line.turns) > most:
            raise errors.SessionBusy("Too many requests wait for this session.", retry_after=RETRY_AFTER)

    def ask(self, now: float, container: ContainerId, session: Session, turn: TurnId, timeout: float) -> bool:
        """One more request, which is in flight already. True: it has the turn; else it waits, at most `timeout` seconds."""
        line = self._lines.setdefault(session.id, Line(session))
        held = not line.turns
        asked = Turn(turn, container, session, now + timeout, TurnState.HELD if held else TurnState.WAITING)
        line.turns[turn] = self._turns[turn] = asked
        if not held:
            heappush(self._heap, (asked.deadline, turn, asked))
        return held

    def knows(self, turn: TurnId) -> bool:
        """Whether it waits, or is the one that its session serves."""
        return turn in self._turns

    def leave(self, turn: TurnId) -> Turn | None:
        """It is done, or does not wait any more. Returns who has the turn now, if that has changed.

        A no-op for one that is over: its session may have ended in the same step.
        """
        left = self._turns.get(turn)
        if left is None:
            return None
        held = left.state is TurnState.HELD
        line = self._forget(left, TurnInput.LEAVE)
        if not held or not line.turns:
            return None
        following = next(iter(line.turns.values()))
        following.move(TurnInput.GIVE)
        return following

    def expire(self, now: float) -> list[Turn]:
        """Take out those that have waited too long."""
        late = []
        while self.next_deadline() <= now:
            turn = heappop(self._heap)[2]
            self._forget(turn, TurnInput.REFUSE)
            late.append(turn)
        return late

    def refused(self) -> list[Turn]:
        """Take out those that wait for a session that takes no requests any more, and forget whoever a session had when it ended."""
        waiting: list[Turn] = []
        for line in [line for line in self._lines.values() if line.session.state is not SessionState.ACTIVE]:
            for turn in list(line.turns.values()):
                if turn.state is TurnState.WAITING:
                    self._forget(turn, TurnInput.REFUSE)
                    waiting.append(turn)
                elif line.session.state is SessionState.ENDED:
                    self._forget(turn, TurnInput.END)
        return waiting

    def next_deadline(self) -> float:
        """When the next one has waited too long. Exact."""
        heap = self._heap
        while heap and heap[0][2].state is not TurnState.WAITING:
            heappop(heap)
        return heap[0][0] if heap else UNBOUNDED

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._turns.values())

    def _forget(self, turn: Turn, what: TurnInput) -> Line:
        turn.move(what)
        line = self._lines[turn.session.id]
        del self._turns[turn.id], line.turns[turn.id]
        if not line.turns:
            del self._lines[turn.session.id]
        if len(self._heap) > 2 * len(self._turns) + 64:  # who leaves long before the deadline must not stay until then
            self._heap = [entry for entry in self._heap if entry[2].state is TurnState.WAITING]
            heapify(self._heap)
        return line

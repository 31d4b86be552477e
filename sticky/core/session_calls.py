"""What can be asked of one session or one name besides requests: terminate, release, extend, look. The base of `core.fleet.Fleet`.

Must not know starts, containers or scaling; when time passes and what follows from a change is the fleet's.
"""

from __future__ import annotations

from sticky import errors
from sticky.core.effects import Effect, GiveTurn, RefuseTurn
from sticky.core.ledgers import Ledgers
from sticky.core.names import Names
from sticky.core.records import Record
from sticky.core.session import Session
from sticky.core.turns import RETRY_AFTER, Turn, Turns
from sticky.core.values import ContainerId, Policy, SessionId, TurnId


class SessionCalls:
    """The calls about one session."""

    effects: list[Effect | Record]
    ledgers: Ledgers
    names: Names
    turns: Turns
    wake_at: float

    @property
    def policy(self) -> Policy:
        """The newest deployment's limits."""
        raise AssertionError("the fleet's own")

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """Put a request in flight. Raises `SessionEnded` with the reason."""
        raise AssertionError("the fleet's own")

    def finish(self, now: float, container: ContainerId, session: Session) -> bool:
        """The request is over. A no-op when the session has ended meanwhile. Whether something may follow from it."""
        raise AssertionError("the fleet's own")

    def _catch_up(self, now: float) -> None:
        raise AssertionError("the fleet's own")

    def settle(self, now: float) -> None:
        """Apply what is due and do what has become possible, until nothing more is."""
        raise AssertionError("the fleet's own")

    # --- turns: requests of a `serial` Server, but for WebSockets

    def take_turn(self, now: float, container: ContainerId, session: SessionId, turn: TurnId) -> tuple[Session, bool]:
        """Put a request in flight; whether it has the turn, or waits for `GiveTurn` or `RefuseTurn`.

        Raises `SessionEnded`, and `SessionBusy` where too many wait.
        """
        self._catch_up(now)
        self.turns.check(session, self.policy.max_session_waiters)
        found = self.begin(now, container, session)
        held = self.turns.ask(now, container, found, turn, self.policy.session_wait_timeout)
        self.wake_at = min(self.wake_at, self.turns.next_deadline())
        return found, held

    def give_back(self, now: float, container: ContainerId, session: Session, turn: TurnId) -> None:
        """A request that had its turn, or still waited for it, is over. A no-op for one that was refused."""
        self._catch_up(now)
        if not self.turns.knows(turn):
            return
        following = self.turns.leave(turn)
        self.finish(now, container, session)
        if following is not None:
            self.effects.append(GiveTurn(following.id))

    def _move_turns(self, now: float) -> bool:
        """Refuse who waits in vain. Whether anything has changed."""
        late, refused = self.turns.expire(now), self.turns.refused()
        for turn in late:
            self._refuse_turn(now, turn, errors.SessionBusy(retry_after=RETRY_AFTER))
        for turn in refused:
            why = self.ledgers.ending(turn.container, turn.session)
            self._refuse_turn(now, turn, why)
        return bool(late or refused)

    def _refuse_turn(self, now: float, turn: Turn, error: errors.Refusal) -> None:
        self.effects.append(RefuseTurn(turn.id, error))
        self.ledgers.finish(now, turn.container, turn.session)

    # --- one session, one name

    def terminate(self, now: float, container: ContainerId, session: SessionId, grace: float | None) -> None:
        """End a session: nothing new, what is in flight completes, at most `grace` seconds. Raises `UnknownSession`."""
        self._catch_up(now)
        self.ledgers.terminate(now, container, session, grace)
        self.settle(now)

    def release(self, now: float, owner: str, name: str, grace: float | None) -> None:
        """Forget a name, so that its next use starts afresh; a session that it stands for is terminated.

        Raises `UnknownName`. A start that is under way is newer than the release and keeps the name.
        """
        self._catch_up(now)
        released, bound = self.names.release(owner, name)
        self.names.add(released)
        self.effects.append(released)
        if bound is not None:
            try:
                self.ledgers.terminate(now, bound.container, bound.session, grace)
            except errors.UnknownSession:
                pass  # it has ended, and its letter is under way
        self.settle(now)

    def disown(self, session: SessionId) -> None:
        """Nobody was ever given this session: its name is as if it had not been used. A no-op for one without a name."""
        bound = self.names.live.get(session)
        if bound is not None:
            released, _ = self.names.release(bound.owner, bound.name)
            self.names.add(released)
            self.effects.append(released)

    def extend(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """Restart a session's idle clock. Raises `SessionEnded`."""
        self._catch_up(now)
        return self.ledgers.extend(now, container, session)

    def look(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """The session as it is. Raises `SessionEnded`; touches nothing."""
        self._catch_up(now)
        return self.ledgers.look(container, session)

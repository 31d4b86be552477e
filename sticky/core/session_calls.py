"""What can be asked of one session or one name besides requests: terminate, release, extend, look. The base of `core.fleet.Fleet`.

Must not know starts, containers or scaling; when time passes and what follows from a change is the fleet's.
"""

from __future__ import annotations

from sticky import errors
from sticky.core.effects import Effect
from sticky.core.ledgers import Ledgers
from sticky.core.names import Names
from sticky.core.records import Record
from sticky.core.session import Session
from sticky.core.values import ContainerId, SessionId


class SessionCalls:
    """The calls about one session."""

    effects: list[Effect | Record]
    ledgers: Ledgers
    names: Names

    def _catch_up(self, now: float) -> None:
        raise AssertionError("the fleet's own")

    def settle(self, now: float) -> None:
        """Apply what is due and do what has become possible, until nothing more is."""
        raise AssertionError("the fleet's own")

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

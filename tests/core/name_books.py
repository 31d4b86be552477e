"""What the books of the Hypothesis machine know of names: whose session each stands for, and why one is refused."""

from __future__ import annotations

from sticky import errors
from sticky.core.events import Event, StartRequested, TimePassed
from sticky.core.values import EndReason, SessionId
from tests.core.entries import Bound, Stay


class NameBooks:
    """The base of `tests.core.books.Books`."""

    prompt: bool

    def __init__(self) -> None:
        self.cause: Event = TimePassed()
        self.stays: dict[SessionId, Stay] = {}
        self.ended: dict[SessionId, tuple[EndReason, str | None]] = {}
        self.unheard: set[SessionId] = set()  #: ended sessions of which admission has not heard (slow mail only)
        self.names: dict[tuple[str, str], Bound] = {}  #: whatever became of the session, until released
        self.refusing: set[SessionId] = set()  #: of which admission has heard that they drain (slow mail only)

    def name_expired(self, named: tuple[str, str]) -> bool:
        """Whether admission knows that the session of this name takes no requests any more."""
        session = self.names[named].session
        stay = self.stays.get(session)
        if session in self.refusing:
            return True
        if stay is None:
            return session not in self.unheard
        return self.prompt and stay.drains is not None

    def why(self, session: SessionId) -> tuple[EndReason, str | None]:
        """Why this session ended, or is going to."""
        stay = self.stays.get(session)
        if stay is None:
            return self.ended[session]
        assert stay.drains is not None
        return stay.drains, None

    def told_why(self, error: errors.SessionExpired) -> None:
        """Whoever used the name of an ended session must have been told this."""
        named = (self.cause.owner, self.cause.name or "") if isinstance(self.cause, StartRequested) else ("", "")
        reason, detail = self.why(self.names[named].session)
        assert error.reason == reason.value and error.detail in (detail, None)

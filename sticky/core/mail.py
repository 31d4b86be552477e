"""The mail between admission and the ledgers: letters under way, and what each changes where it arrives. Knows no deadline.

Admission never touches a ledger: it asks (`Admit`, `Close`) and hears (`Admitted`, `Full`, `Closed`, `HasSessions`,
`SessionLeft`, `SessionDraining`). Letters may arrive late and out of order, as they will when a ledger lives on another machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sticky.core.capacity import Capacity
from sticky.core.container import Container
from sticky.core.effects import Admit, Close, Effect, GrantStart, LedgerRequest
from sticky.core.events import Admitted, Closed, Full, HasSessions, LedgerAnswer, SessionDraining, SessionLeft
from sticky.core.ledgers import Ledgers
from sticky.core.names import Names
from sticky.core.records import KeyBound, NameBound, Record
from sticky.core.starts import StartQueue
from sticky.core.values import Caller


class Mail:
    """Takes letters to whom they are for. `letters` are those under way, oldest first."""

    def __init__(
        self,
        starts: StartQueue,
        capacity: Capacity,
        emit: Callable[[Effect | Record], None],
    ) -> None:
        self.letters: list[LedgerRequest | LedgerAnswer] = []
        self.ledgers = Ledgers(self.letters.append, emit)
        self.names = Names()
        self._starts = starts
        self._capacity = capacity
        self._emit = emit
        self._held_by = Counter[Caller]()

    def held_by(self, caller: Caller) -> int:
        """Sessions of this caller, as far as admission has heard."""
        return self._held_by[caller]

    def count(self, caller: Caller, change: int) -> None:
        """This caller has so many sessions more, or less."""
        self._held_by[caller] += change
        if not self._held_by[caller]:
            del self._held_by[caller]

    def hand_over(self, now: float, index: int = 0) -> Container | None:
        """Deliver one letter. Returns a container whose ledger has closed, as was asked: it can be stopped."""
        letter = self.letters.pop(index)
        match letter:
            case Admit():
                self.ledgers.admit(now, letter)
            case Close():
                self.ledgers.close(letter.container)
            case Admitted():
                self._heard(now, letter)
                self._grant(now, letter)
            case Full():
                self._heard(now, letter)
                self._starts.bounced(now, letter.session)
            case Closed() if letter.session is not None:
                self._heard(now, letter)
                self._starts.bounced(now, letter.session)
            case Closed():
                container = self._heard(now, letter)
                if container is not None and container.close_asked:
                    return container
            case HasSessions():
                container = self._heard(now, letter)
                if container is not None:
                    container.close_asked = False
            case SessionLeft():
                container = self._heard(now, letter)
                if container is not None:
                    self._capacity.prove(container)  # what is lost with its container is never heard of here
                self.count(letter.caller, -1)
                self._starts.session_left(letter.session)
                expired = self.names.leave(letter.session, letter.reason, letter.detail)
                if expired is not None:
                    self.names.add(expired)
                    self._emit(expired)
            case SessionDraining():
                # Not where it has left already: nobody would ever take that back. Until that is heard its name stands for it.
                if letter.session in self.names.live or self.ledgers.tombstones.get(letter.session) is None:
                    self.names.drain(letter.session, letter.reason)
        return None

    def _grant(self, now: float, letter: Admitted) -> None:
        self.count(letter.caller, 1)
        start = self._starts.admitted(now, letter.session)
        if start is None:
            return  # its container was lost or began to stop meanwhile: the start is back at its rank
        if start.name is not None:
            if self.ledgers.tombstones.get(letter.session) is None:
                bound = NameBound(start.owner, start.name, letter.session, letter.container, start.idle_timeout)
                self.names.add(bound)
                self._emit(bound)
        elif start.key is not None:
            if self.ledgers.tombstones.get(letter.session) is not None:
                self._starts.session_left(letter.session)  # it ended before we heard of its beginning
            else:
                expires_at = self._starts.keys[start.owner, start.key].expires_at
                self._emit(
                    KeyBound(
                        start.owner,
                        start.key,
                        start.caller,
                        letter.session,
                        letter.container,
                        start.idle_timeout,
                        expires_at,
                    )
                )
        # Last: whoever answers a grant has every record that it rests on before it.
        waiters = tuple(sorted(start.waiters))
        self._emit(GrantStart(waiters, letter.session, letter.container, start.idle_timeout, created=True))

    def _heard(self, now: float, letter: Admitted | Full | Closed | HasSessions | SessionLeft) -> Container | None:
        container = self._capacity.containers.get(letter.container)
        if container is None:
            return None
        if isinstance(letter, Admitted | Full) or (isinstance(letter, Closed) and letter.session is not None):
            container.grants.discard(letter.session)
        container.saw(now, letter.version, letter.sessions)
        return container

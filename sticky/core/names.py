"""Sessions by the names that clients gave them, and the names whose sessions are over. Knows no ledger, no queue, no clock.

A name belongs to its owner. It stands for one session; when that has ended the name stays known, so that nobody gets a fresh
session in the belief that it is the old one, until the name is released.
"""

from __future__ import annotations

import attrs

from sticky import errors
from sticky.core.records import NameBound, NameExpired, NameReleased
from sticky.core.values import EndReason, SessionId

#: Names of ended sessions that are remembered for each owner. Beyond them the oldest is forgotten, so that an owner who never
#: releases a name takes neither the memory of the daemon nor the names of others.
EXPIRED_PER_OWNER = 10_000


@attrs.define
class Names:
    """The names of one Server. Each method takes or gives a record, so that a journal's fold is this very class."""

    live: dict[SessionId, NameBound] = attrs.field(factory=dict)
    expired: dict[str, dict[str, NameExpired]] = attrs.field(factory=dict)  #: by owner and name, oldest first
    kept: int = attrs.field(default=EXPIRED_PER_OWNER, eq=False)
    _sessions: dict[tuple[str, str], SessionId] = attrs.field(factory=dict, eq=False)
    _drains: dict[SessionId, EndReason] = attrs.field(factory=dict, eq=False)

    def find(self, owner: str, name: str) -> NameBound | None:
        """What the name stands for; None for one that was never seen, or was released.

        Raises `SessionExpired` where its session is over or takes no requests any more.
        """
        gone = self.expired.get(owner, {}).get(name)
        if gone is not None:
            raise errors.SessionExpired(gone.reason.value, gone.detail)
        session = self._sessions.get((owner, name))
        if session is None:
            return None
        drains = self._drains.get(session)
        if drains is not None:
            raise errors.SessionExpired(drains.value)
        return self.live[session]

    def standing(self, owner: str, name: str) -> NameBound | None:
        """The session that the name stands for, whether it still takes requests or not; None where that is over, or never was."""
        session = self._sessions.get((owner, name))
        return None if session is None else self.live[session]

    # --- what the journal tells

    def add(self, record: NameBound | NameExpired | NameReleased) -> None:
        """One more record."""
        match record:
            case NameBound():
                self.live[record.session] = record
                self._sessions[record.owner, record.name] = record.session
            case NameExpired():
                self._unbind(record.owner, record.name)
                names = self.expired.setdefault(record.owner, {})
                names[record.name] = record
                if len(names) > self.kept:
                    del names[next(iter(names))]
            case NameReleased():
                self._unbind(record.owner, record.name)
                names = self.expired.get(record.owner, {})
                names.pop(record.name, None)
                if not names:
                    self.expired.pop(record.owner, None)

    def _unbind(self, owner: str, name: str) -> None:
        session = self._sessions.pop((owner, name), None)
        if session is not None:
            del self.live[session]

    def copy(self) -> Names:
        """The same names in an object of their own; who drains is left out, as a restart leaves it out."""
        same = Names(kept=self.kept)
        for names in self.expired.values():
            for gone in names.values():
                same.add(gone)
        for bound in self.live.values():
            same.add(bound)
        return same

    # --- what admission hears

    def drain(self, session: SessionId, reason: EndReason) -> None:
        """This session takes no requests any more. It may be told before the name is bound, never after `leave`."""
        self._drains.setdefault(session, reason)

    def leave(self, session: SessionId, reason: EndReason, detail: str | None) -> NameExpired | None:
        """This session has ended. Returns the record to be added, where it had a name that still stands for it."""
        self._drains.pop(session, None)
        bound = self.live.get(session)
        return None if bound is None else NameExpired(bound.owner, bound.name, reason, detail)

    def release(self, owner: str, name: str) -> tuple[NameReleased, NameBound | None]:
        """The record that frees the name, and the session that it stood for until then. Raises `UnknownName`."""
        session = self._sessions.get((owner, name))
        if session is None and name not in self.expired.get(owner, {}):
            raise errors.UnknownName
        return NameReleased(owner, name), None if session is None else self.live[session]

"""Puts records into the journal in batches, off the reactor's thread, and says when they are there. Knows no SQL.

One batch is under way at a time and takes everything that came meanwhile, so that a busy moment costs one commit. A commit is
always a prefix of the order of events. When the disk fails, nothing is queued up: once it works again, the journal is written
anew from what lives then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.core.memory import Memory
from sticky.core.values import ContainerId, ServerName
from sticky.journal.store import Entry, Store

RETRY = 1.0  #: seconds between two attempts while the disk fails
LOG_EVERY = 60.0  #: seconds between two log lines about that
STUCK_AFTER = 30.0  #: seconds that a write may be under way before nothing new is promised: the disk hangs

#: What lives now: memories and places by Server.
Picture = tuple[Mapping[ServerName, Memory], Mapping[ServerName, Mapping[ContainerId, Mapping[str, Any]]]]


class Journal(Protocol):
    """Where records go."""

    @property
    def works(self) -> bool:
        """False while nothing can be made durable: nothing new should be promised then."""

    def write(self, entry: Entry) -> None:
        """Take one more entry; it is durable when `settled` fires."""

    def settled(self) -> Deferred[None]:
        """Fires when everything written so far is durable. Fails with `errors.StorageFailed` (retry)."""


class NoJournal:
    """Nothing survives, and nothing is waited for: for daemons that live as long as their containers."""

    works = True

    def write(self, entry: Entry) -> None:
        """Forget it."""

    def settled(self) -> Deferred[None]:
        """At once."""
        return succeed(None)


class _State(Enum):
    QUIET = "quiet"  # nothing to write
    DUE = "due"  # something came in this turn of the reactor; it is written at its end
    WRITING = "writing"  # a batch is under way
    BROKEN = "broken"  # the disk failed; everything is written anew when it works again
    CLOSED = "closed"  # no more


#: What may come after each.
_NEXT = {
    _State.QUIET: {_State.DUE, _State.BROKEN, _State.CLOSED},  # broken from the start where it can only be read
    _State.DUE: {_State.WRITING},
    _State.WRITING: {_State.WRITING, _State.QUIET, _State.BROKEN, _State.CLOSED},
    _State.BROKEN: {_State.WRITING, _State.CLOSED},
    _State.CLOSED: {_State.CLOSED},  # by whoever closes it once more
}


class JournalWriter:
    """See `Journal`. `run(function, *arguments)` runs it in the one thread of the journal and returns a Deferred."""

    log = Logger()

    def __init__(
        self,
        store: Store,
        clock: Any,
        run: Callable[..., Deferred[Any]],
        picture: Callable[[], Picture],
    ) -> None:
        self._store = store
        self._clock = clock
        self._run = run
        self._picture = picture
        self._state = _State.QUIET
        self._pending: list[Entry] = []
        self._waiting: list[Deferred[None]] = []  # for the entries that are pending
        self._closing: list[Deferred[None]] = []
        self._call: IDelayedCall | None = None  # what ends a state in which nothing is under way
        self._logged_at = -LOG_EVERY
        self._writing_since = 0.0
        self.whole = True  #: whether everything that was taken is in the file, but for what is pending
        self._unseen = False  # whether the file is in place is to be looked at when what is under way is done
        self._anew = False  # what is pending or under way is not worth anything: all that lives is to be written next
        if not store.writable:
            self._break("its file system can only be read")

    @property
    def works(self) -> bool:
        """See `Journal`."""
        if self._state is _State.WRITING and self._clock.seconds() - self._writing_since >= STUCK_AFTER:
            self._complain(f"a write has been under way for {STUCK_AFTER:.0f} seconds")
            return False
        return self._state is not _State.BROKEN

    def write(self, entry: Entry) -> None:
        """See `Journal`."""
        if self._state in (_State.BROKEN, _State.CLOSED):
            return
        self._pending.append(entry)
        self._come_due()

    def settled(self) -> Deferred[None]:
        """See `Journal`."""
        if self._state in (_State.BROKEN, _State.CLOSED):
            return fail(errors.StorageFailed(retry_after=RETRY))  # what `write` was given is nowhere
        if self._state is _State.QUIET:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def write_anew(self) -> None:
        """Put what lives in place of everything that was ever written: that was of another boot, or its file is gone.

        Not within this turn: it may have decided more than it has told of yet, and what it tells is not to come after a picture
        that has it already.
        """
        if self._state in (_State.BROKEN, _State.CLOSED):
            return  # it will be, or nobody needs it
        self._anew = True
        self._come_due()

    def see_to_file(self) -> None:
        """Write everything anew if the file is not where the next daemon will look for it."""
        if self._state is _State.WRITING:
            self._unseen = True  # the thread is at it, and a disk that hangs is not to hang whoever looks
        elif not self._store.in_place():
            self.write_anew()

    def close(self) -> Deferred[None]:
        """Write what is pending, then close the file. Fires when that is done, or the disk failed."""
        done: Deferred[None] = Deferred()
        self._closing.append(done)
        if self._state is _State.DUE:
            self._begin()
        elif self._state is not _State.WRITING:
            self._finish()
        return done

    # --- batches

    def _come_due(self) -> None:
        if self._state is _State.QUIET:
            self._enter(_State.DUE)
            self._call = self._clock.callLater(0, self._begin)

    def _enter(self, state: _State) -> None:
        assert state in _NEXT[self._state], (self._state, state)
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
        self._state = state

    def _begin(self) -> None:
        if self._anew:
            self._mend()
            return
        self._begin_writing()
        batch, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        writing = self._run(self._store.write, batch)
        writing.addCallbacks(self._written, self._failed, callbackArgs=(waiting,), errbackArgs=(waiting,))

    def _begin_writing(self) -> None:
        self._enter(_State.WRITING)
        self._writing_since = self._clock.seconds()

    def _written(self, too_long: str | None, waiting: list[Deferred[None]]) -> None:
        if too_long is not None:
            self.log.warn(
                "the journal {path} could not be shortened, and grows: {reason}",
                path=str(self._store.path),
                reason=too_long,
            )
        if self._unseen:
            self._unseen = False
            self._anew = self._anew or not self._store.in_place()
        if self._anew:
            self._waiting = [*waiting, *self._waiting]
            self._mend()
            return
        if self._pending or self._waiting:
            self._begin()
        elif self._closing:
            self._finish()
        else:
            self._enter(_State.QUIET)
        for one in waiting:
            one.callback(None)

    def _failed(self, failure: Failure, waiting: list[Deferred[None]]) -> None:
        if failure.check(sqlite3.Error, OSError) is None:
            self.log.failure("the journal failed in a way that the disk does not explain", failure)
        waiting += self._waiting
        self._break(failure.getErrorMessage())
        for one in waiting:
            one.errback(errors.StorageFailed(retry_after=RETRY))

    # --- while the disk fails

    def _break(self, reason: str) -> None:
        self._complain(reason)
        self._enter(_State.BROKEN)
        self.whole = False
        self._anew = False
        self._pending, self._waiting = [], []
        if self._closing:
            self._finish()
        else:
            self._call = self._clock.callLater(RETRY, self._mend)

    def _mend(self) -> None:
        """Write everything anew, from what lives at this moment; entries from now on come after it."""
        was_broken = self._state is _State.BROKEN
        self._begin_writing()
        try:
            memories, places = self._picture()
        except Exception:
            self._failed(Failure(), [])  # and is tried again: a writer that waits for itself would be worse
            return
        self._anew = False
        self._pending = []  # the picture has it
        waiting, self._waiting = self._waiting, []
        mending = self._run(self._store.rewrite, memories, places)
        mending.addCallback(self._mended, was_broken)
        mending.addCallbacks(self._written, self._failed, callbackArgs=(waiting,), errbackArgs=(waiting,))

    def _mended(self, wrong: str | None, was_broken: bool) -> None:
        self.whole = True
        if wrong is not None:
            self.log.error(
                "the journal was damaged while it was open, and is written anew, whole: {wrong}", wrong=wrong
            )
        if was_broken:
            self._logged_at = -LOG_EVERY
            self.log.info("the journal is whole again")

    def _complain(self, reason: str) -> None:
        now = self._clock.seconds()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            self.log.error(
                "cannot write the journal {path}: {reason}; starts are refused until it works again, sessions go on",
                path=str(self._store.path),
                reason=reason,
            )

    def _finish(self) -> None:
        self._enter(_State.CLOSED)
        closing, self._closing = self._closing, []

        def closed(_: object) -> None:
            for one in closing:
                one.callback(None)

        self._run(self._store.close).addBoth(closed)

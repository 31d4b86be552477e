"""The journal as part of a daemon: the state directory's lock, the store, its thread. Opened at start, closed last."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from sticky import errors
from sticky.core.memory import Memory
from sticky.core.values import ContainerId, ServerName
from sticky.errors import ConfigError
from sticky.journal.file import Damaged
from sticky.journal.lock import StateLock
from sticky.journal.places import spawned_by
from sticky.journal.store import Entry, Store, open_store, this_boot
from sticky.journal.thread import JournalThread
from sticky.journal.writer import JournalWriter, NoJournal, Picture
from sticky.startup import CANNOT_START, give_up

LOOK_EVERY = 1.0  #: seconds at least between two looks whether the state directory is where it was, and the file in it
LOOK_ANYWAY = 10.0  #: seconds between two looks while nothing happens
OPEN_EVERY = 1.0  #: seconds between two attempts to open it again
NOT_WHOLE = "The journal cannot be written just now: another daemon would not know what has happened since it could."


@attrs.frozen
class Found:
    """What an earlier daemon left for one Server."""

    memory: Memory
    places: Mapping[ContainerId, Mapping[str, Any]]
    same_boot: bool  #: False: the machine was restarted, so no container and no point in time is worth anything


class JournalService:
    """A `Journal` that is open between `open` and `close`."""

    log = Logger()

    def __init__(self, state_dir: Path, reactor: Any, picture: Callable[[], Picture]) -> None:
        """`picture` gives what lives now, should the journal have to be written anew."""
        self._path = state_dir / "journal.db"
        self._lock = StateLock(state_dir)
        self._reactor = reactor
        self._picture = picture
        self._thread: JournalThread | None = None
        self._writer: JournalWriter | None = None
        self._of_another_boot = False
        self._there = True
        self._looked_at = -LOOK_EVERY
        self._rests = False  # another daemon is about to take over, or this one has closed it
        self._inherits = False  # an earlier daemon is still there, and knows what lives
        self._next: IDelayedCall | None = None  # the next look, or the next attempt to open it again
        #: (backend's name, its options) of every container that was noted, of whatever Server; known once it is open
        self.spawned_by: Sequence[tuple[str, Mapping[str, object]]] = ()

    def claim(self) -> None:
        """Take the state directory. If another daemon has it, the process ends with one line, status 1."""
        _claim(self._lock)

    # --- when another daemon takes over, or this one does

    @property
    def lock(self) -> int:
        """The descriptor of the state directory's lock."""
        return self._lock.held

    def inherit(self, lock: int) -> None:
        """In place of `claim`: an earlier daemon has given us its lock."""
        self._lock.inherit(lock)
        self._inherits = True

    def take_over(self) -> None:
        """The earlier daemon decides nothing any more."""
        self._lock.take_over()

    async def rest(self) -> None:
        """Write what is pending and close the file, but keep the state directory. What is written from now on is nowhere.

        Raises `errors.StorageFailed` if that cannot be written: whoever took over would not know of it. Waits for a write that is
        under way, however long the disk takes; one that hangs is known by `works` beforehand.
        """
        self._rests = True
        self._cancel()
        await self._opened.close()
        self._end_thread()
        if not self._opened.whole:
            raise errors.StorageFailed(NOT_WHOLE, retry_after=OPEN_EVERY)

    def wake(self) -> None:
        """Nobody has taken over: write anew what lives, whatever is in the file.

        Until the file can be opened it does not work; that is tried again every `OPEN_EVERY` seconds, up to `close`.
        """
        self._lock.take_over()
        try:
            store, wrong = open_store(self._path, this_boot(), read=False)
        except (sqlite3.Error, OSError) as error:
            self.log.error("cannot open the journal {path} again: {reason}", path=str(self._path), reason=str(error))
            self._next = self._reactor.callLater(OPEN_EVERY, self.wake)
            return
        if wrong is not None:
            self.log.error("the journal was damaged meanwhile, and is written anew, whole: {wrong}", wrong=wrong)
        self._begin(store)
        self._rests = False
        self._opened.write_anew()

    def let_go(self) -> None:
        """The other daemon has the state directory."""
        self._lock.release()

    def open(self) -> Callable[[ServerName], Found]:
        """Read what is there, once it is claimed. If it cannot be read at all, the process ends as above.

        So it does for a damaged one that an earlier daemon has just closed: that goes on then, and writes it anew, whole.
        """
        try:
            store, lost = (
                (Store(self._path, this_boot()), None) if self._inherits else open_store(self._path, this_boot())
            )
        except Damaged as damage:
            give_up(f"{damage}; the daemon that goes on writes the journal anew: restart it once more", CANNOT_START)
        except (sqlite3.Error, OSError) as error:
            give_up(f"cannot open the journal {self._path}: {error}", CANNOT_START)
        if lost is not None:
            self.log.error("the journal was damaged: sessions of earlier containers are lost; {lost}", lost=lost)
        self._lock.take_over()
        memories, places, same_boot = dict(store.memories), dict(store.places), store.same_boot
        self._of_another_boot = not same_boot
        self.spawned_by = [spawned_by(place) for here in places.values() for place in here.values()]
        self._begin(store)

        def found(server: ServerName) -> Found:
            return Found(memories.get(server, Memory()), places.get(server, {}), same_boot)

        return found

    def taken_up(self) -> None:
        """Everything that was found has been taken up. What was of another boot must not be found once more."""
        if self._of_another_boot:
            self._opened.write_anew()

    def _begin(self, store: Store) -> None:
        self._writer = JournalWriter(store, self._reactor, self._in_thread, self._picture)
        self._next = self._reactor.callLater(LOOK_ANYWAY, self._look_anyway)

    @property
    def works(self) -> bool:
        """See `Journal`."""
        if self._rests:
            return False
        self._look()
        return self._there and self._opened.works

    def write(self, entry: Entry) -> None:
        """See `Journal`."""
        self._opened.write(entry)
        if not self._rests:
            self._look()

    def _look(self) -> None:
        """Whether the state directory is where it was, and the file in it, unless that was looked at a moment ago.

        Somebody else's directory in its place is not to be written to, nor beside it.
        """
        now = self._reactor.seconds()
        if now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        before, self._there = self._there, self._lock.is_there()
        if before and not self._there:
            self.log.error(
                "the state directory {path} was moved or replaced: starts are refused until it is back, or the daemon is "
                "restarted",
                path=str(self._path.parent),
            )
        elif self._there and not before:
            self.log.info("the state directory is back")
        if self._there:
            self._opened.see_to_file()

    def _look_anyway(self) -> None:
        self._next = self._reactor.callLater(LOOK_ANYWAY, self._look_anyway)
        self._look()

    def _cancel(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def settled(self) -> Deferred[None]:
        """See `Journal`."""
        return fail(errors.StorageFailed(retry_after=OPEN_EVERY)) if self._rests else self._opened.settled()

    async def close(self) -> None:
        """Write what is pending, end the thread, give the state directory back. Waits as `rest` does, and retries nothing.

        Whoever waits no longer may cancel it: the thread ends when what is under way does, and the state directory is given
        back by the end of the process, which waits for that.
        """
        self._cancel()
        try:
            if self._writer is not None:
                await self._writer.close()
        except BaseException:
            if self._thread is not None:
                self._thread.leave()
            raise
        self._rests = True
        self._end_thread()
        self._lock.release()

    @property
    def _opened(self) -> JournalWriter:
        assert self._writer is not None, "the journal is not open"
        return self._writer

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        if self._thread is None:
            # Not before it is needed: a thread that is there keeps alive a process that gives up while it starts.
            self._thread = JournalThread(self._reactor)
        return self._thread.run(function, *arguments)

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()


class NoJournalService(NoJournal):
    """For daemons that live as long as their containers: the state directory is held, and nothing is kept."""

    def __init__(self, state_dir: Path) -> None:
        self._lock = StateLock(state_dir)
        self.spawned_by: Sequence[tuple[str, Mapping[str, object]]] = ()

    def claim(self) -> None:
        """As `JournalService.claim`."""
        _claim(self._lock)

    def open(self) -> Callable[[ServerName], Found]:
        """As `JournalService.open`, but there is never anything to find."""
        return lambda server: Found(Memory(), {}, True)

    def taken_up(self) -> None:
        """Nothing was found."""

    async def close(self) -> None:
        """Give the state directory back."""
        self._lock.release()


def _claim(lock: StateLock) -> None:
    try:
        lock.acquire()
    except ConfigError as error:
        give_up(str(error), CANNOT_START)

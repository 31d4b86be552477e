"""The journal as part of a daemon that another one is to replace: what cannot be written must not be handed over."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.memory import Memory
from sticky.core.records import DeploymentMade
from sticky.core.values import DeploymentId, ServerName
from sticky.journal import service as room
from sticky.journal.service import LOOK_ANYWAY, LOOK_EVERY, OPEN_EVERY, JournalService
from sticky.journal.store import open_store

ONE = ServerName("one")


class RestTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.clock = Clock()
        self.lives = Memory(DeploymentId("dp-1"))
        self.journal = JournalService(self.folder, self.clock, lambda: ({ONE: self.lives}, {}))

        def run(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            return maybeDeferred(function, *arguments)

        self.patch(self.journal, "_in_thread", run)
        self.journal.claim()
        self.journal.open()
        self.addCleanup(lambda: self.successResultOf(Deferred.fromCoroutine(self.journal.close())))

    def found(self) -> dict[ServerName, Memory]:
        """By whoever takes over."""
        store, lost = open_store(self.folder / "journal.db", "another boot")
        self.assertIsNone(lost)
        store.close()
        return store.memories

    def rest(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.journal.rest())

    def read_only(self, on: int) -> None:
        store: Any = self.journal._opened._store
        store._db.execute(f"PRAGMA query_only = {on}")

    def test_one_that_takes_over_from_a_daemon_that_is_there_leaves_a_damaged_one_to_that(self) -> None:
        """It knows what lives, and goes on; whoever came without it would lose all sessions."""
        path = self.folder / "journal.db"
        self.successResultOf(self.rest())
        path.write_bytes(b"nothing of the kind" * 300)
        said: list[str] = []

        def end(problem: str, status: int) -> None:
            said.append(problem)
            raise SystemExit(status)

        self.patch(room, "give_up", end)
        other = JournalService(self.folder, self.clock, lambda: ({}, {}))
        other.inherit(os.dup(self.journal.lock))
        self.assertRaises(SystemExit, other.open)
        self.assertIn("the daemon that goes on writes the journal anew", said[0])
        self.assertEqual([found.name for found in self.folder.glob("*.damaged-*")], [])
        other.let_go()
        self.journal.wake()
        self.clock.advance(0)
        self.assertTrue(self.journal.works)
        self.successResultOf(self.rest())
        self.assertEqual(self.found(), {ONE: self.lives})
        self.assertEqual(len(list(self.folder.glob("*.damaged-*"))), 1)

    def test_whoever_waits_no_longer_for_its_end_leaves_the_thread_to_end_by_itself(self) -> None:
        """A disk that hangs: the state directory is not given back before what is under way is over."""
        left: list[str] = []
        hangs: Deferred[None] = Deferred()
        self.patch(self.journal, "_thread", SimpleNamespace(leave=lambda: left.append("the thread"), stop=lambda: None))
        patched = self.patch(self.journal._opened, "close", lambda: hangs)
        closing = Deferred.fromCoroutine(self.journal.close())
        closing.cancel()
        self.failureResultOf(closing, CancelledError)
        self.assertEqual(left, ["the thread"])
        self.assertTrue(self.journal.lock >= 0)
        patched.restore()

    def test_what_is_pending_is_written_before_another_one_takes_over(self) -> None:
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.successResultOf(self.rest())
        self.assertEqual(self.found(), {ONE: self.lives})
        self.assertFalse(self.journal.works)
        self.failureResultOf(self.journal.settled(), errors.StorageFailed)

    def test_what_cannot_be_written_keeps_this_one_in_charge_which_writes_it_when_it_can(self) -> None:
        self.read_only(1)
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.failureResultOf(self.rest(), errors.StorageFailed)
        self.assertEqual(self.found(), {})
        self.journal.wake()
        self.assertTrue(self.journal.works)
        self.clock.advance(0)
        self.assertEqual(self.found(), {ONE: self.lives})

    def test_what_could_not_be_written_a_moment_ago_counts_until_it_is(self) -> None:
        self.read_only(1)
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.clock.advance(0)
        self.assertFalse(self.journal.works)
        self.read_only(0)
        self.clock.advance(1)
        self.assertTrue(self.journal.works)
        self.successResultOf(self.rest())
        self.assertEqual(self.found(), {ONE: self.lives})

    def test_one_that_wakes_before_the_file_can_be_opened_tries_again(self) -> None:
        self.successResultOf(self.rest())
        tries: list[int] = []

        def fails(*_: object, **__: object) -> None:
            tries.append(1)
            raise sqlite3.OperationalError("unable to open database file")

        broken = self.patch(room, "open_store", fails)
        self.patch(self.journal, "log", Quiet())
        self.journal.wake()
        self.clock.advance(OPEN_EVERY)
        self.assertEqual((len(tries), self.journal.works), (2, False))
        broken.restore()
        self.clock.advance(OPEN_EVERY)
        self.clock.advance(0)
        self.assertTrue(self.journal.works)
        self.assertEqual(self.found(), {ONE: self.lives})

    def test_one_that_wakes_to_a_damaged_file_says_so(self) -> None:
        self.successResultOf(self.rest())
        (self.folder / "journal.db").write_bytes(b"nonsense" * 1000)
        log = Quiet()
        self.patch(self.journal, "log", log)
        self.journal.wake()
        self.clock.advance(0)
        self.assertEqual(self.found(), {ONE: self.lives})
        [(text, more)] = log.told
        self.assertIn("damaged", text)
        self.assertIn("journal.db.damaged-1", str(more["wrong"]))

    def test_one_that_is_closed_while_it_cannot_be_opened_does_not_try_again(self) -> None:
        self.successResultOf(self.rest())

        def fails(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("unable to open database file")

        self.patch(room, "open_store", fails)
        self.patch(self.journal, "log", Quiet())
        self.journal.wake()
        self.successResultOf(Deferred.fromCoroutine(self.journal.close()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def remove(self) -> None:
        """As whoever tidies up does."""
        for name in ("journal.db", "journal.db-wal"):
            (self.folder / name).unlink()

    def test_a_file_that_was_removed_is_noticed_by_what_is_written(self) -> None:
        """Idle ends come by themselves: no start, no terminate."""
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.clock.advance(LOOK_EVERY)
        self.remove()
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.clock.advance(0)
        self.assertEqual(self.found(), {ONE: self.lives})

    def test_a_file_that_was_removed_is_noticed_while_nothing_happens(self) -> None:
        self.remove()
        self.clock.advance(LOOK_ANYWAY)
        self.clock.advance(0)
        self.assertEqual(self.found(), {ONE: self.lives})
        self.remove()
        self.clock.advance(LOOK_ANYWAY)
        self.clock.advance(0)
        self.assertEqual(self.found(), {ONE: self.lives})

    def test_what_comes_after_the_end_is_no_reason_to_look(self) -> None:
        """The lock is given back: it would seem to be gone."""
        log = Quiet()
        self.patch(self.journal, "log", log)
        self.successResultOf(Deferred.fromCoroutine(self.journal.close()))
        self.clock.advance(LOOK_EVERY)
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.assertFalse(self.journal.works)
        self.failureResultOf(self.journal.settled(), errors.StorageFailed)
        self.assertEqual(log.told, [])

    def test_one_that_rests_looks_for_nothing(self) -> None:
        self.successResultOf(self.rest())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.folder.rename(self.folder.with_name("elsewhere"))
        self.clock.advance(LOOK_EVERY)
        self.journal.write((ONE, DeploymentMade(DeploymentId("dp-1"))))
        self.assertFalse(self.journal.works)


class Quiet:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def error(self, text: str, **more: object) -> None:
        """See Logger."""
        self.told.append((text, more))

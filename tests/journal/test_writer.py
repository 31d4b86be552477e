"""Batches, order, and what happens while the disk fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.memory import Memory
from sticky.core.records import DeploymentMade, SessionDrains
from sticky.core.values import ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.journal.store import Entry, Store, Unfoldable
from sticky.journal.writer import _NEXT, RETRY, JournalWriter, Picture, _State

ONE = ServerName("one")


def entry(number: int) -> Entry:
    return (ONE, DeploymentMade(DeploymentId(f"dp-{number}")))


class FakeStore:
    """Notes batches; a test says when each is done, or that it failed."""

    path = Path("/nonexistent/journal.db")
    writable = True

    def __init__(self) -> None:
        self.batches: list[list[Entry]] = []
        self.pictures: list[Any] = []
        self.closed = False
        self.there = True
        self.calls: list[Deferred[str | None]] = []

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        function(*arguments)
        self.calls.append(Deferred())
        return self.calls[-1]

    def write(self, batch: list[Entry]) -> None:
        self.batches.append(list(batch))

    def in_place(self) -> bool:
        return self.there

    def rewrite(self, memories: Any, places: Any) -> None:
        self.pictures.append((memories, places))

    def close(self) -> None:
        self.closed = True

    def done(self, outcome: str | None = None) -> None:
        self.calls.pop(0).callback(outcome)

    def fails(self) -> None:
        self.calls.pop(0).errback(sqlite3.OperationalError("database or disk is full"))


class Silent:
    """A log that nobody reads."""

    def error(self, text: str, **more: object) -> None:
        """See Logger."""

    info = warn = error


class WriterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.store = FakeStore()
        self.memory = Memory(DeploymentId("dp-live"))
        picture: Picture = ({ONE: self.memory}, {ONE: {}})
        self.writer = JournalWriter(self.store, self.clock, self.store.run, lambda: picture)  # type: ignore[arg-type]

    def test_what_comes_in_one_turn_is_one_batch_in_order(self) -> None:
        for number in range(3):
            self.writer.write(entry(number))
        self.assertEqual(self.store.batches, [])
        settled = self.writer.settled()
        self.clock.advance(0)
        self.assertEqual(self.store.batches, [[entry(0), entry(1), entry(2)]])
        self.assertNoResult(settled)
        self.store.done()
        self.successResultOf(settled)

    def test_what_comes_while_a_batch_is_under_way_is_the_next_one(self) -> None:
        self.writer.write(entry(0))
        first = self.writer.settled()
        self.clock.advance(0)
        self.writer.write(entry(1))
        self.writer.write(entry(2))
        second = self.writer.settled()
        self.store.done()
        self.successResultOf(first)
        self.assertNoResult(second)
        self.assertEqual(self.store.batches[1], [entry(1), entry(2)])
        self.store.done()
        self.successResultOf(second)

    def test_asking_while_a_batch_is_under_way_waits_for_it_even_with_nothing_new(self) -> None:
        self.writer.write(entry(0))
        self.clock.advance(0)
        settled = self.writer.settled()
        self.assertNoResult(settled)
        self.store.done()
        while self.store.calls:
            self.store.done()
        self.successResultOf(settled)

    def test_with_nothing_to_write_it_is_settled(self) -> None:
        self.successResultOf(self.writer.settled())

    def test_a_failing_disk_refuses_and_everything_is_written_anew_when_it_works_again(self) -> None:
        self.writer.write(entry(0))
        first = self.writer.settled()
        self.clock.advance(0)
        self.writer.write(entry(1))
        second = self.writer.settled()
        self.store.fails()
        for refused in (first, second, self.writer.settled()):
            self.assertEqual(self.failureResultOf(refused, errors.StorageFailed).value.status, 503)
        self.assertFalse(self.writer.works)
        self.writer.write(entry(2))  # told by the picture later
        self.clock.advance(1)
        self.assertEqual(self.store.pictures, [({ONE: self.memory}, {ONE: {}})])
        self.store.fails()
        self.assertFalse(self.writer.works)
        self.clock.advance(1)
        self.writer.write(entry(3))
        settled = self.writer.settled()
        self.store.done()
        self.assertEqual(self.store.batches, [[entry(0)], [entry(3)]])
        self.store.done()
        self.successResultOf(settled)
        self.assertTrue(self.writer.works)

    def test_the_operator_is_told_once_a_minute(self) -> None:
        said = self.complaints()
        self.writer.write(entry(0))
        self.clock.advance(0)
        for _ in range(100):
            self.store.fails()
            self.clock.advance(1)
        self.assertEqual(said, ["database or disk is full"] * 2)

    def test_a_journal_that_cannot_be_shortened_works(self) -> None:
        said = self.complaints()
        self.writer.write(entry(0))
        settled = self.writer.settled()
        self.clock.advance(0)
        self.store.done("database or disk is full")
        self.successResultOf(settled)
        self.assertTrue(self.writer.works)
        self.assertEqual((said, self.store.pictures), (["database or disk is full"], []))

    def test_close_writes_what_is_pending_first(self) -> None:
        self.writer.write(entry(0))
        closed = self.writer.close()
        self.assertEqual(self.store.batches, [[entry(0)]])
        self.assertFalse(self.store.closed)
        self.store.done()
        self.assertTrue(self.store.closed)
        self.store.done()
        self.successResultOf(closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_is_settled_that_came_after_the_end(self) -> None:
        self.successResultOf(self.writer.settled())
        self.writer.close()
        self.writer.write(entry(0))
        self.failureResultOf(self.writer.settled(), errors.StorageFailed)
        self.assertEqual(self.store.batches, [])

    def test_it_is_closed_once_more_by_whoever_does_not_know(self) -> None:
        for _ in range(2):
            closed = self.writer.close()
            self.assertNoResult(closed)
            self.store.done()
            self.successResultOf(closed)

    def test_whatever_happens_is_in_the_table_of_states_and_all_of_the_table_happens(self) -> None:
        chance, seen = Random(7), set()
        for _ in range(300):
            clock, store = Clock(), FakeStore()
            store.writable = chance.random() < 0.8
            self.patch(JournalWriter, "log", Silent())
            writer = JournalWriter(store, clock, store.run, lambda: ({}, {}))  # type: ignore[arg-type]
            if not store.writable:
                seen.add((_State.QUIET, _State.BROKEN))
            enter = writer._enter

            def noted(state: _State, writer: JournalWriter = writer, enter: Any = enter) -> None:
                seen.add((writer._state, state))
                enter(state)

            self.patch(writer, "_enter", noted)
            for _ in range(15):
                match chance.choice(("write", "settled", "anew", "turn", "second", "done", "fails", "close")):
                    case "write":
                        writer.write(entry(0))
                    case "settled":
                        writer.settled().addErrback(lambda failure: None)
                    case "anew":
                        writer.write_anew()
                    case "turn":
                        clock.advance(0)
                    case "second":
                        clock.advance(RETRY)
                    case "done" if store.calls:
                        store.done()
                    case "fails" if store.calls and not store.closed:
                        store.fails()
                    case "close" if chance.random() < 0.5:
                        writer.close()
        self.assertEqual(seen, {(before, after) for before, following in _NEXT.items() for after in following})

    def test_close_while_the_disk_fails_does_not_wait_for_it(self) -> None:
        self.writer.write(entry(0))
        self.clock.advance(0)
        closed = self.writer.close()
        self.store.fails()
        self.store.done()
        self.successResultOf(closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_file_that_is_gone_is_written_anew_and_what_was_under_way_waits_for_that(self) -> None:
        self.writer.see_to_file()
        self.assertEqual(self.store.pictures, [])
        self.writer.write(entry(0))
        self.clock.advance(0)
        under_way = self.writer.settled()
        self.store.there = False
        self.writer.see_to_file()
        self.assertEqual(self.store.pictures, [], "one at a time")
        self.store.done()
        self.assertEqual(len(self.store.pictures), 1)
        self.assertNoResult(under_way)
        self.writer.write(entry(1))
        self.store.there = True
        self.writer.see_to_file()
        self.store.done()
        self.successResultOf(under_way)
        self.assertEqual((self.store.batches, len(self.store.pictures)), ([[entry(0)], [entry(1)]], 1))

    def test_what_is_written_anew_is_what_lives_when_the_turn_is_over(self) -> None:
        """Records that a turn has yet to tell of are in a picture of it: after that they would be of what is gone already."""
        self.writer.write(entry(0))
        self.store.there = False
        self.writer.see_to_file()
        self.writer.write(entry(1))
        settled = self.writer.settled()
        self.assertEqual(self.store.pictures, [])
        self.clock.advance(0)
        self.writer.write(entry(2))
        self.assertEqual((self.store.batches, len(self.store.pictures)), ([], 1))
        self.store.done()
        self.successResultOf(settled)
        self.assertEqual((self.store.batches, len(self.store.pictures)), ([[entry(2)]], 1))

    def test_a_fault_of_whoever_knows_what_lives_is_told_and_asked_again(self) -> None:
        faults = iter([KeyError("ours")])

        def faulty() -> Picture:
            for fault in faults:
                raise fault
            return {ONE: self.memory}, {ONE: {}}

        self.writer._picture = faulty
        self.writer.write_anew()
        settled = self.writer.settled()
        self.clock.advance(0)
        self.failureResultOf(settled, errors.StorageFailed)
        self.assertFalse(self.writer.works)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.clock.advance(RETRY)
        self.store.done()
        self.assertTrue(self.writer.works)

    def test_while_a_write_hangs_nothing_new_is_promised(self) -> None:
        said = self.complaints()
        self.writer.write(entry(0))
        self.clock.advance(0)
        self.clock.advance(29)
        self.assertTrue(self.writer.works)
        self.clock.advance(1)
        self.assertFalse(self.writer.works)
        self.assertFalse(self.writer.works)
        self.assertEqual(said, ["a write has been under way for 30 seconds"])
        waits = self.writer.settled()
        self.store.done()
        self.store.done()
        self.successResultOf(waits)
        self.assertTrue(self.writer.works)

    def test_a_disk_that_can_only_be_read(self) -> None:
        """With the real file: SQLite says so of a file system that was mounted anew for want of a whole disk."""
        store = Store(Path(self.mktemp()), "boot-1")
        self.addCleanup(store.close)

        def run(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            return maybeDeferred(function, *arguments)

        writer = JournalWriter(store, self.clock, run, lambda: ({ONE: self.memory}, {}))
        said = self.complaints(writer)
        store._db.execute("PRAGMA query_only = 1")
        writer.write(entry(0))
        refused = writer.settled()
        self.clock.advance(0)
        self.assertEqual(self.failureResultOf(refused, errors.StorageFailed).value.status, 503)
        self.assertFalse(writer.works)
        self.assertIn("readonly", said[0])
        store._db.execute("PRAGMA query_only = 0")
        self.clock.advance(1)
        self.assertTrue(writer.works)
        self.assertEqual(store.memories, {ONE: self.memory})

    def test_what_cannot_be_folded_is_told_with_a_traceback_and_all_that_lives_is_written_anew(self) -> None:
        path = Path(self.mktemp())
        store = Store(path, "boot-1")
        self.addCleanup(store.close)

        def run(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            return maybeDeferred(function, *arguments)

        writer = JournalWriter(store, self.clock, run, lambda: ({ONE: self.memory}, {}))
        writer.write(entry(0))
        writer.write((ONE, SessionDrains(SessionId("sd-9"), ContainerId("ct-9"), EndReason.TERMINATED)))
        refused = writer.settled()
        self.clock.advance(0)
        self.failureResultOf(refused, errors.StorageFailed)
        [told] = self.flushLoggedErrors(Unfoldable)
        self.assertIn("_fold", told.getTraceback())
        self.clock.advance(RETRY)
        self.assertTrue(writer.works and writer.whole)
        self.assertEqual(store.memories, {ONE: self.memory})
        again = Store(path, "boot-1")
        self.addCleanup(again.close)
        self.assertEqual(again.memories, {ONE: self.memory})

    def test_one_that_can_only_be_read_at_first_is_written_anew_as_soon_as_it_can(self) -> None:
        self.store.writable = False
        writer = JournalWriter(self.store, self.clock, self.store.run, lambda: ({ONE: self.memory}, {ONE: {}}))  # type: ignore[arg-type]
        self.assertFalse(writer.works or writer.whole)
        writer.write(entry(0))
        self.failureResultOf(writer.settled(), errors.StorageFailed)
        self.clock.advance(RETRY)
        self.store.fails()
        self.assertFalse(writer.works)
        self.clock.advance(RETRY)
        self.store.done()
        self.assertTrue(writer.works and writer.whole)
        self.assertEqual((self.store.batches, self.store.pictures), ([], [({ONE: self.memory}, {ONE: {}})] * 2))

    def complaints(self, writer: JournalWriter | None = None) -> list[str]:
        said: list[str] = []

        class Log:
            def error(self, text: str, **more: str) -> None:
                said.append(more["reason"])

            warn = error

            def info(self, text: str, **more: str) -> None:
                pass

        self.patch(self.writer if writer is None else writer, "log", Log())
        return said

"""What the journal's file holds: what is written is found again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from zlib import crc32

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated, ContainerMoved, NameExpired, SessionCreated, SessionDrains
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId
from sticky.journal import store as room
from sticky.journal.file import Damaged
from sticky.journal.store import Entry, Placed, Store, Unfoldable, Unplaced
from tests.journal.store_case import CONTAINER, ONE, TWO, StoreCase
from tests.journal.test_codec import a_memory


class StoreTests(StoreCase):
    def test_what_was_written_is_found_by_the_next_one(self) -> None:
        store = self.open()
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        store.write([(ONE, created), (ONE, Placed(CONTAINER, {"found_by": {"pid": 7}, "address": None}))])
        store.write([(TWO, created)])
        again = self.open()
        self.assertEqual(again.memories, {ONE: Memory.of([created]), TWO: Memory.of([created])})
        self.assertEqual(again.places, {ONE: {CONTAINER: {"found_by": {"pid": 7}, "address": None}}})
        again.write([(ONE, Unplaced(CONTAINER))])
        self.assertEqual(self.open().places.get(ONE, {}), {})

    def test_a_batch_is_written_whole_or_not_at_all(self) -> None:
        store = self.open()
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        with self.assertRaises(KeyError):
            store.write([(ONE, created), (ONE, object())])  # type: ignore[list-item]
        self.assertEqual(self.open().memories, {})
        store.write([(ONE, created)])
        self.assertEqual(self.open().memories, {ONE: Memory.of([created])})

    def test_what_no_later_daemon_could_fold_is_not_written_and_nothing_of_it_is_remembered(self) -> None:
        store = self.open()
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        store.write([(ONE, created), (ONE, Placed(CONTAINER, {"found_by": 1}))])
        nowhere, nobody = ContainerId("ct-9"), SessionId("sd-9")
        for wrong in (
            ContainerMoved(nowhere, ContainerState.READY, EndReason.CONTAINER_LOST),
            ContainerMoved(nowhere, ContainerState.GONE, EndReason.CONTAINER_LOST),
            SessionDrains(nobody, CONTAINER, EndReason.TERMINATED),
        ):
            stay = SessionCreated(SessionId("sd-1"), CONTAINER, Caller("ann"), 5.0, 1.0)
            batch: list[Entry] = [(ONE, stay), (TWO, created), (ONE, Unplaced(CONTAINER)), (ONE, wrong)]
            self.assertIn("-9", str(self.assertRaises(Unfoldable, store.write, batch)))
            again = self.open()
            self.assertEqual(again.memories, {ONE: Memory.of([created])})
            self.assertEqual(again.places, {ONE: {CONTAINER: {"found_by": 1}}})
            store.write([])
            self.assertEqual((store.memories, store.places), (again.memories, again.places))

    def test_what_a_commit_that_failed_told_of_is_not_remembered(self) -> None:
        """Or a log that is shortened later would tell of it."""
        self.patch(room, "SHORTEN_ABOVE", 5)
        store = self.open()
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        self.refuse(store, "COMMIT")
        self.assertRaises(sqlite3.Error, store.write, [(ONE, created)])
        store._db.set_authorizer(None)
        for _ in range(10):
            store.write([(TWO, created)])
        self.assertEqual(self.open().memories, {TWO: Memory.of([created])})

    def refuse(self, store: Store, word: str) -> None:
        """Whatever does that with this fails."""

        def authorize(_: int, *arguments: str | None) -> int:
            return sqlite3.SQLITE_DENY if word in arguments else sqlite3.SQLITE_OK

        store._db.set_authorizer(authorize)

    def test_another_boot_is_noticed(self) -> None:
        self.assertTrue(self.open("boot-1").same_boot)
        self.assertTrue(self.open("boot-1").same_boot)
        later = self.open("boot-2")
        self.assertFalse(later.same_boot)
        later.rewrite({}, {})
        self.assertTrue(self.open("boot-2").same_boot)

    def test_a_long_log_is_shortened_to_what_it_amounts_to(self) -> None:
        self.patch(room, "SHORTEN_ABOVE", 50)
        store = self.open()
        store.write([(ONE, ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0))])
        session = SessionId("sd-1")
        for _ in range(40):
            stay = SessionCreated(session, CONTAINER, Caller("ann"), 5.0, 1.0)
            store.write([(ONE, stay), (ONE, EndSession(session, CONTAINER, EndReason.TERMINATED, None, 9.0))])
        again = self.open()
        self.assertEqual(again.memories, store.memories)
        self.assertEqual(len(again.memories[ONE].ended), 1)
        self.assertLess(self.rows(), 53)

    def test_a_log_that_cannot_be_shortened_is_not_written_anew_each_time(self) -> None:
        """Names of ended sessions are remembered until they are released, in any number of owners."""
        self.patch(room, "SHORTEN_ABOVE", 50)
        store = self.open()
        rewrites, rewrite = [], store._rewrite

        def counted(*what: Any) -> None:
            rewrites.append(what)
            rewrite(*what)

        self.patch(store, "_rewrite", counted)
        for number in range(200):
            store.write([(ONE, NameExpired(f"owner-{number}", "a", EndReason.TERMINATED, None))])
        self.assertEqual(len(rewrites), 2)  # after 51 rows, and after 153
        again = self.open()
        self.assertEqual(again.memories, store.memories)
        again.write([])
        self.assertEqual(len(again.memories[ONE].names.expired), 200)

    def test_one_that_cannot_be_shortened_just_now_is_written_all_the_same_and_shortened_later(self) -> None:
        self.patch(room, "SHORTEN_ABOVE", 50)
        store = self.open()
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        self.refuse(store, "meta")  # which only a log that is written anew touches
        told = [store.write([(ONE, created)]) for _ in range(120)]
        self.assertEqual([number for number, wrong in enumerate(told, 1) if wrong is not None], [51, 102])
        self.assertIn("not authorized", str(told[50]))
        again = self.open()
        self.assertEqual((again.memories, self.rows()), (store.memories, 120))
        store._db.set_authorizer(None)
        for _ in range(33):
            self.assertIsNone(store.write([(ONE, created)]))
        self.assertEqual((self.open().memories, self.rows()), (store.memories, 1))

    def test_one_that_is_found_damaged_when_it_is_shortened_is_not_written_on(self) -> None:
        """What is appended to it would be found by nobody."""
        self.patch(room, "SHORTEN_ABOVE", 0)
        store = self.open()

        def damaged(*_: object) -> None:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

        self.patch(store, "_rewrite", damaged)
        self.assertRaises(
            sqlite3.DatabaseError, store.write, [(ONE, NameExpired("a", "b", EndReason.TERMINATED, None))]
        )

    def test_what_has_ended_does_not_make_a_log_long(self) -> None:
        self.patch(room, "SHORTEN_ABOVE", 50)
        store = self.open()
        store.write([(ONE, ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0))])
        for number in range(1000):
            session = SessionId(f"sd-{number}")
            stay = SessionCreated(session, CONTAINER, Caller("ann"), 5.0, 1.0)
            store.write([(ONE, stay), (ONE, EndSession(session, CONTAINER, EndReason.TERMINATED, None, 9.0))])
            store = self.open() if number % 100 == 0 else store
        again = self.open()
        self.assertEqual(again.memories, store.memories)
        self.assertEqual(len(again.memories[ONE].ended), 1000)
        self.assertLessEqual(self.rows(), 60)

    def rows(self) -> int:
        """In the log, as others see it."""
        with closing(sqlite3.connect(self.path)) as db:
            return int(db.execute("SELECT count(*) FROM log").fetchone()[0])

    def test_one_of_schema_1_is_read_and_no_earlier_version_reads_it_once_something_was_written(self) -> None:
        self.open().write([])
        self.close()
        lines = [
            '{"kind":"ContainerCreated","container":"ct-1","deployment":"dp-1","born":1.0,"max_age":null}',
            '{"kind":"SessionCreated","session":"sd-1","container":"ct-1","caller":"ann","idle_timeout":30.0,"created_at":2.5}',
            '{"kind":"EndSession","session":"sd-0","container":"","reason":"idle_timeout","detail":null,"forget_at":9.0}',
        ]
        with closing(sqlite3.connect(self.path)) as db:
            for number, line in enumerate(lines, 1):
                row = (number, ONE, line, crc32(f"{ONE}\0{line}".encode()))
                db.execute("INSERT INTO log VALUES (?, ?, ?, ?)", row)
            db.execute("PRAGMA user_version = 1")
            db.commit()
        told = Memory.of(
            [
                ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, float("inf")),
                SessionCreated(SessionId("sd-1"), CONTAINER, Caller("ann"), 30.0, 2.5),
                EndSession(SessionId("sd-0"), ContainerId(""), EndReason.IDLE_TIMEOUT, None, 9.0),
            ]
        )
        store = self.open()
        self.assertEqual(store.memories, {ONE: told})
        ends = (ONE, EndSession(SessionId("sd-1"), CONTAINER, EndReason.TERMINATED, None, 9.0))
        self.assertEqual(self.schema(), 1)
        self.refuse(store, "user_version")
        self.assertRaises(sqlite3.Error, store.write, [ends])
        self.refuse(store, "COMMIT")
        self.assertRaises(sqlite3.Error, store.write, [ends])
        store._db.set_authorizer(None)
        self.assertEqual((self.schema(), self.open().memories), (1, {ONE: told}))
        store.write([ends])
        told.add(ends[1])
        self.assertEqual((self.schema(), self.open().memories), (2, {ONE: told}))
        store.write([ends])
        self.assertEqual(self.schema(), 2)

    def schema(self) -> int:
        """As others see it."""
        with closing(sqlite3.connect(self.path)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])

    def test_a_rewrite_puts_one_picture_in_place_of_another(self) -> None:
        store = self.open()
        store.write([(TWO, ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0))])
        store.rewrite({ONE: a_memory()}, {ONE: {CONTAINER: {"address": None}}})
        again = self.open()
        self.assertEqual(again.memories, {ONE: a_memory()})
        self.assertEqual(again.places, {ONE: {CONTAINER: {"address": None}}})

    def test_a_journal_of_another_version_is_not_touched(self) -> None:
        self.open().close()
        db = sqlite3.connect(self.path)
        db.execute("PRAGMA user_version = 99")
        db.close()
        problem = self.assertRaises(Damaged, Store, self.path, "boot-1")
        self.assertIn("schema 99", str(problem))

"""The journal's file: what is written is found again; what is damaged is put aside."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated, ContainerMoved, NameExpired, SessionCreated, SessionDrains
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.journal import store as room
from sticky.journal.file import Damaged
from sticky.journal.store import Entry, Placed, Store, Unfoldable, Unplaced, open_store
from tests.journal.test_codec import a_memory

ONE, TWO = ServerName("one"), ServerName("two")
CONTAINER = ContainerId("ct-1")


def tamper(path: Path, statement: str) -> None:
    """Change a closed journal behind its back."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


class StoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.stores: list[Store] = []
        self.addCleanup(self.close)

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def open(self, boot: str = "boot-1") -> Store:
        self.stores.append(Store(self.path, boot))
        return self.stores[-1]

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

    def test_the_file_is_the_owners_alone(self) -> None:
        self.open().write([])
        for file in self.path.parent.glob(self.path.name + "*"):
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)

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

    def only_read(self) -> Any:
        """As on a file system that can only be read."""
        really = os.open

        def refuse(path: Any, flags: int, *more: Any, **others: Any) -> int:
            if flags & (os.O_RDWR | os.O_WRONLY):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return really(path, flags, *more, **others)

        return self.patch(os, "open", refuse)

    def test_one_that_can_only_be_read_is_read_and_written_anew_once_it_can(self) -> None:
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        # With a log beside it that was not folded in, as a killed daemon leaves it, or without.
        for tidy in (False, True):
            written = self.open()
            written.rewrite({ONE: Memory.of([created])}, {})
            if tidy:
                self.close()
            self.assertEqual(self.path.with_name(self.path.name + "-wal").exists(), not tidy)
            patched = self.only_read()
            store = self.open()
            self.assertEqual((store.writable, store.memories), (False, {ONE: Memory.of([created])}))
            self.assertEqual(self.assertRaises(OSError, store.rewrite, {}, {}).errno, errno.EROFS)
            self.assertRaises(sqlite3.Error, store.write, [(ONE, Placed(CONTAINER, {}))])
            patched.restore()
            self.assertIsNone(store.rewrite({TWO: Memory.of([created])}, {}))
            store.write([(ONE, created)])
            self.assertTrue(store.writable)
            self.assertEqual(self.open().memories, {TWO: Memory.of([created]), ONE: Memory.of([created])})

    def fails_to_open(self) -> Any:
        """As without room for its index."""

        def fails(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        return self.patch(sqlite3, "connect", fails)

    def test_one_that_can_be_written_again_and_not_yet_be_opened_is_opened_later(self) -> None:
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        written = self.open()
        written.rewrite({ONE: Memory.of([created])}, {})
        written.close()
        patched = self.only_read()
        store = self.open()
        patched.restore()
        patched = self.fails_to_open()
        for _ in range(3):
            self.assertRaises(sqlite3.OperationalError, store.rewrite, {TWO: Memory.of([created])}, {})
            self.assertFalse(store.writable)
        patched.restore()
        self.assertIsNone(store.rewrite({TWO: Memory.of([created])}, {}))
        self.assertTrue(store.writable and store.in_place())
        self.assertEqual(self.open().memories, {TWO: Memory.of([created])})

    def test_one_that_is_damaged_when_it_can_be_written_again_is_put_aside(self) -> None:
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        self.open().close()
        patched = self.only_read()
        store = self.open()
        patched.restore()
        self.path.write_bytes(b"nonsense" * 1000)
        self.assertIn(".damaged-1", str(store.rewrite({TWO: Memory.of([created])}, {})))
        self.assertEqual(self.open().memories, {TWO: Memory.of([created])})

    def test_one_that_was_removed_and_cannot_be_opened_is_not_put_aside_at_each_attempt(self) -> None:
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        store = self.open()
        self.path.write_bytes(b"another file's")
        self.path.with_name(self.path.name + "-wal").unlink()
        patched = self.fails_to_open()
        for _ in range(5):
            self.assertRaises(sqlite3.OperationalError, store.rewrite, {ONE: Memory.of([created])}, {})
        patched.restore()
        wrong = str(store.rewrite({ONE: Memory.of([created])}, {}))
        self.assertIn("was removed or replaced; what was there is kept as", wrong)
        self.assertEqual(len(list(self.path.parent.glob(f"{self.path.name}.damaged-*"))), 1)
        self.assertIsNone(store.rewrite({ONE: Memory.of([created])}, {}), "it is said once")
        self.assertEqual(self.open().memories, {ONE: Memory.of([created])})

    def test_nothing_to_be_read_where_nothing_can_be_written_is_an_error(self) -> None:
        self.only_read()
        self.assertEqual(self.assertRaises(OSError, open_store, self.path, "boot-1").errno, errno.EROFS)
        os.mknod(self.path)
        self.assertEqual(self.assertRaises(OSError, open_store, self.path, "boot-1").errno, errno.EROFS)

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


class DamageTests(SynchronousTestCase):
    def written(self) -> Path:
        path = Path(self.mktemp())
        store = Store(path, "boot-1")
        store.rewrite({ONE: a_memory()}, {})
        store.close()
        return path

    def test_a_damaged_journal_is_put_aside_and_a_new_one_is_begun(self) -> None:
        path = self.written()
        before = b"not a database at all" * 100
        path.write_bytes(before)
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        self.assertEqual(store.memories, {})
        aside = path.with_name(path.name + ".damaged-1")
        self.assertEqual(aside.read_bytes(), before)
        assert lost is not None
        self.assertIn(str(aside), lost)
        store.write([(ONE, ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0))])

    def test_a_second_damage_does_not_overwrite_the_first(self) -> None:
        path = self.written()
        for text in (b"first" * 500, b"second" * 500):
            path.write_bytes(text)
            open_store(path, "boot-1")[0].close()
        self.assertEqual(path.with_name(path.name + ".damaged-1").read_bytes(), b"first" * 500)
        self.assertEqual(path.with_name(path.name + ".damaged-2").read_bytes(), b"second" * 500)

    def test_it_says_what_was_in_it_as_far_as_that_can_be_read(self) -> None:
        path = self.written()
        memory = a_memory()
        tamper(path, "INSERT INTO log (server, record, sum) VALUES ('one', '{}', 0)")
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        amount = f"{len(memory.sessions)} sessions, {len(memory.containers)} containers and {len(memory.ended)} ended"
        self.assertTrue(memory.sessions and memory.containers and memory.ended)
        self.assertIn(amount, str(lost))

    def test_a_header_that_speaks_of_a_later_format_is_damage(self) -> None:
        """SQLite would read it and refuse every write, for good."""
        path = Path(self.mktemp())
        Store(path, "boot-1").close()
        damaged = bytearray(path.read_bytes())
        damaged[18] = 3  # "file format write version", https://www.sqlite.org/fileformat.html, 1.3.3
        path.write_bytes(damaged)
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        self.assertIn("readonly", str(lost))
        store.write([(ONE, Placed(CONTAINER, {}))])

    def test_one_that_cannot_be_written_for_what_lies_beside_it_is_kept(self) -> None:
        """SQLite opens it to be read alone. That is no fault of the file's: nothing may be put aside, and with it all sessions."""
        path = self.written()
        before = path.read_bytes()
        path.with_name(path.name + "-shm").mkdir()
        self.assertRaises(sqlite3.Error, open_store, path, "boot-1")
        self.assertEqual(path.read_bytes(), before)
        path.with_name(path.name + "-shm").rmdir()
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        self.assertIsNone(lost)
        self.assertEqual(store.memories, {ONE: a_memory()})

    def test_an_error_that_nobody_thought_of_is_not_taken_for_damage(self) -> None:
        path = self.written()
        before = path.read_bytes()
        really = sqlite3.connect

        def refusing(*arguments: Any, **more: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = really(*arguments, **more)
            db.set_authorizer(lambda *what: sqlite3.SQLITE_DENY if "quick_check" in what else sqlite3.SQLITE_OK)
            return db

        patched = self.patch(sqlite3, "connect", refusing)
        self.assertIn("not authorized", str(self.assertRaises(sqlite3.DatabaseError, open_store, path, "boot-1")))
        self.assertEqual(path.read_bytes(), before)
        patched.restore()
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        self.assertEqual((lost, store.memories), (None, {ONE: a_memory()}))

    def test_what_is_of_the_file_is_damage(self) -> None:
        for statement, told in (
            ("ALTER TABLE log RENAME COLUMN server TO savour", "no such column"),
            ("DROP TABLE places", "no such table"),
            ("UPDATE log SET record = CAST(x'ff' AS TEXT) WHERE number = 1", "Could not decode"),
            ("INSERT INTO places VALUES ('ct-1', 'one', '7')", "place of ct-1"),
            ("INSERT INTO places VALUES ('ct-1', 'one', '{')", "place of ct-1"),
        ):
            path = self.written()
            tamper(path, statement)
            store, lost = open_store(path, "boot-1")
            self.addCleanup(store.close)
            self.assertIn(told, str(lost))
            self.assertEqual((store.memories, store.places), ({}, {}))

    def test_records_that_are_missing_are_damage(self) -> None:
        """Each has its checksum, but those that are not there have none."""
        path = self.written()
        tamper(path, "DELETE FROM log WHERE number = 2")
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        self.assertEqual(store.memories, {})
        self.assertIn("those from 2 on are missing", str(lost))

    def test_a_record_that_makes_no_sense_is_damage(self) -> None:
        path = self.written()
        tamper(path, "UPDATE log SET record = '{}' WHERE number = (SELECT max(number) FROM log)")
        store, lost = open_store(path, "boot-1")
        self.addCleanup(store.close)
        assert lost is not None
        self.assertIn("record", lost)

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_flipped_bytes_never_stop_the_daemon(self, data: st.DataObject) -> None:
        path = self.written()
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 40))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(bytes(content))
        store, _ = open_store(path, "boot-1")
        # Whatever it made of that is what was there, or nothing: no session that never was.
        self.assertIn(store.memories.get(ONE, Memory()), (a_memory(), Memory()))
        store.write([(ONE, ContainerCreated(ContainerId("ct-9"), DeploymentId("dp-1"), 1.0, 2.0))])
        store.close()

    def open_and_write(self) -> Store:
        self.path = Path(self.mktemp())
        store = Store(self.path, "boot-1")
        self.addCleanup(store.close)
        store.write([(TWO, ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0))])
        self.assertTrue(store.in_place())
        return store

    def found(self) -> dict[ServerName, Memory]:
        store, lost = open_store(self.path, "boot-1")
        self.addCleanup(store.close)
        self.assertIsNone(lost)
        return store.memories

    def test_a_file_that_goes_while_it_is_open_is_noticed_and_written_anew(self) -> None:
        for suffix in ("", "-wal"):
            store = self.open_and_write()
            gone = self.path.with_name(self.path.name + suffix)
            gone.unlink()
            self.assertFalse(store.in_place())
            self.assertIn("was removed", str(store.rewrite({ONE: a_memory()}, {})))
            self.assertTrue(store.in_place())
            store.write([(TWO, ContainerCreated(CONTAINER, DeploymentId("dp-2"), 1.0, 2.0))])
            self.assertEqual(self.found()[ONE], a_memory())
            self.assertIn(CONTAINER, self.found()[TWO].containers)
            self.assertEqual(self.path.stat().st_mode & 0o077, 0)

    def test_a_file_that_is_damaged_while_it_is_open_is_put_aside_and_written_anew(self) -> None:
        store = self.open_and_write()
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = self.path.stat().st_size
        with self.path.open("r+b") as file:
            file.write(b"nonsense" * (size // 8))
        store._db.execute("PRAGMA shrink_memory")
        with self.assertRaises(sqlite3.DatabaseError):
            store.write([(TWO, ContainerCreated(ContainerId("ct-2"), DeploymentId("dp-1"), 1.0, 2.0))])
        self.assertIn("damaged-1", str(store.rewrite({ONE: a_memory()}, {})))
        self.assertEqual(self.found(), {ONE: a_memory()})
        self.assertTrue(self.path.with_name(self.path.name + ".damaged-1").read_bytes().startswith(b"nonsense"))

    def test_nothing_is_written_into_somebody_elses_directory(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        store = Store(folder / "journal.db", "boot-1")
        self.addCleanup(store.close)
        folder.rename(folder.with_name("elsewhere"))
        folder.mkdir()
        self.assertFalse(store.in_place())
        self.assertRaises(FileNotFoundError, store.rewrite, {}, {})
        self.assertEqual(list(folder.iterdir()), [])

    def test_what_is_written_anew_at_once_is_not_read(self) -> None:
        path = self.written()
        store, _ = open_store(path, "boot-1", read=False)
        self.addCleanup(store.close)
        self.assertEqual(store.memories, {})
        store.rewrite({TWO: a_memory()}, {})
        again, _ = open_store(path, "boot-1")
        self.addCleanup(again.close)
        self.assertEqual(again.memories, {TWO: a_memory()})

    def test_a_journal_that_was_cut_short_is_damage_or_whole_never_an_error(self) -> None:
        size = os.path.getsize(self.written())
        for left in range(0, size, 4096):
            path = self.written()
            os.truncate(path, left)
            store, _ = open_store(path, "boot-1")
            store.close()

"""A journal that is damaged: noticed, put aside, begun anew; and what is no damage."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.journal.store import Placed, Store, open_store
from tests.journal.store_case import CONTAINER, ONE, TWO
from tests.journal.test_codec import a_memory


def tamper(path: Path, statement: str) -> None:
    """Change a closed journal behind its back."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


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

"""The life of the journal's file: read-only at first, removed, not to be opened just now."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Any

from sticky.core.memory import Memory
from sticky.core.records import ContainerCreated
from sticky.core.values import DeploymentId
from sticky.journal.file import has_hole
from sticky.journal.store import Placed, open_store
from tests.journal.store_case import CONTAINER, ONE, TWO, StoreCase


class FileTests(StoreCase):
    def test_the_file_is_the_owners_alone(self) -> None:
        self.open().write([])
        for file in self.path.parent.glob(self.path.name + "*"):
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)

    def only_read(self) -> Any:
        """As on a file system that can only be read."""
        really = os.open

        def refuse(path: Any, flags: int, *more: Any, **others: Any) -> int:
            if flags & (os.O_RDWR | os.O_WRONLY):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return really(path, flags, *more, **others)

        return self.patch(os, "open", refuse)

    def test_one_that_is_cut_short_is_not_in_place_any_more(self) -> None:
        """As by a rotation of logs that copies and truncates. SQLite writes on where it was, and the next daemon finds nothing."""
        created = ContainerCreated(CONTAINER, DeploymentId("dp-1"), 1.0, 2.0)
        for part, later in (("", False), ("-wal", False), ("-wal", True)):
            store = self.open()
            store.rewrite({ONE: Memory.of([created])}, {})
            self.assertTrue(store.in_place())
            os.truncate(self.path.with_name(self.path.name + part), 0)
            if later:  # before anybody has looked: what is written then begins behind a hole
                for number in range(20):
                    store.write([(ONE, Placed(CONTAINER, {"number": number}))])
            self.assertTrue(store.in_place(), "nothing is put aside for what was seen once")
            self.assertFalse(store.in_place(), (part, later))
            store.rewrite({ONE: Memory.of([created])}, {})
            self.assertTrue(store.in_place())
            store.close()
            self.assertEqual(self.open().memories, {ONE: Memory.of([created])})

    def test_a_log_that_grows_while_it_is_looked_at_has_no_hole(self) -> None:
        """Where it ended a moment ago is where a file's hole begins, as the kernel has it."""
        self.path.write_bytes(bytes(5000))
        really = os.lseek

        def grows(fd: int, position: int, how: int) -> int:
            found = really(fd, position, how)
            with self.path.open("ab") as file:
                file.write(bytes(5000))
            return found

        self.patch(os, "lseek", grows)
        self.assertFalse(has_hole(self.path))
        self.assertFalse(has_hole(self.path.with_name("nothing")))

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
        self.assertIn("was removed, replaced or cut short; what was there is kept as", wrong)
        self.assertEqual(len(list(self.path.parent.glob(f"{self.path.name}.damaged-*"))), 1)
        self.assertIsNone(store.rewrite({ONE: Memory.of([created])}, {}), "it is said once")
        self.assertEqual(self.open().memories, {ONE: Memory.of([created])})

    def test_nothing_to_be_read_where_nothing_can_be_written_is_an_error(self) -> None:
        self.only_read()
        self.assertEqual(self.assertRaises(OSError, open_store, self.path, "boot-1").errno, errno.EROFS)
        os.mknod(self.path)
        self.assertEqual(self.assertRaises(OSError, open_store, self.path, "boot-1").errno, errno.EROFS)

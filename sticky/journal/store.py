"""What the journal's file holds: one ordered log, and where containers are. Blocking; knows no thread and no reactor."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import attrs

from sticky.core.memory import Memory
from sticky.core.records import Record
from sticky.core.values import ContainerId, ServerName
from sticky.journal.codec import Unreadable, decode, encode, lines_of, rows_of
from sticky.journal.file import Damaged, JournalFile, damage_told, identity, is_damage, put_aside

SCHEMA = 2
_READABLE = (1, SCHEMA)
#: Rows in the log that a shorter one would not have, before it is written anew. A daemon that starts reads 100,000 a second.
SHORTEN_ABOVE = 20_000

_NEW = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
    number INTEGER PRIMARY KEY, server TEXT NOT NULL, record TEXT NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS places (container TEXT PRIMARY KEY, server TEXT NOT NULL, place TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {SCHEMA};
COMMIT;
"""


def _sum(server: str, line: str) -> int:
    # SQLite notices a damaged page, not a damaged character in it.
    return crc32(f"{server}\0{line}".encode())


@attrs.frozen
class Placed:
    """Where a container is: what its backend needs to find it again, as JSON."""

    container: ContainerId
    place: Mapping[str, Any]


@attrs.frozen
class Unplaced:
    """The container is gone, and so is its place."""

    container: ContainerId


#: What is written: (Server, a record of the core or a place).
Entry = tuple[ServerName, Record | Placed | Unplaced]


class Unfoldable(Exception):
    """A record that does not go with those before it: about what there is not. A fault of ours, not of the disk."""


class Store:
    """A journal, open until `close`. What its methods raise `sqlite3.Error` for may work later; nothing is half written."""

    def __init__(self, path: Path, boot: str, *, read: bool = True) -> None:
        """Open or create. `boot` names this boot of the machine, which monotonic times belong to.

        `read`: False where `rewrite` comes next, and what is in there does not matter. Raises `Damaged`; `sqlite3.Error` and
        `OSError` where the disk, the rights or another process are to blame, and it may work later.
        """
        self.path = path
        self._boot = boot
        self.memories: dict[ServerName, Memory] = {}
        self.places: dict[ServerName, dict[ContainerId, Mapping[str, Any]]] = {}
        self.same_boot = True  #: whether what was found is of this boot: if not, its times mean nothing
        self._stamped = False  # whether the file says that it is of this schema
        self._known = False  # whether those are what the file tells
        self._rows = 0  # in the log
        self._shorten_above = 0  # with more of them it is written anew
        self._directory = identity(path.parent)
        self._file: JournalFile | None = None  # None: it was given up, and could not be opened again yet
        self._befell: list[str] = []  # what was wrong with files of before, until there is a whole one
        self._connect(read)

    @property
    def writable(self) -> bool:
        """False where the file system can only be read: what is there was found all the same."""
        return self._file is not None and self._file.writable

    def in_place(self) -> bool:
        """Whether what we write to is what the next daemon will find: False when a file was removed, moved or replaced."""
        file = self._file
        return file is None or file.in_place()  # None: the next `rewrite` opens what is there

    def write(self, entries: Iterable[Entry]) -> str | None:
        """Append in order, all or nothing. Raises `Unfoldable`, too: what a later daemon could not fold would be damage to it.

        A log that has become long is written anew, shorter. Returns why that did not succeed: what was to be written is durable all
        the same. It is tried again `SHORTEN_ABOVE` rows later.
        """
        if not self._known:
            self._read()
        try:
            with self._opened.transaction():
                self._stamp()
                for server, entry in entries:
                    self._put(server, entry)
                    self._fold(server, entry)
        except BaseException:
            self._forget()  # the file does not have what was folded
            raise
        self._stamped = True
        if self._rows > self._shorten_above:
            try:
                self._rewrite(self.memories, self.places)
            except sqlite3.Error as error:
                if is_damage(error, self.path):
                    raise
                self._shorten_above = self._rows + SHORTEN_ABOVE
                return str(error)
        return None

    def rewrite(
        self,
        memories: Mapping[ServerName, Memory],
        places: Mapping[ServerName, Mapping[ContainerId, Mapping[str, Any]]],
    ) -> str | None:
        """Put this in place of all that was written: the shortest log that amounts to it.

        If the file is not there any more, or has been damaged while it was open, a new one is begun; returns what was wrong. Raises
        `FileNotFoundError` where its directory is not what it was; `OSError`, `sqlite3.Error` and, if even the new one is none,
        `Damaged` where it cannot be opened. May be called again after each.
        """
        if identity(self.path.parent) != self._directory:
            raise FileNotFoundError(errno.ENOENT, "its directory was moved or replaced", str(self.path.parent))
        self._see_to_file()
        try:
            self._rewrite(memories, places)
        except sqlite3.Error as error:
            if not is_damage(error, self.path):
                raise
            self._put_aside(str(error))
            self._connect(read=False)
            self._rewrite(memories, places)
        befell, self._befell = self._befell, []
        return "; ".join(befell) or None

    def _see_to_file(self) -> None:
        """Open one that can be written, where the next daemon will find it."""
        if self._file is not None and not self._file.writable:
            self.close()
        elif not self.in_place():
            self._put_aside(f"{self.path} was removed, replaced or cut short")
        if self._file is None:
            try:
                self._connect(read=False)
            except Damaged as damage:
                self._put_aside(str(damage))
                self._connect(read=False)

    def _put_aside(self, wrong: str) -> None:
        self.close()
        self._befell.append(wrong)
        if aside := put_aside(self.path):
            self._befell.append(f"what was there is kept as {aside}")

    def _rewrite(
        self,
        memories: Mapping[ServerName, Memory],
        places: Mapping[ServerName, Mapping[ContainerId, Mapping[str, Any]]],
    ) -> None:
        rows = [(server, line) for server, memory in memories.items() for line in lines_of(memory)]
        found = [
            (container, server, json.dumps(place))
            for server, here in places.items()
            for container, place in here.items()
        ]
        with self._opened.transaction():
            self._db.execute("DELETE FROM log")
            self._db.execute("DELETE FROM places")
            self._append(rows)
            self._db.executemany("INSERT INTO places VALUES (?, ?, ?)", found)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (self._boot,))
            self._stamp()
        self._stamped = True
        self.memories = dict(memories)
        self.places = {server: dict(here) for server, here in places.items()}
        self._known = True
        self._count(len(rows), len(rows))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _opened(self) -> JournalFile:
        if self._file is None:
            raise sqlite3.OperationalError("it is not open")  # `rewrite` opens it
        return self._file

    @property
    def _db(self) -> sqlite3.Connection:
        return self._opened.db

    def _connect(self, read: bool) -> None:
        self._forget()
        self._file = JournalFile(self.path, read=read)
        try:
            with damage_told(self.path):
                self._open(read)
        except BaseException:
            self.close()
            raise

    def _open(self, read: bool) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, *_READABLE):
            raise Damaged(f"{self.path}: written by another version (schema {version}, this one is {SCHEMA})")
        if not version and not self.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self.path))
        if not version:  # what is there already takes no room on a disk that may be full
            self._db.executescript(_NEW)
        self._stamped = version in (0, SCHEMA)
        if self.writable:
            self._try_to_write()
        if read:
            self._read()

    def _try_to_write(self) -> None:
        """With a header that speaks of a later format it can be read, and no write ever succeeds."""
        try:
            self._db.execute("DELETE FROM meta WHERE 0")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                raise
            # Somebody looks into it just now, or the disk is full: sessions of before are served meanwhile.

    def _append(self, rows: Iterable[tuple[str, str]]) -> None:
        self._db.executemany(
            "INSERT INTO log (server, record, sum) VALUES (?, ?, ?)",
            ((server, line, _sum(server, line)) for server, line in rows),
        )

    def _stamp(self) -> None:
        """With the first that is written, or not at all: an earlier version must not read that, and may read what was there."""
        if not self._stamped:
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _put(self, server: ServerName, entry: Record | Placed | Unplaced) -> None:
        if isinstance(entry, Placed):
            row = (entry.container, server, json.dumps(entry.place))
            self._db.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", row)
        elif isinstance(entry, Unplaced):
            self._db.execute("DELETE FROM places WHERE container = ?", (entry.container,))
        else:
            self._append([(server, encode(entry))])

    def _read(self) -> None:
        boot = self._db.execute("SELECT value FROM meta WHERE name = 'boot'").fetchone()
        self.same_boot = boot is None or boot[0] == self._boot
        if boot is None:
            self._db.execute("INSERT INTO meta VALUES ('boot', ?)", (self._boot,))
        rows = self._db.execute("SELECT number, server, record, sum FROM log ORDER BY number")
        expected = 0
        for expected, (number, server, line, sum_) in enumerate(rows, 1):
            try:
                if number != expected:
                    raise Unreadable(f"those from {expected} on are missing")
                if _sum(server, line) != sum_:
                    raise Unreadable("its checksum does not fit")
                memory = self._memory(server)
                for record in decode(line):
                    memory.add(record)
            except (Unreadable, KeyError) as error:
                raise Damaged(
                    f"{self.path}: record {number}: {error}; up to there it told of {_amount(self.memories)}"
                ) from None
        self._count(expected, sum(rows_of(memory) for memory in self.memories.values()))
        for container, server, place in self._db.execute("SELECT container, server, place FROM places"):
            try:
                found = json.loads(place)
            except (ValueError, TypeError) as error:
                raise Damaged(f"{self.path}: place of {container}: {error}") from None
            if not isinstance(found, dict):
                raise Damaged(f"{self.path}: place of {container}: it is none")
            self.places.setdefault(server, {})[container] = found
        self._known = True

    def _count(self, rows: int, needed: int) -> None:
        """`needed`: that many of the log's rows would at least be in a shorter one."""
        self._rows, self._shorten_above = rows, SHORTEN_ABOVE + 2 * needed

    def _forget(self) -> None:
        self.memories, self.places, self._known = {}, {}, False

    def _fold(self, server: ServerName, entry: Record | Placed | Unplaced) -> None:
        if isinstance(entry, Placed):
            self.places.setdefault(server, {})[entry.container] = entry.place
        elif isinstance(entry, Unplaced):
            self.places.setdefault(server, {}).pop(entry.container, None)
        else:
            try:
                self._memory(server).add(entry)
            except KeyError as error:
                raise Unfoldable(f"{server} knows no {error}, of which it was told {entry}") from error
            self._rows += 1

    def _memory(self, server: ServerName) -> Memory:
        if server not in self.memories:
            self.memories[server] = Memory()
        return self.memories[server]


def open_store(path: Path, boot: str, *, read: bool = True) -> tuple[Store, str | None]:
    """The journal, and what could not be recovered (None: nothing was lost). `read` as for `Store`.

    A damaged file is put aside under a name of its own, never deleted, and a new one is begun. Raises as `Store` does.
    """
    try:
        return Store(path, boot, read=read), None
    except Damaged as damage:
        aside = put_aside(path)
        return Store(path, boot), f"{damage}; kept as {aside}"


def _amount(memories: Mapping[ServerName, Memory]) -> str:
    """For people."""
    everything = memories.values()
    return (
        f"{sum(len(one.sessions) for one in everything)} sessions, {sum(len(one.containers) for one in everything)} containers"
        f" and {sum(len(one.ended) for one in everything)} ended sessions"
    )


def this_boot() -> str:
    """A name for this boot of the machine: monotonic times are comparable within it only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

"""The journal's file: one SQLite database, one ordered log, and where containers are. Blocking; knows no thread and no reactor.

One process at a time: the caller holds the state directory's lock.
"""

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

SCHEMA = 2
_READABLE = (1, SCHEMA)
CACHE_KIB = 256  #: of the file that SQLite keeps in memory
_VERSIONS = 20  # bytes of a database's header, of which the last two say who may write and read it: 1 or 2 (fileformat.html, 1.3.3)
#: Rows in the log that a shorter one would not have, before it is written anew. A daemon that starts reads 100,000 a second.
SHORTEN_ABOVE = 20_000

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
    number INTEGER PRIMARY KEY, server TEXT NOT NULL, record TEXT NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS places (container TEXT PRIMARY KEY, server TEXT NOT NULL, place TEXT NOT NULL) WITHOUT ROWID;
"""


#: Errors of SQLite that are not the file's fault.
_PASSING = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
}


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


class Damaged(Exception):
    """The file is not a journal, or not a whole one. The text says what is wrong, for the operator."""


class Store:
    """An open journal. Raises `sqlite3.Error` from every method when the disk is full or fails; nothing is half written."""

    def __init__(self, path: Path, boot: str, *, read: bool = True) -> None:
        """Open or create. Raises `Damaged`; `boot` names this boot of the machine, which monotonic times belong to.

        `read`: False where `rewrite` comes next, and what is in there does not matter.
        """
        self.path = path
        self._boot = boot
        self.memories: dict[ServerName, Memory] = {}
        self.places: dict[ServerName, dict[ContainerId, Mapping[str, Any]]] = {}
        self.same_boot = True  #: whether what was found is of this boot: if not, its times mean nothing
        self._rows = 0  # in the log
        self._needed = 0  # that many of them at least had to be there when it was read or written anew
        self._files: dict[Path, tuple[int, int]] = {}  # device and inode of each as we opened it
        self._directory = _identity(path.parent)
        self.writable = True  #: False where the file system can only be read: what is there was found all the same
        self._connect(read)

    def in_place(self) -> bool:
        """Whether what we write to is what the next daemon will find: False when a file was removed, moved or replaced."""
        return all(_identity(path) == identity for path, identity in self._files.items())

    def write(self, entries: Iterable[Entry]) -> None:
        """Append in order, all or nothing."""
        entries = list(entries)
        with _Transaction(self._db):
            for server, entry in entries:
                if isinstance(entry, Placed):
                    self._db.execute(
                        "INSERT OR REPLACE INTO places VALUES (?, ?, ?)",
                        (entry.container, server, json.dumps(entry.place)),
                    )
                elif isinstance(entry, Unplaced):
                    self._db.execute("DELETE FROM places WHERE container = ?", (entry.container,))
                else:
                    self._append([(server, encode(entry))])
        for server, entry in entries:
            self._fold(server, entry)
        if self._rows > SHORTEN_ABOVE + 2 * self._needed:
            self._rewrite(self.memories, self.places)

    def rewrite(
        self,
        memories: Mapping[ServerName, Memory],
        places: Mapping[ServerName, Mapping[ContainerId, Mapping[str, Any]]],
    ) -> str | None:
        """Put this in place of all that was written: the shortest log that amounts to it.

        If the file is not there any more, or has been damaged while it was open, a new one is begun; returns what was wrong.
        """
        if _identity(self.path.parent) != self._directory:
            raise FileNotFoundError(errno.ENOENT, "its directory was moved or replaced", str(self.path.parent))
        if not self.writable:
            self._db.close()
            self._connect(read=False)
            self._rewrite(memories, places)
            return None
        if not self.in_place():
            wrong = f"{self.path} was removed or replaced"
        else:
            try:
                self._rewrite(memories, places)
                return None
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise
                wrong = str(error)
        self._db.close()
        wrong += f"; what was there is kept as {aside}" if (aside := _put_aside(self.path)) else ""
        self._connect(read=False)
        self._rewrite(memories, places)
        return wrong

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
        with _Transaction(self._db):
            self._db.execute("DELETE FROM log")
            self._db.execute("DELETE FROM places")
            self._append(rows)
            self._db.executemany("INSERT INTO places VALUES (?, ?, ?)", found)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (self._boot,))
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        self.memories = dict(memories)
        self.places = {server: dict(here) for server, here in places.items()}
        self._rows = self._needed = len(rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _connect(self, read: bool) -> None:
        # Created with its mode, so that it is never readable for others, not even for a moment.
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.writable = True
        except OSError as error:
            if error.errno != errno.EROFS or not read or not self.path.exists():
                raise
            self.writable = False
        self._db = sqlite3.connect(self._name(), uri=True, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            self._open(read)
        except BaseException:
            self._db.close()
            raise
        found = {path: _identity(path) for path in _parts(self.path)[:2]}
        self._files = {path: identity for path, identity in found.items() if identity is not None}

    def _name(self) -> str:
        """For SQLite. One that can only be read has no index to make for what was committed last, unless it is there already."""
        name = self.path.absolute().as_uri()
        if self.writable:
            return name
        return f"{name}?mode=ro" if _parts(self.path)[1].exists() else f"{name}?immutable=1"

    def _open(self, read: bool) -> None:
        try:
            # NORMAL in WAL mode: a commit is safe against the death of this process, which is all that is promised.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            # What is appended is not read again: the 2 MB of old pages that SQLite would keep are of no use.
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            if (verdict := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise Damaged(f"{self.path}: {verdict}")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, *_READABLE):
                raise Damaged(f"{self.path}: written by another version (schema {version}, this one is {SCHEMA})")
            if not version and not self.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self.path))
            if not version:  # what is there already takes no room on a disk that may be full
                self._db.executescript(_TABLES)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            if self.writable:
                self._try_to_write()
            if read:
                self._read()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if self._may_work_later(error):
                raise
            raise Damaged(f"{self.path}: {error}") from None

    def _try_to_write(self) -> None:
        """With a header that speaks of a later format it can be read, and no write ever succeeds."""
        try:
            self._db.execute("DELETE FROM meta WHERE 0")
            self._db.execute(
                f"PRAGMA user_version = {SCHEMA}"
            )  # an earlier version does not read what is written from here on
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                raise
            # Somebody looks into it just now, or the disk is full: sessions of before are served meanwhile.

    def _may_work_later(self, error: Exception) -> bool:
        """Whether the disk, the rights or another process are to blame rather than what the file holds."""
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
            # Said of a file whose header speaks of a later format; and where rights, the disk, or its index are to blame.
            return not self._of_a_later_format()
        return code is not None and code & 0xFF in _PASSING

    def _of_a_later_format(self) -> bool:
        with self.path.open("rb") as file:
            return max(file.read(_VERSIONS)[-2:], default=0) > 2

    def _append(self, rows: Iterable[tuple[str, str]]) -> None:
        self._db.executemany(
            "INSERT INTO log (server, record, sum) VALUES (?, ?, ?)",
            ((server, line, _sum(server, line)) for server, line in rows),
        )

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
        self._rows = expected
        self._needed = sum(rows_of(memory) for memory in self.memories.values())
        for container, server, place in self._db.execute("SELECT container, server, place FROM places"):
            try:
                self.places.setdefault(server, {})[container] = json.loads(place)
            except ValueError as error:
                raise Damaged(f"{self.path}: place of {container}: {error}") from None

    def _fold(self, server: ServerName, entry: Record | Placed | Unplaced) -> None:
        if isinstance(entry, Placed):
            self.places.setdefault(server, {})[entry.container] = entry.place
        elif isinstance(entry, Unplaced):
            self.places.setdefault(server, {}).pop(entry.container, None)
        else:
            self._memory(server).add(entry)
            self._rows += 1

    def _memory(self, server: ServerName) -> Memory:
        if server not in self.memories:
            self.memories[server] = Memory()
        return self.memories[server]


class _Transaction:
    """All or nothing, also when the COMMIT itself fails."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error:
                self._roll_back()
                raise
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


def open_store(path: Path, boot: str, *, read: bool = True) -> tuple[Store, str | None]:
    """The journal, and what could not be recovered (None: nothing was lost). `read` as for `Store`.

    A damaged file is put aside under a name of its own, never deleted, and a new one is begun.
    """
    try:
        return Store(path, boot, read=read), None
    except Damaged as damage:
        aside = _put_aside(path)
        return Store(path, boot), f"{damage}; kept as {aside}"


def _put_aside(path: Path) -> Path | None:
    """The name that it is kept under; None where nothing was there."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    there = [part for part in _parts(path) if part.exists()]
    for part in there:
        part.rename(aside.with_name(aside.name + part.name.removeprefix(path.name)))
    return aside if there else None


def _parts(path: Path) -> list[Path]:
    """The database, what was committed and is not in it yet, and its index."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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

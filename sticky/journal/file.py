"""The life of the journal's file: opened, looked for, put aside, and which errors are the file's own. Knows no tables.

One process at a time: the caller holds the state directory's lock.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

CACHE_KIB = 256  #: of the file that SQLite keeps in memory
_VERSIONS = 20  # bytes of a database's header, of which the last two say who may write and read it: 1 or 2 (fileformat.html, 1.3.3)

#: Errors of SQLite that are the file's fault: of all others nothing is known, and a journal is not put aside on suspicion.
_OF_THE_FILE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # tables or columns that are not what they were; a format that it does not know
    sqlite3.SQLITE_TOOBIG,
}


class Damaged(Exception):
    """The file is not a journal, or not a whole one. The text says what is wrong, for the operator."""


class JournalFile:
    """A database that is open from when this is made to `close`."""

    def __init__(self, path: Path, *, read: bool) -> None:
        """Open or create. `read`: whether one that can only be read is of use.

        Raises `Damaged`; `sqlite3.Error` and `OSError` where the disk, the rights or another process are to blame.
        """
        # Created with its mode, so that it is never readable for others, not even for a moment.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.writable = True  #: False where the file system can only be read
        except OSError as error:
            if error.errno != errno.EROFS or not read or not path.exists():
                raise
            self.writable = False
        name = _name(path, self.writable)
        self.db = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            with damage_told(path):
                self._set_up(path)
        except BaseException:
            self.db.close()
            raise
        found = {part: part.stat() for part in parts(path)[:2] if part.exists()}
        self._parts = {
            part: (one.st_dev, one.st_ino) for part, one in found.items()
        }  # as they were when we opened them
        self._sizes = {part: one.st_size for part, one in found.items()}  # the most that was seen of each
        self._log = parts(path)[1]
        self._suspected = False  # somebody may have cut it short, when it was looked at last

    def in_place(self) -> bool:
        """Whether it is what the next daemon will find: False when a part of it was removed, moved or replaced, or cut short.

        Not while something is written to it. That it was cut short takes two looks: nothing is put aside by mistake.
        """
        try:
            found = {part: part.stat() for part in self._parts}
        except OSError:
            return False
        if any((one.st_dev, one.st_ino) != self._parts[part] for part, one in found.items()):
            return False
        suspected = self._cut_short({part: one.st_size for part, one in found.items()})
        sure, self._suspected = suspected and self._suspected, suspected
        return not sure

    def _cut_short(self, sizes: Mapping[Path, int]) -> bool:
        """SQLite makes neither part shorter before it is closed, and does not notice if somebody else does."""
        if any(size < self._sizes[part] for part, size in sizes.items()):
            return True
        self._sizes = dict(sizes)
        # Where something was cut off, and written behind since.
        return self._log in self._parts and has_hole(self._log)

    def close(self) -> None:
        """No more of it. Twice is as good as once."""
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, also when the COMMIT itself fails."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def _set_up(self, path: Path) -> None:
        # NORMAL in WAL mode: a commit is safe against the death of this process, which is all that is promised.
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        # What is appended is not read again: the 2 MB of old pages that SQLite would keep are of no use.
        self.db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if (verdict := self.db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise Damaged(f"{path}: {verdict}")


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Errors of SQLite that speak of what the file holds are raised as `Damaged`, others as they are."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if not is_damage(error, path):
            raise
        raise Damaged(f"{path}: {error}") from None


def is_damage(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> bool:
    """Whether what the file holds is to blame, rather than the disk, the rights or another process."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Python's own: text that is none, in a value or in a message.
        return isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode")
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        # Said of a file whose header speaks of a later format; and where rights, the disk, or its index are to blame.
        return _of_a_later_format(path)
    return code & 0xFF in _OF_THE_FILE


def put_aside(path: Path) -> Path | None:
    """The name that it is kept under; None where nothing was there."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    there = [part for part in parts(path) if part.exists()]
    for part in there:
        part.rename(aside.with_name(aside.name + part.name.removeprefix(path.name)))
    return aside if there else None


def parts(path: Path) -> list[Path]:
    """The database, what was committed and is not in it yet, and its index."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None where nothing is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def has_hole(path: Path) -> bool:
    """Whether a file lacks something that was never written, before its end. Not for the database: to close it would take its locks."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # first: a file that grows meanwhile has its end where it had it
            return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size
    except OSError:
        return False


def _name(path: Path, writable: bool) -> str:
    """For SQLite. One that can only be read has no index to make for what was committed last, unless it is there already."""
    name = path.absolute().as_uri()
    if writable:
        return name
    return f"{name}?mode=ro" if parts(path)[1].exists() else f"{name}?immutable=1"


def _of_a_later_format(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return max(file.read(_VERSIONS)[-2:], default=0) > 2
    return False

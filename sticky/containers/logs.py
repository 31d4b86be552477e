"""Files with containers' output: names, bounds, last lines. Must not know who writes them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from sticky.core.values import ContainerId, ServerName

LIMIT = 10 * 1024 * 1024  #: bytes a log may reach before its older part is dropped
KEPT = 20  #: logs of ended containers that are kept for each Server

LINES = 20
LINE_LENGTH = 500  #: characters
_ELSE = "\N{REPLACEMENT CHARACTER}"
_TAIL = 64 * 1024  # bytes that survive a truncation; also all that is ever read at once
_READ = LINES * LINE_LENGTH * 4  # bytes: the longest lines, in the longest UTF-8


def log_path(folder: Path, server: ServerName, container: ContainerId) -> Path:
    """Where the output of a container belongs. Container ids hold no dot, so the Server's name can be found again."""
    return folder / f"{quote(server, safe='')}.{quote(container, safe='')}.log"


def open_log(path: Path) -> int:
    """A descriptor for a container's stdout and stderr; the folder is made if it is missing. Raises OSError.

    O_APPEND makes a truncation from outside safe: the next write goes to the new end, not to a hole.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def last_lines(path: Path) -> tuple[str, ...]:
    """The last lines of a log: at most LINES of LINE_LENGTH characters. Nothing where it cannot be read."""
    try:
        text = _tail(path, _READ).decode("utf-8", "replace")
    except OSError:
        return ()
    return shown(text)


def shown(text: str) -> tuple[str, ...]:
    """The last lines of what a program said: bounded, and with nothing in them that would steer the terminal of who reads them."""
    lines = (line[:LINE_LENGTH] for line in text.splitlines()[-LINES:])
    return tuple("".join(each if each.isprintable() or each == "\t" else _ELSE for each in line) for line in lines)


def size_of(path: Path) -> int:
    """Bytes; 0 where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def bound(path: Path, limit: int = LIMIT) -> bool:
    """Drop all but the tail of a log that is larger than `limit` bytes; tell whether it was.

    In place, because the container holds the file open. What it writes between the reading and the truncation is lost,
    what it writes just after lands above the tail: a bounded disk is worth that.
    """
    try:
        if path.stat().st_size <= limit:
            return False
        tail = _tail(path, min(_TAIL, limit // 2))
        log = _opened(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return False
    try:
        os.ftruncate(log, 0)
        whole_lines = tail[tail.find(b"\n") + 1 :]
        os.write(log, b"[older output was dropped, the log had reached %d bytes]\n" % limit + whole_lines)
    except OSError:
        pass  # a full disk: the truncation has happened, the tail is a courtesy
    finally:
        os.close(log)
    return True


def prune(folder: Path, server: ServerName, live: Collection[Path], kept: int = KEPT) -> None:
    """Remove the oldest logs of the Server's ended containers, all but `kept`. Other files are left alone."""
    found: list[os.DirEntry[str]] = []
    wanted = quote(server, safe="")
    running = {os.fspath(path) for path in live}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, suffix = entry.name.rpartition(".")
                owner, _, container = stem.rpartition(".")
                ours = dot and suffix == "log" and owner == wanted and container.startswith("ct-")
                if ours and entry.path not in running:
                    found.append(entry)
        if len(found) <= kept:
            return
        ended = [(entry.stat().st_mtime, entry.path) for entry in found]
    except OSError:
        return
    ended.sort(reverse=True)
    for _, path in ended[kept:]:
        try:
            os.unlink(path)
        except OSError:
            pass


def _tail(path: Path, size: int) -> bytes:
    with open(_opened(path, os.O_RDONLY), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - size))
        return log.read(size)


def _opened(path: Path, flags: int) -> int:
    """Raises OSError for what is no plain file: a program that may write here could leave a pipe, which would hold us up for ever."""
    log = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(log).st_mode):
        os.close(log)
        raise OSError(errno.EINVAL, "is no plain file", str(path))
    os.set_blocking(log, True)  # whoever is given it
    return log

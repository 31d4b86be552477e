"""One daemon on one state directory: a lock that dies with its holder. Knows nothing of what is in there."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from sticky.errors import ConfigError


class StateLock:
    """Held from `acquire` to `release`, or to the end of the process, however it ends."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises `ConfigError`: names the pid of whoever holds it, or says why its file system gives no locks."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            if not Path("/proc", holder or "unknown").exists():
                holder = "unknown"  # of one before it: where nothing can be written, nobody writes down who holds it
            raise ConfigError(
                str(self._path.parent),
                "state_dir",
                f"in use by another daemon (pid {holder}); stop it, or choose another",
            ) from None
        except OSError as error:  # flock(2): ENOLCK; EOPNOTSUPP of some network file systems
            os.close(file)
            problem = f"cannot be locked: {error.strerror}; choose one on a file system that has locks"
            raise ConfigError(str(self._path.parent), "state_dir", problem) from None
        self._file = file
        self.take_over()

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS or not self._path.exists():
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)  # to hold it takes no right to write

    def is_there(self) -> bool:
        """Whether the file at our path is the one that we hold: False when the directory was moved, or another is in its place."""
        if self._file is None:
            return False
        try:
            there = self._path.stat()
        except OSError:
            return False
        ours = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    @property
    def held(self) -> int:
        """The descriptor that holds it, for a process that is to hold it as well."""
        assert self._file is not None
        return self._file

    def inherit(self, file: int) -> None:
        """It is held by this descriptor, which another process has opened: `take_over` says that it is ours alone."""
        self._file = file

    def take_over(self) -> None:
        """Write our own pid, for whoever is refused."""
        assert self._file is not None
        text = b"%d\n" % os.getpid()
        with suppress(OSError):  # a full disk, where there was nothing yet: it is held all the same
            os.pwrite(self._file, text, 0)  # in place of what is there, which takes no room
            os.ftruncate(self._file, len(text))

    def release(self) -> None:
        """Let the next one in. The file stays: to remove it would let two hold locks of one name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

"""One daemon on one state directory: a lock that dies with its holder. Knows nothing of what is in there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sticky.errors import ConfigError


class StateLock:
    """Held from `acquire` to `release`, or to the end of the process, however it ends."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises `ConfigError` that names the pid of whoever holds it."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise ConfigError(
                str(self._path.parent),
                "state_dir",
                f"in use by another daemon (pid {holder}); stop it, or choose another",
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        self._file = file

    def release(self) -> None:
        """Let the next one in. The file stays: to remove it would let two hold locks of one name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

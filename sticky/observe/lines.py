"""Lines into a file or to standard output: in batches, appended, with log rotation by renaming. Knows nothing of what they say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

FLUSH_AFTER = 0.2  #: seconds that a line may wait
LOOK_EVERY = 2.0  #: seconds between two looks whether the file has been renamed
SAY_EVERY = 60.0  #: seconds between two error lines

STDOUT = 1


class Lines:
    """Where lines go. What cannot be written is dropped and counted: a full disk must not stop the service.

    `path`: None is standard output.
    """

    def __init__(self, path: Path | None, clock: IReactorTime) -> None:
        self.path = path
        self.dropped = 0  #: batches
        self.expected = False  #: they are taken in a moment
        #: Gives the lines that are due. Set by whoever has them.
        self.fill: Callable[[], list[str]] = list
        self._clock = clock
        self._call: IDelayedCall | None = None
        self._fd = -1 if path is not None else STDOUT
        self._looked_at = 0.0
        self._said_at = -SAY_EVERY
        self._log = Logger(namespace="sticky.access")

    def expect(self) -> None:
        """There are lines to be had: take them soon. Not called while they are `expected`."""
        self.expected = True
        self._call = self._clock.callLater(FLUSH_AFTER, self._late)

    def _late(self) -> None:
        self._call = None
        self.expected = False
        self.flush()

    def flush(self) -> None:
        """Write what there is."""
        lines = self.fill()
        if not lines:
            return
        try:
            self._write("".join(lines).encode("ascii", "backslashreplace"))
        except OSError as error:
            self.dropped += 1
            now = self._clock.seconds()
            if now - self._said_at >= SAY_EVERY:
                self._said_at = now
                self._log.error("the access log cannot be written: {reason}", reason=error.strerror, path=self.path)

    def close(self) -> None:
        """Write what there is, and close the file."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
            self.expected = False
        self.flush()
        if self.path is not None and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        if self.path is not None:
            self._follow(self.path)
        while data:
            data = data[os.write(self._fd, data) :]

    def _follow(self, path: Path) -> None:
        """Open the file, anew if it was renamed: that is how logrotate works."""
        now = self._clock.seconds()
        if self._fd >= 0 and now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        if self._fd >= 0:
            try:
                there, ours = path.stat(), os.fstat(self._fd)
            except FileNotFoundError:
                pass
            else:
                if (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev):
                    return
            os.close(self._fd)
            self._fd = -1
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

"""Lines into a file or to standard output: in batches, appended, with log rotation by renaming. Knows nothing of what they say."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from pathlib import Path

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

FLUSH_AFTER = 0.2  #: seconds that a line may wait
LOOK_EVERY = 2.0  #: seconds between two looks whether the file has been renamed
SAY_EVERY = 60.0  #: seconds between two error lines

STDOUT = 1
TOO_SLOW = "{count} batches of the access log were dropped: its reader did not keep up"


class Lines:
    """Where lines go. What cannot be written is dropped and counted: neither a full disk nor a reader who stops must stop the
    service.

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
        self._rest = b""  # what a slow reader has not taken of the last batch: a line may be cut there
        # Batches dropped that nobody has been told of; said when there is room, for the log may go there too.
        self._unsaid = 0
        self._regular_fd = -1  # the descriptor that was looked at last
        self._regular = False
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
        if lines:
            try:
                self._write("".join(lines).encode("ascii", "backslashreplace"))
            except OSError as error:
                self.dropped += 1
                self._say("the access log cannot be written: {reason}", reason=error.strerror, path=self.path)

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
        if self._never_waits():
            while data:
                data = data[os.write(self._fd, data) :]
            return
        waited = self._rest
        self._rest = self._write_some(waited)
        if self._rest:
            self.dropped += 1
            self._unsaid += 1
            return
        self._rest = self._write_some(data)
        if (
            self._unsaid
            and not self._rest
            and self._has_room()
            and self._say(TOO_SLOW, count=self._unsaid, path=self.path)
        ):
            self._unsaid = 0

    def _never_waits(self) -> bool:
        """Whether a write blocks only for as long as a disk does. Pipes, sockets and terminals have readers, who may stop."""
        if self._regular_fd != self._fd:
            self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
            self._regular_fd = self._fd
        return self._regular

    def _write_some(self, data: bytes) -> bytes:
        """Write as much as goes without waiting; returns the rest.

        Standard output is shared with whoever started us, so that it cannot be made non-blocking: what is asked for before each
        piece is room for so much as a pipe takes or refuses whole (pipe(7), PIPE_BUF).
        """
        while data and self._has_room():
            data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        return data

    def _has_room(self) -> bool:
        room = select.poll()
        room.register(self._fd, select.POLLOUT)
        return bool(room.poll(0))  # for an error, too: the write meets it

    def _say(self, text: str, **fields: object) -> bool:
        now = self._clock.seconds()
        if now - self._said_at < SAY_EVERY:
            return False
        self._said_at = now
        self._log.error(text, **fields)
        return True

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
            self._fd = self._regular_fd = -1
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)

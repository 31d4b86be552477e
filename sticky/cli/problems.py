"""What can go wrong for whoever types a command: a text for that person, and the exit status. Must not know any command."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses of `sticky`."""

    DONE = 0
    FAILED = 1  # it was tried and failed
    USAGE = 2  # the command line, the configuration or the app is wrong
    NO_DAEMON = 3  # no daemon answers there, or not one that this command understands
    NOT_FOUND = 4  # the daemon knows no such Server, container or session
    HUNG_UP = 129  # SIGHUP: the terminal was closed
    INTERRUPTED = 130  # Ctrl-C
    PIPE_CLOSED = 141  # whoever read the output left
    TERMINATED = 143  # SIGTERM


MEANINGS = {
    Status.DONE: "done",
    Status.FAILED: "it was tried and failed",
    Status.USAGE: "the command line, the configuration or the app is wrong",
    Status.NO_DAEMON: "no daemon answers there, or one of another version",
    Status.NOT_FOUND: "there is no such Server, container or session, or not any more",
    Status.HUNG_UP: "the terminal was closed (SIGHUP)",
    Status.INTERRUPTED: "Ctrl-C",
    Status.PIPE_CLOSED: "whoever read the output left (SIGPIPE)",
    Status.TERMINATED: "SIGTERM",
}


class Problem(Exception):
    """Ends a command. One line: what, where, why; `advice` says what next. Neither holds a token."""

    def __init__(self, text: str, status: int = Status.FAILED, advice: str = "", code: str = "") -> None:
        """`code`: the refusal's, where the daemon refused."""
        super().__init__(text)
        self.code = code
        self.text = text
        self.status = status
        self.advice = advice

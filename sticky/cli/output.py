"""How commands speak: tables for people, JSON for programs, colour only on a terminal. Must not know what is shown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from sticky.cli.fitting import Column, Fitting

#: How the state of something is shown.
STYLES = {
    "ready": "green",
    "active": "green",
    "ok": "green",
    "warm": "green",
    "warming": "yellow",
    "dead": "bold red",
    "starting": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "serving": "green",
    "leaving": "yellow",
    "empty": "yellow",
    "warn": "yellow",
    "failed": "bold red",
    "fail": "bold red",
    "ended": "dim",
}
PATIENCE = 0.7  #: seconds
#: How errors begin in Python, JavaScript, Java, Go, Rust and C.
_ERROR = re.compile(
    r"(?:[\w.:]*(?:Error|Exception)\b.*:|Exception in thread|panic:|fatal|thread '.*' panicked|error:)", re.IGNORECASE
)
_BANNER = re.compile(r"Node\.js v[\d.]+")  # what Node says last
_UNBOUNDED = 100_000  # columns of what is no terminal: nothing is wrapped or cut for it


class _Console(Console):
    """One that leaves it to the command what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        """Called while the error is handled: let it go on."""
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """For stdout as it is now. Colours only where it is a terminal and NO_COLOR is not set."""
    stream = sys.stdout if file is None else file
    terminal = stream.isatty()
    return _Console(
        file=stream, highlight=False, emoji=False, markup=False, width=None if terminal else _UNBOUNDED, soft_wrap=False
    )


def show(*parts: RenderableType) -> None:
    """Print to stdout, without blanks at the ends of lines where that is no terminal."""
    target = console()
    if target.is_terminal:
        for part in parts:
            target.print(part)
        return
    with target.capture() as captured:
        for part in parts:
            target.print(part)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cut_off(found: Mapping[str, Any]) -> list[str]:
    """Lines about workers that did not take what was decided: none of them serves any more."""
    return [
        f"warning: {name} was silent and was cut off; what it served is broken, clients come back to another process"
        for name in found.get("cut_off", ())
    ]


def say(text: str) -> None:
    """A line on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line on stderr, for the person: stdout stays what a program reads."""
    sys.stderr.write(f"sticky: {text}\n")


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """On stderr, where that is a terminal: what is waited for, once it takes long enough to wonder. Gone afterwards."""
    target = console(sys.stderr)
    if not target.is_terminal or target.is_dumb_terminal:
        yield
        return
    status = target.status(Text(text))
    timer = Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def as_json(value: Any) -> None:
    """A value on stdout, for programs."""
    say(json.dumps(value, indent=2))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    right: Sequence[str] = (),
    wrapped: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> Fitting:
    """Aligned columns without lines. `right`: the columns of numbers; `wrapped`: those whose text may take several lines.

    `spare`: those that are left out, in this order, where a terminal is too narrow for all.
    """
    return Fitting(
        [
            Column(name, name in right, name in wrapped, 1 + spare.index(name) if name in spare else 0)
            for name in columns
        ],
        [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows],
    )


def facts_table(facts: Mapping[str, str]) -> Table:
    """Names and values, below each other."""
    made = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in facts.items():
        made.add_row(name, Text(value, style=STYLES.get(value, "")))
    return made


def counted(number: int, what: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=STYLES.get(name, ""))


def duration(seconds: float | None) -> str:
    """For people: two units at most."""
    if seconds is None:
        return "-"
    if seconds < 0:
        return "0s"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for unit, size, smaller, part in (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86_400, "h", 3600)):
        if whole < size * {"m": 60, "h": 24, "d": 10**9}[unit]:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{whole}s"


def telling(lines: Sequence[str]) -> str:
    """Of the last lines that a program wrote, the one that says most about its end: an error's own, else the last. Or nothing."""
    said = [line.strip() for line in lines if line.strip() and _BANNER.fullmatch(line.strip()) is None]
    return next((line for line in reversed(said) if _ERROR.match(line)), said[-1] if said else "")


def printable(text: str) -> str:
    """Somebody else's text, without the control characters that could play with a terminal."""
    return "".join(
        character if character.isprintable() or character == "\t" else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def printable_lines(text: str) -> str:
    """The same of a text that may have several lines: all but the first are indented, so that none is taken for another text."""
    return "\n    ".join(printable(line) for line in text.rstrip("\n").split("\n"))

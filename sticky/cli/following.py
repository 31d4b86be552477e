"""Prints what containers write, from their log files, for as long as a block runs. Must not know why they run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import unquote

from rich.text import Text

from sticky.admin.tails import Tail
from sticky.cli.output import console, printable

POLL = 0.1  #: seconds between two looks at the files
_ALL = 1_000_000  # lines of a file that are there already


class Following:
    """The files of one folder; `look` prints what is new. `earlier`: also what is there already."""

    def __init__(self, folder: Path, *, earlier: bool = True) -> None:
        self._folder = folder
        self._tails: dict[Path, Tail] = {}
        for path in () if earlier else folder.glob("*.log"):
            self._tails[path] = Tail(path, 0)
            self._tails[path].lines()  # from its end on

    def look(self, *, last: bool = False) -> None:
        """`last`: nothing more will come, so a line without an end is one."""
        for path in sorted(self._folder.glob("*.log")):
            tail = self._tails.setdefault(path, Tail(path, _ALL))
            while lines := tail.lines():
                self._print(path, lines)
            if last:
                self._print(path, tail.rest())

    def _print(self, path: Path, lines: list[str]) -> None:
        server, _, container = path.name.removesuffix(".log").rpartition(".")
        target = console(sys.stderr)
        for line in lines:
            prefix = (f"{unquote(server)} {unquote(container)[:9]} | ", "cyan")
            target.print(Text.assemble(prefix, printable(line)), soft_wrap=True)
        sys.stderr.flush()


@contextmanager
def following(folder: Path, *, earlier: bool = True) -> Iterator[None]:
    """On stderr, until the block has ended, and then the rest. stdout is the program's own."""
    files, ended = Following(folder, earlier=earlier), Event()

    def follow() -> None:
        while not ended.wait(POLL):
            files.look()

    thread = Thread(target=follow, name="following", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        files.look(last=True)

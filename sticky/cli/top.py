"""`sticky top`: status on the whole screen, again and again, with rates. Ends with q or Ctrl-C and leaves the terminal as it was."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon
from sticky.cli.output import console, duration, table
from sticky.cli.problems import Problem, Status
from sticky.cli.status import container_table, headline, server_table, trouble

WINDOW = 10.0  #: seconds over which rates are taken
_COUNTED = ("granted", "refused", "requests")


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "top", "sticky top --interval 0.5")
    @click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, metavar="SECONDS",
                  help="Time between two looks.")  # fmt: skip
    @daemon
    def top(interval: float, admin: Admin) -> None:
        """Watch it all on the whole screen.

        Servers, containers, sessions, queues and rates. q ends it.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Problem("top needs a terminal", Status.USAGE, "For programs: sticky status --json")
        watch(admin, interval)


class Rates:
    """Counts of a second, over the last `WINDOW` seconds, by Server."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, dict[str, int]]]] = {}

    def note(self, now: float, server: str, totals: dict[str, int]) -> dict[str, float]:
        """One look; the rates as they are now. A daemon that was restarted counts from anew."""
        seen = self._seen.setdefault(server, deque())
        if seen and any(totals[name] < seen[-1][1][name] for name in _COUNTED):
            seen.clear()
        seen.append((now, totals))
        while len(seen) > 2 and seen[1][0] <= now - WINDOW:
            seen.popleft()
        then, before = seen[0]
        return {name: (totals[name] - before[name]) / (now - then) if now > then else 0.0 for name in _COUNTED}


def watch(admin: Admin, interval: float) -> None:
    """Until q, Ctrl-C or the daemon's end."""
    rates = Rates()
    first = screen(admin.status(), rates, time.monotonic(), None)
    with _keys(), Live(first, console=console(), screen=True, auto_refresh=False) as live:
        while not _pressed(interval):
            live.update(screen(admin.status(), rates, time.monotonic(), live.console.height), refresh=True)


def screen(found: dict[str, Any], rates: Rates, now: float, height: int | None) -> RenderableType:
    """What is shown: the daemon, Servers, rates, and as many containers as fit, the busiest first."""
    servers = found["servers"]
    troubles = [line for server in servers for line in trouble(server)]
    rows = []
    for server in servers:
        rate = rates.note(now, server["name"], server["totals"])
        queue = server["queue"]
        rows.append(
            [
                server["name"],
                f"{rate['granted']:.1f}/s",
                f"{rate['refused']:.1f}/s",
                f"{rate['requests']:.1f}/s",
                bar(server["sessions"]["active"] + server["sessions"]["draining"], _places(server)),
                duration(queue["oldest"]),
            ]
        )
    columns = ["RATES", "STARTS", "REFUSED", "REQUESTS", "PLACES TAKEN", "LONGEST WAIT"]
    containers = sorted(
        (container for server in servers for container in server["containers"]),
        key=lambda container: (-container["sessions"], container["age"]),
    )
    room = None if height is None else max(3, height - 10 - 2 * len(servers) - len(troubles))
    shown = containers if room is None else containers[:room]
    hidden = len(containers) - len(shown)
    parts: list[RenderableType] = [
        headline(found["daemon"]),
        Text(),
        server_table(servers),
        Text(),
        table(
            columns, rows, right=("STARTS", "REFUSED", "REQUESTS", "LONGEST WAIT"), spare=("LONGEST WAIT", "REFUSED")
        ),
        Text(),
        container_table(shown) if shown else Text("no containers", style="dim"),
    ]
    if hidden:
        parts.append(Text(f"and {hidden} more", style="dim"))
    return Group(*parts, Text(), *troubles, Text("q ends", style="dim"))


def bar(taken: int, places: int, width: int = 20) -> Text:
    """How full the open containers are."""
    share = min(1.0, taken / places) if places else 0.0
    full = round(share * width)
    style = "green" if share < 0.7 else "yellow" if share < 1 else "red"
    return Text.assemble(("█" * full, style), ("░" * (width - full), "dim"), f" {taken} of {places}")


def _places(server: dict[str, Any]) -> int:
    return sum(one["limit"] for one in server["containers"] if one["state"] in ("ready", "draining"))


@contextmanager
def _keys() -> Iterator[None]:
    """Single keys instead of lines, and no echo."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(within: float) -> bool:
    """Wait for a key; whether it was one that ends this. Escape does, an arrow, whose bytes begin with it, does not."""
    ready, _, _ = select.select([sys.stdin], [], [], within)
    return bool(ready) and os.read(sys.stdin.fileno(), 64) in (b"q", b"Q", b"\x1b", b"")

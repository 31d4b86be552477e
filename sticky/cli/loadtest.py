"""`sticky loadtest`: the command and its report. Who plays the clients is `load`."""

from __future__ import annotations

import sys
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output, server_argument
from sticky.cli.output import as_json as print_json
from sticky.cli.output import console, counted, note, say, show, table
from sticky.cli.problems import Problem, Status


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "loadtest", "sticky loadtest game --sessions 200 --rate 50 --hold 30 --path /ws")
    @server_argument
    @click.option(
        "-s", "--sessions", "count", type=click.IntRange(1, 20_000), default=20, show_default=True, help="Sessions."
    )
    @click.option(
        "--rate", type=click.FloatRange(0.1), default=20.0, show_default=True, metavar="N", help="Starts a second."
    )
    @click.option("--hold", type=click.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
                  help="How long each connection is held.")  # fmt: skip
    @click.option("--reconnects", type=click.IntRange(0, 1000), default=1, show_default=True,
                  help="How often each client comes back to its session.")  # fmt: skip
    @click.option("--path", default="/", show_default=True, help="Where the Server takes WebSockets.")
    @click.option("--ping", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS",
                  help="Time between two pings, whose round trip is measured.")  # fmt: skip
    @daemon
    @json_output
    def loadtest(
        server: str | None,
        count: int,
        rate: float,
        hold: float,
        reconnects: int,
        path: str,
        ping: float,
        admin: Admin,
        as_json: bool,
    ) -> int:
        """Play many clients and report.

        Starts sessions, holds a WebSocket to each, comes back, ends them, and reports times and failures.

        Exits with 1 if anything failed. Starts go through the Server's own URL, with the proxy token of STICKY_PROXY_TOKEN
        or of the state directory. Ctrl-C ends early, with a report.
        """
        from sticky.cli.load import Plan, play

        if not path.startswith("/"):
            raise click.BadParameter("it must begin with /", param_hint="--path")
        brand = admin.status()["daemon"]["brand"]
        found = admin.server(server, "sticky loadtest NAME")
        if not found["sessioned"]:
            raise Problem(f"{found['name']} is a plain Server: it has no sessions", Status.USAGE)
        bearer = admin.bearer(found["name"])
        if bearer is None and not found["unauthenticated"]:
            raise Problem("there is no proxy token to start sessions with", Status.USAGE, "Set STICKY_PROXY_TOKEN.")
        plan = Plan(
            url=found["url"],
            brand=brand,
            bearer=bearer,
            sessions=count,
            rate=rate,
            hold=hold,
            reconnects=reconnects,
            path=path,
            ping=ping,
        )
        report, interrupted = play(plan, console(sys.stderr) if sys.stderr.isatty() else None)
        if as_json:
            print_json(report)
        else:
            _show(report)
        if interrupted:
            return Status.INTERRUPTED
        return Status.FAILED if report["failures"] else Status.DONE


def _show(report: dict[str, Any]) -> None:
    rows = []
    for name, figures in report["times"].items():
        cells = (
            [_milliseconds(figures[part]) for part in ("p50", "p90", "p99", "max")] if figures["count"] else ["-"] * 4
        )
        rows.append([name, str(figures["count"]), *cells])
    columns = ["", "COUNT", "P50", "P90", "P99", "MAX"]
    show(table(columns, rows, right=columns[1:]))
    say("")
    say(f"{report['seconds']:.1f} s, {counted(report['most_at_once'], 'connection')} at once at most")
    for what, count in report["failures"].items():
        note(f"{counted(count, 'time')}: {what}")
    if any(what.startswith("no WebSocket") for what in report["failures"]):
        note("--path says where the Server takes WebSockets")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"

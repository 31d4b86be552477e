"""`sticky logs`: what containers write and what the daemon says, by Server, container or session."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from sticky.cli.client import Admin, path
from sticky.cli.options import command, containers, daemon, json_output, server, sessions
from sticky.cli.output import console, note, printable, printable_lines
from sticky.cli.problems import Problem, Status

_COLOURS = ("cyan", "magenta", "blue", "green", "yellow", "bright_cyan", "bright_magenta", "bright_blue")


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "logs", "sticky logs -f --server game\nsticky logs --session sd-4Kx0 -n 20")
    @click.option("-f", "--follow", is_flag=True, help="Go on as more is written, until Ctrl-C.")
    @click.option("-n", "--lines", type=click.IntRange(0, 100_000), default=100, show_default=True,
                  help="Lines of each container to begin with.")  # fmt: skip
    @server
    @click.option("--container", metavar="ID", shell_complete=containers, help="Only of this container.")
    @click.option(
        "--session", metavar="ID", shell_complete=sessions,
        help="Of this session's container, with the daemon's own lines about the session.",
    )  # fmt: skip
    @click.option("--daemon", "events", is_flag=True, help="What the daemon itself says, requests included.")
    @daemon
    @json_output
    def logs(
        follow: bool,
        lines: int,
        server: str | None,
        container: str | None,
        session: str | None,
        events: bool,
        admin: Admin,
        as_json: bool,
    ) -> None:
        """Print the output of containers.

        Of all, or of some.
        """
        if sum(one is not None for one in (server, container, session)) > 1:
            raise click.UsageError("Give one of --server, --container and --session.")
        query: dict[str, object] = {"follow": int(follow), "lines": lines, "server": server, "container": container}
        if session is not None:
            query |= _of_session(admin, session)
        elif events:
            query["kinds"] = "events"
        print_logs(admin, query, as_json=as_json, prefixed=container is None and session is None)


def _of_session(admin: Admin, session: str) -> Mapping[str, object]:
    try:
        found = admin.call("GET", path("sessions", session))
    except Problem as problem:
        if problem.status is not Status.NOT_FOUND:
            raise
        if problem.code == "unknown_session":
            # It may be one that the daemon has forgotten, and its log has not.
            return {"session": session, "kinds": "events", "follow": 0}
        note(f"{problem.text}; what the daemon said of it:")
        return {"session": session, "kinds": "events", "follow": 0}
    return {"session": found["id"], "container": found["container"], "kinds": "events,output"}


def print_logs(admin: Admin, query: Mapping[str, object], *, as_json: bool, prefixed: bool) -> None:
    """Print a stream of the admin API. `prefixed`: each line says which container wrote it."""
    lines = admin.stream("/v1/logs", query)
    if as_json:
        for line in lines:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        return
    _print(lines, prefixed)


def _print(lines: Iterable[dict[str, Any]], prefixed: bool) -> None:
    target = console()
    colours: dict[str, str] = {}
    for line in lines:
        if line["kind"] == "event":
            at = datetime.fromtimestamp(line["time"]).astimezone().isoformat(timespec="milliseconds")
            style = {"warn": "yellow", "error": "red", "critical": "bold red"}.get(line["level"], "dim")
            text = Text(f"{at} {line['level']:5} {printable_lines(line['text'])}", style=style)
        else:
            text = Text(printable(line["text"]))
            if prefixed:
                short = f"{line['server']} {line['container'][:9]}"
                colour = colours.setdefault(line["container"], _COLOURS[len(colours) % len(_COLOURS)])
                text = Text.assemble((f"{short} | ", colour), text)
        target.print(text, soft_wrap=True)
        sys.stdout.flush()

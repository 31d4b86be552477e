"""`sticky status`: the daemon, its workers, its Servers and their containers at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import duration, printable, show, state, table

LAST_LINES = 5  #: of a failed container's output


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "status", "sticky status\nsticky status --json | jq '.servers[].queue.waiting'")
    @daemon
    @json_output
    def status(admin: Admin, as_json: bool) -> None:
        """Show the daemon, its workers, Servers and containers.

        Also why containers failed, with the last lines of their output.
        """
        found = admin.status()
        if as_json:
            print_json(found)
        else:
            show(*page(found))


def page(found: dict[str, Any]) -> list[RenderableType]:
    """The whole answer for people."""
    servers, workers = found["servers"], found.get("workers", ())
    parts: list[RenderableType] = [headline(found["daemon"]), Text(), server_table(servers)]
    if workers:
        parts += [Text(), worker_table(workers)]
    containers = [container for server in servers for container in server["containers"]]
    if containers:
        parts += [Text(), container_table(containers), Text(), *left_behind(servers)]
    snapshots = [server for server in servers if server.get("snapshot") is not None]
    if snapshots:
        parts += [Text(), snapshot_table(snapshots)]
    for server in servers:
        troubles = list(trouble(server))
        if troubles:
            parts += [Text(), *troubles]
    return parts


def headline(daemon: dict[str, Any]) -> Text:
    """The daemon in a line."""
    facts = f"  pid {daemon['pid']}  up {duration(daemon['uptime'])}  {' '.join(daemon['listen'])}"
    return Text.assemble((f"sticky {daemon['version']}", "bold"), facts, f"  state {daemon['state_dir']}")


def server_table(servers: Iterable[dict[str, Any]]) -> RenderableType:
    """A row for each Server."""
    rows = []
    for server in servers:
        sessions, queue = server["sessions"], server["queue"]
        states = [container["state"] for container in server["containers"] if container.get("newest", True)]
        others = [f"{states.count(name)} {name}" for name in ("starting", "draining", "stopping") if name in states]
        old = len(server["containers"]) - len(states)
        others += [f"{old} old"] if old else []  # of earlier deployments: they do not count against the limit
        count = f"{states.count('ready')} of {server['limits']['max_containers']}"
        waits = f" ({duration(queue['oldest'])})" if queue["waiting"] else ""
        rows.append(
            [
                server["name"],
                count + (f", {', '.join(others)}" if others else ""),
                f"{sessions['active']}" + (f", {sessions['draining']} draining" if sessions["draining"] else ""),
                str(sessions["in_flight"]),
                Text(f"{queue['waiting']}{waits}", style="yellow" if queue["waiting"] else ""),
                str(server["totals"]["granted"]),
                Text(str(server["totals"]["refused"]), style="red" if server["totals"]["refused"] else ""),
                (server["url"] or "-") + (" (stopping)" if server["stopping"] else ""),
            ]
        )
    columns = ["SERVER", "READY", "SESSIONS", "IN FLIGHT", "QUEUE", "STARTED", "REFUSED", "URL"]
    return table(columns, rows, right=("IN FLIGHT", "QUEUE", "STARTED", "REFUSED"), spare=("STARTED", "IN FLIGHT"))


def worker_table(workers: Iterable[dict[str, Any]]) -> RenderableType:
    """A row for each process that serves clients beside the daemon."""
    rows = [
        [
            worker["name"],
            state(worker["state"]),
            str(worker["pid"] or "-"),
            "-" if worker["age"] is None else duration(worker["age"]),
            Text(str(worker["restarts"]), style="yellow" if worker["restarts"] else ""),
            str(worker["clients"]),
            str(worker["in_flight"]),
            str(worker["sessions"]),
        ]
        for worker in workers
    ]
    columns = ["WORKER", "STATE", "PID", "AGE", "RESTARTS", "CLIENTS", "IN FLIGHT", "SESSIONS HELD"]
    return table(columns, rows, right=("PID", "AGE", "RESTARTS", "CLIENTS", "IN FLIGHT", "SESSIONS HELD"))


def container_table(containers: Iterable[dict[str, Any]]) -> RenderableType:
    """A row for each container."""
    rows = [
        [
            container["id"],
            container["server"],
            Text.assemble(state(container["state"]), ("" if container.get("newest", True) else ", old", "dim")),
            duration(container["age"]),
            f"{container['sessions']} of {container['limit']}",
            str(container["in_flight"]),
            container["address"] or "-",
            str(container["pid"] or "-"),
        ]
        for container in containers
    ]
    columns = ["CONTAINER", "SERVER", "STATE", "AGE", "SESSIONS", "IN FLIGHT", "ADDRESS", "PID"]
    return table(columns, rows, right=("AGE", "SESSIONS", "IN FLIGHT", "PID"), spare=("ADDRESS", "PID", "IN FLIGHT"))


def left_behind(servers: Iterable[dict[str, Any]]) -> Iterable[Text]:
    """A line for each Server with containers: what becomes of that which they start and leave behind, and by which means."""
    for server in servers:
        means = sorted({container["descendants"] for container in server["containers"]} - {None})
        for one in means:
            if one == "best_effort":
                yield Text(f"{server['name']}: what hides from its container may outlive it ({one})", style="yellow")
            else:
                yield Text(f"{server['name']}: nothing that a container started outlives it ({one})", style="dim")


def snapshot_table(servers: Iterable[dict[str, Any]]) -> RenderableType:
    """A row for each Server whose containers are forked."""
    rows = []
    for server in servers:
        found = server["snapshot"]
        memory = "-" if found["memory"] is None else f"{found['memory'] / (1 << 20):.0f} MiB"
        rows.append([server["name"], state(found["state"]), memory, str(found["pid"] or "-")])
    return table(["SNAPSHOT OF", "STATE", "MEMORY", "PID"], rows, right=("MEMORY", "PID"))


def trouble(server: dict[str, Any]) -> Iterable[Text]:
    """Lines about what is wrong with a Server; none if nothing is."""
    failures = server["failures"]
    if failures["in_a_row"]:
        wait = failures["next_attempt_in"]
        times = "once" if failures["in_a_row"] == 1 else f"{failures['in_a_row']} times in a row"
        words = [f"{server['name']}: a container failed to start {times}"]
        if failures["refusing_starts"]:
            words.append("session starts are refused (containers_failing)")
        words.append("the next attempt is due" if wait is None else f"next attempt in {duration(wait)}")
        yield Text("; ".join(words), style="bold red")
    if (server.get("snapshot") or {}).get("problem"):
        problem = printable(server["snapshot"]["problem"])
        yield Text(f"{server['name']}: containers start from scratch, there is no snapshot: {problem}", style="yellow")
    last = next((one for one in server["ended"] if one["failed"]), None)
    if last is not None:
        yield Text(
            f"{server['name']}: {last['id']} failed {duration(last['ended_ago'])} ago: {printable(last['message'])}"
        )
        for line in last["last_lines"][-LAST_LINES:]:
            yield Text(f"    {printable(line)}", style="dim")

"""`sticky containers`: list, show, logs, stop."""

from __future__ import annotations

import click

from sticky.cli import logs
from sticky.cli.client import Admin, path
from sticky.cli.options import Group, command, container_argument, daemon, json_output, server
from sticky.cli.output import as_json as print_json
from sticky.cli.output import counted, duration, facts_table, note, printable, say, show, state, table
from sticky.cli.problems import Problem, Status
from sticky.cli.status import container_table


@click.group("containers", cls=Group, no_args_is_help=True)
def group() -> None:
    """Containers: running copies of a Server."""


def add_to(root: click.Group) -> None:
    """Register the group."""
    root.add_command(group)


@command(group, "list", "sticky containers list --server game --all")
@server
@click.option("--all", "everything", is_flag=True, help="Also those that have ended lately.")
@daemon
@json_output
def list_(server: str | None, everything: bool, admin: Admin, as_json: bool) -> None:
    """List containers."""
    found = admin.call("GET", "/v1/containers", {"server": server})
    if not everything:
        del found["ended"]
    if as_json:
        print_json(found)
        return
    show(container_table(found["containers"]))
    if everything and found["ended"]:
        rows = [
            [
                one["id"],
                one["server"],
                state("failed" if one["failed"] else "ended"),
                f"{duration(one['ended_ago'])} ago",
                printable(one["message"]),
            ]
            for one in found["ended"]
        ]
        say("")
        show(table(["ENDED", "SERVER", "HOW", "WHEN", "WHY"], rows, right=("WHEN",), wrapped=("WHY",)))


@command(group, "show", "sticky containers show ct-8sKd")
@container_argument
@daemon
@json_output
def show_(container: str, admin: Admin, as_json: bool) -> None:
    """Show one container, its sessions, or how it ended."""
    found = admin.call("GET", "/v1/containers")
    ids = [one["id"] for one in (*found["containers"], *found["ended"]) if one["id"].startswith(container)]
    if len(set(ids)) > 1 and container not in ids:
        raise Problem(f"several containers begin with {container!r}", Status.USAGE, "Write more of the id.")
    identity = container if container in ids else next(iter(ids), None)
    one = next((one for one in (*found["containers"], *found["ended"]) if one["id"] == identity), None)
    if one is None:
        raise Problem(
            f"there is no container {container!r}", Status.NOT_FOUND, "List them: sticky containers list --all"
        )
    live = "state" in one
    sessions = admin.call("GET", "/v1/sessions", {"container": identity, "limit": 1000})["sessions"] if live else []
    if as_json:
        print_json({**one, "session_ids": [session["id"] for session in sessions]})
        return
    facts = {
        "container": one["id"],
        "server": one["server"],
    }
    if live:
        facts |= {
            "state": one["state"],
            "deployment": one["deployment"] + ("" if one.get("newest", True) else " (an old one)"),
            "age": f"{duration(one['age'])}, at most {duration(one['age'] + one['age_left'])}",
            "address": one["address"] or "-",
            "process": str(one["pid"] or "-"),
            "descendants": one["descendants"] or "-",
            "sessions": f"{one['sessions']} of {one['limit']}",
            "in flight": str(one["in_flight"]),
        }
    else:
        facts |= {"ended": f"{duration(one['ended_ago'])} ago", "how": printable(one["message"])}
    show(facts_table(facts))
    for line in one.get("last_lines", ()):
        say(f"    {printable(line)}")
    for session in sessions:
        say(f"    {session['id']}  {session['state']}  {session['in_flight']} in flight")


@command(group, "logs", "sticky containers logs -f ct-8sKd")
@container_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the container ends.")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 100_000), default=100, show_default=True, help="Lines to begin with."
)
@daemon
@json_output
def logs_(container: str, follow: bool, lines: int, admin: Admin, as_json: bool) -> None:
    """Print what a container wrote, also one that has ended."""
    logs.print_logs(
        admin, {"container": container, "follow": int(follow), "lines": lines}, as_json=as_json, prefixed=False
    )


@command(group, "stop", "sticky containers stop ct-8sKd")
@container_argument
@daemon
@json_output
def stop(container: str, admin: Admin, as_json: bool) -> None:
    """Drain a container and stop it.

    Its sessions end with reason server_stopped, after exit_grace_period at the latest.
    """
    found = admin.call("POST", path("containers", container, "stop"))
    if as_json:
        print_json(found)
        return
    left = ""
    if found["sessions"]:
        grace = admin.server(found["server"])["limits"]["exit_grace_period"]
        left = f"; {counted(found['sessions'], 'session')} with something in flight can go on for {duration(grace)} at most"
    note(f"{found['id']} of {found['server']} is {found['state']}{left}")

"""`sticky sessions`: list, show, start, terminate, release, extend. `open` is next door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sticky.cli.client import Admin, path
from sticky.cli.options import (
    Group,
    command,
    containers,
    daemon,
    json_output,
    server,
    server_argument,
    servers,
    session_argument,
)
from sticky.cli.output import as_json as print_json
from sticky.cli.output import counted, duration, facts_table, note, printable, say, show, state, table, waiting
from sticky.cli.problems import Problem, Status

PAGE = 500  #: sessions that are asked for at once


@click.group("sessions", cls=Group, no_args_is_help=True)
def group() -> None:
    """Sessions: one client's or room's stay on one container."""


def add_to(root: click.Group) -> None:
    """Register the group."""
    root.add_command(group)


@command(group, "list", "sticky sessions list --server game --owner dev")
@server
@click.option("--container", metavar="ID", shell_complete=containers, help="Only of this container.")
@click.option("--owner", metavar="NAME", help="Only of this owner (of a proxy token; a client's address without one).")
@click.option("--limit", type=click.IntRange(1), help="At most so many.  [default: all]")
@daemon
@json_output
def list_(
    server: str | None, container: str | None, owner: str | None, limit: int | None, admin: Admin, as_json: bool
) -> None:
    """List sessions, in the order of their ids."""
    found: list[dict[str, Any]] = []
    after = None
    while limit is None or len(found) < limit:
        page = PAGE if limit is None else min(PAGE, limit - len(found))
        query = {"server": server, "container": container, "owner": owner, "after": after, "limit": page}
        answer = admin.call("GET", "/v1/sessions", query)
        found += answer["sessions"]
        after = answer["next"]
        if after is None:
            break
    if as_json:
        print_json({"sessions": found, "next": after})
        return
    named = ["NAME"] if any(one["name"] is not None for one in found) else []
    rows = [
        [
            one["id"],
            one["server"],
            one["container"],
            state(one["state"]),
            one["owner"],
            *([_name(one)] if named else []),
            duration(one["age"]),
            str(one["in_flight"]),
            _ends_in(one),
        ]
        for one in found
    ]
    columns = ["SESSION", "SERVER", "CONTAINER", "STATE", "OWNER", *named, "AGE", "IN FLIGHT", "ENDS IN"]
    show(table(columns, rows, right=("AGE", "IN FLIGHT", "ENDS IN"), spare=("OWNER", "AGE", *named)))
    if after is not None:
        note("there are more; raise --limit")


@command(group, "show", "sticky sessions show sd-4Kx0")
@session_argument
@daemon
@json_output
def show_(session: str, admin: Admin, as_json: bool) -> None:
    """Show one session."""
    _show(admin.call("GET", path("sessions", session)), as_json)


@command(
    group,
    "start",
    "sticky sessions start game --idle-timeout 3600\n"
    "sticky sessions start game --name lobby\n"
    "TOKEN=$(sticky sessions start game --json | jq -r .token)",
)
@server_argument
@click.option(
    "--idle-timeout", type=click.IntRange(1), metavar="SECONDS", help="End after so long with nothing in flight."
)
@click.option("--name", metavar="NAME", help="The session of this name: it is found, or started if it never was.")
@daemon
@json_output
def start(server: str | None, idle_timeout: int | None, name: str | None, admin: Admin, as_json: bool) -> None:
    """Start a session and print its token.

    Its owner is the operator, whose names are its own. Everyone who has the token shares the session.
    """
    served = admin.server(server, "sticky sessions start NAME")["name"]
    with waiting(f"waiting for a place on {served}; Ctrl-C leaves the queue"):
        given = admin.start(served, idle_timeout, name)
    if as_json:
        print_json(given)
        return
    there = "" if given["created"] else ", which was there already"
    note(
        f"session {given['session_id']} of {served} at {given['url']}{there};"
        f" it ends after {duration(given['idle_timeout'])} idle"
    )
    note(f"use it: sticky curl --session {given['session_id']} /    or: sticky sessions open {given['session_id']}")
    say(given["token"])


@command(
    group, "terminate", "sticky sessions terminate sd-4Kx0 --grace 30\nsticky sessions terminate --all --server game"
)
@click.argument("session", metavar="[SESSION]", required=False)
@click.option("--all", "everything", is_flag=True, help="All sessions of --server.")
@server
@click.option("--grace", type=click.FloatRange(0, 3600), metavar="SECONDS", help="Cut what is in flight after so long.")
@daemon
@json_output
def terminate(
    session: str | None, everything: bool, server: str | None, grace: float | None, admin: Admin, as_json: bool
) -> None:
    """End a session: nothing new from now on, what is in flight completes."""
    if everything == (session is not None) or (everything and server is None):
        raise click.UsageError("Give one SESSION, or --all with --server.")
    if session is not None:
        done = admin.terminate(session, grace)
        if as_json:
            print_json({"terminated": [done["session_id"]], "draining": [done] if done.get("in_flight") else []})
        else:
            note(f"{done['session_id']} is terminated" + _goes_on([done]))
        return
    terminated: list[str] = []
    draining: list[dict[str, Any]] = []
    after = None
    while True:
        page = admin.call("GET", "/v1/sessions", {"server": server, "after": after, "limit": PAGE})
        for one in page["sessions"]:
            try:
                done = admin.terminate(one["id"], grace)
            except Problem as problem:
                if problem.status is not Status.NOT_FOUND:
                    raise
                continue  # it has ended meanwhile
            terminated.append(one["id"])
            draining += [done] if done.get("in_flight") else []
        after = page["next"]
        if after is None:
            break
    if as_json:
        print_json({"terminated": terminated, "draining": draining})
    else:
        verb = "is" if len(terminated) == 1 else "are"
        note(f"{counted(len(terminated), 'session')} of {server} {verb} terminated" + _goes_on(draining))


def _goes_on(draining: Sequence[Mapping[str, Any]]) -> str:
    """What is in flight still of sessions that were terminated, and for how long at most."""
    number = sum(one.get("in_flight", 0) for one in draining)
    if not number:
        return ""
    limits = [one["age_left"] if one["cut_left"] is None else one["cut_left"] for one in draining]
    end = "" if None in limits else f", for {duration(max(limits))} at most"
    cut = " (--grace 0 cuts what is in flight)" if any(one["cut_left"] is None for one in draining) else ""
    what = "1 request or WebSocket goes" if number == 1 else f"{number} requests and WebSockets go"
    return f": nothing new from now on, but {what} on{end}{cut}"


@command(group, "release", "sticky sessions release lobby --server game")
@click.argument("name", metavar="NAME")
@click.option("--server", metavar="NAME", shell_complete=servers, help="Which Server.  [default: the only one]")
@click.option("--grace", type=click.FloatRange(0, 3600), metavar="SECONDS", help="Cut what is in flight after so long.")
@daemon
@json_output
def release(name: str, server: str | None, grace: float | None, admin: Admin, as_json: bool) -> None:
    """Free a name of the operator's: its session is terminated, its next use starts another."""
    served = admin.server(server)["name"]
    found = admin.call("POST", "/v1/sessions/release", body={"server": served, "name": name, "grace": grace})
    if as_json:
        print_json(found)
    else:
        done = found.get("session")
        ended = "" if done is None else f"; {done['session_id']} is terminated{_goes_on([done])}"
        note(f"the name {printable(name)!r} is free on {served}{ended}")


@command(group, "extend", "sticky sessions extend sd-4Kx0")
@session_argument
@daemon
@json_output
def extend(session: str, admin: Admin, as_json: bool) -> None:
    """Restart a session's idle clock."""
    _show(admin.call("POST", path("sessions", session, "extend")), as_json)


def _show(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    facts = {
        "session": one["id"],
        "server": one["server"],
        "container": one["container"],
        "deployment": one["deployment"],
        "owner": one["owner"],
        "name": _name(one),
        "state": one["state"] + (f" ({one['reason']})" if one["reason"] else ""),
        "in flight": str(one["in_flight"]),
        "age": duration(one["age"]),
        "idle timeout": duration(one["idle_timeout"]),
        "ends in": _ends_in(one),
        "container ends in": duration(one["age_left"]),
    }
    show(facts_table(facts))


def _name(one: Mapping[str, Any]) -> str:
    return "-" if one["name"] is None else printable(one["name"])


def _ends_in(one: dict[str, Any]) -> str:
    if one.get("cut_left") is not None:
        return duration(one["cut_left"])
    return "in use" if one["idle_left"] is None else duration(one["idle_left"])

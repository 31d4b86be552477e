"""`sticky keys`: the keys that session tokens are signed with."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import Group, command, daemon, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import cut_off, note, show, table
from sticky.cli.problems import Problem, Status


@click.group("keys", cls=Group, no_args_is_help=True)
def group() -> None:
    """Signing keys of session tokens."""


def add_to(root: click.Group) -> None:
    """Register the group."""
    root.add_command(group)


@command(group, "rotate", "sticky keys rotate\nsticky keys rotate --revoke --yes")
@click.option("--revoke", is_flag=True, help="Refuse all earlier tokens at once: for a key that somebody else has.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@daemon
@json_output
def rotate(revoke: bool, yes: bool, admin: Admin, as_json: bool) -> None:
    """Sign session tokens with a new key.

    Earlier tokens are good to their end. With --revoke they are not: clients must start other sessions, and those that nobody
    can reach any more end when they are idle too long.
    """
    if revoke and not yes:
        _confirm("Every session token of this daemon stops working now. Go on?")
    found = admin.call("POST", "/v1/keys/rotate", body={"revoke": revoke})
    for line in cut_off(found):
        note(line)
    if as_json:
        print_json(found)
        return
    note(f"session tokens are signed with {found['key']} now" + ("; earlier ones are refused" if revoke else ""))


def _confirm(question: str) -> None:
    """Raises `Problem` unless somebody says yes."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            click.echo(err=True)
            raise  # Ctrl-C
        agreed = False
    if not sys.stdin.isatty():
        click.echo(err=True)  # nobody's Enter has ended the line of the question
    if not agreed:
        raise Problem("nothing has changed", Status.FAILED, "With --yes it does not ask.")


@command(group, "list", "sticky keys list")
@daemon
@json_output
def list_(admin: Admin, as_json: bool) -> None:
    """List the keys whose tokens are good. Their private halves are not shown."""
    found: dict[str, Any] = admin.call("GET", "/v1/keys")
    if as_json:
        print_json(found)
        return
    rows = [[found["key"], "signs", "-"]]
    for one in found["retired"]:
        until = datetime.fromtimestamp(one["until"]).astimezone().isoformat(timespec="seconds")
        rows.append([one["id"], "retired", until])
    show(table(["KEY", "WHAT", "TOKENS GOOD UNTIL"], rows))

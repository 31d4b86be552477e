"""`sticky deploy` and `sticky rollout`: a new definition for a daemon that runs, and what is left of the one before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import Group, command, daemon, json_output, sources
from sticky.cli.output import as_json as print_json
from sticky.cli.output import counted, cut_off, note, say, show, table, waiting

READING = 120.0  #: seconds: an app may take 30 to import, and another deploy may be before this one

#: What became of a Server, for people.
WHAT = {
    "added": "is new",
    "removed": "is removed, its sessions end",
    "rolling": "is rolled over",
    "recreated": "is recreated, old containers stop",
    "live": "has other settings, its containers stay",
    "unchanged": "is unchanged",
}


@click.group("rollout", cls=Group, no_args_is_help=True)
def group() -> None:
    """What is left of earlier deployments, and the way back."""


def add_to(root: click.Group) -> None:
    """Register the commands."""

    @command(
        root,
        "deploy",
        "sticky deploy                       # the same files again, after a change\n"
        "sticky deploy releases/42/sticky.toml\n"
        "sticky deploy game.py --config sticky.toml --recreate",
    )
    @click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
    @click.option("--config", type=click.Path(), metavar="TOML", help="A configuration file beside the app.")
    @click.option("--recreate", is_flag=True, help="Stop old containers now: their sessions end (deployment_ended).")
    @click.option("--force", is_flag=True, help="New containers even where no setting and no program file has changed.")
    @daemon
    @json_output
    def deploy(file: str | None, config: str | None, recreate: bool, force: bool, admin: Admin, as_json: bool) -> None:
        """Bring a new definition to the running daemon.

        FILE is a sticky.toml, game.py, game.py:Server or package.module; without one the daemon reads again what it reads
        now. Old containers keep their sessions to the end, new sessions go to new containers; no open connection is touched.
        A definition that is wrong changes nothing.
        """
        config, app = sources(file, config)
        if not admin.here and any(one is not None and not Path(one).is_absolute() for one in (config, app)):
            raise click.UsageError("With --url files are the daemon's own: give absolute paths, or none to read again.")
        body = {"file": config, "app": app, "cwd": str(Path.cwd()), "recreate": recreate, "force": force}
        with waiting("the daemon reads the new definition"):
            found = admin.call("POST", "/v1/deploy", body=body, timeout=READING)
        _report(found, as_json)

    root.add_command(group)


@command(group, "status", "sticky rollout status")
@daemon
@json_output
def status(admin: Admin, as_json: bool) -> None:
    """Print which deployments there are, and the sessions that are left on old ones."""
    found = admin.call("GET", "/v1/rollout")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["server"],
            one["deployment"],
            "newest" if one["newest"] else "old",
            ", ".join(one["containers"]) or "-",
            str(one["sessions"]),
            str(one["in_flight"]),
        ]
        for one in found["deployments"]
    ]
    rows += [
        [one["server"], "-", "removed", str(one["containers"]), str(one["sessions"]), "-"] for one in found["leaving"]
    ]
    columns = ["SERVER", "DEPLOYMENT", "WHICH", "CONTAINERS", "SESSIONS", "IN FLIGHT"]
    show(table(columns, rows, right=("SESSIONS", "IN FLIGHT"), wrapped=("CONTAINERS",)))
    note(
        f"what is served was read from {found['sources']}"
        + ("; to go back to what was served before: sticky rollout undo" if found["can_undo"] else "")
    )


@command(group, "undo", "sticky rollout undo")
@click.option("--recreate", is_flag=True, help="Stop the newer containers now: their sessions end (deployment_ended).")
@daemon
@json_output
def undo(recreate: bool, admin: Admin, as_json: bool) -> None:
    """Go back to the definition before the last deploy.

    That is its settings: files that they name are used as they are now. Once more, and it is the newer one again.
    """
    with waiting("the daemon goes back"):
        found = admin.call("POST", "/v1/rollout/undo", body={"recreate": recreate}, timeout=READING)
    if not as_json:
        for line in _undone(found):
            note(line)
    _report(found, as_json, old="other")


def _undone(found: Mapping[str, Any]) -> list[str]:
    """What holds now, and what an undo cannot do."""
    lines = [f"what holds again was read from {found['sources']}"] if found.get("sources") else []
    if all(one["what"] in ("rolling", "recreated", "unchanged") and not one["settings"] for one in found["servers"]):
        lines.append(
            "no setting differs from it: undo brings settings back and not files, which are used as they are now."
            " Put the earlier file back in its place, then: sticky deploy"
        )
    return lines


def _report(found: Mapping[str, Any], json: bool, old: str = "old") -> None:
    """`old`: what the containers are called that are not the newest deployment's any more."""
    for warning in found["warnings"]:
        note(f"warning: {warning}")
    for line in cut_off(found):
        note(line)
    if json:
        print_json(found)
        return
    for one in found["servers"]:
        names = f" ({', '.join(one['settings'])})" if one["settings"] else ""
        left = f"; {counted(one['sessions'], 'session')} on {old} containers" if one["sessions"] else ""
        say(f"{one['name']} {WHAT[one['what']]}{names}{left}")
    if found["proxy_tokens"]:
        say("proxy tokens have changed")

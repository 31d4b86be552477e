"""`sticky restart`: the daemon replaced by a new one from the same command line, without an interruption."""

from __future__ import annotations

from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import say, waiting
from sticky.cli.problems import Problem

STARTING = 180.0  #: seconds: an app may take 30 to import, and the daemon itself gives up after 150
#: What is left to do about a daemon that cannot hand over what it has.
INSTEAD = (
    "Stop it and start it again, which ends its sessions. The daemon of `sticky serve` is ephemeral, and takes changes of its app"
    " by itself; one that can be restarted is: twistd -n --pidfile= sticky --app FILE"
)


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "restart", "sticky restart        # after pip install --upgrade, or a change of [daemon] settings")
    @daemon
    @json_output
    def restart(admin: Admin, as_json: bool) -> None:
        """Replace the running daemon by a new one, without an interruption.

        The new one is started with the same command line: new code, new settings. It takes over listening sockets, containers
        and sessions; no connection is refused. The old one serves the connections that it has to their end, for at most
        daemon.drain_timeout. A new daemon that does not start changes nothing, and you are told why. What `sticky serve` runs
        is ephemeral and cannot be replaced like this.
        """
        with waiting("a new daemon starts"):
            done = _restart(admin)
        if as_json:
            print_json(done)
        else:
            say(f"version {done['version']} is in charge, pid {done['pid']}")


def _restart(admin: Admin) -> dict[str, Any]:
    try:
        return admin.call("POST", "/v1/restart", timeout=STARTING)
    except Problem as problem:
        if problem.code != "bad_request":
            raise
        raise Problem(problem.text, problem.status, INSTEAD, problem.code) from None

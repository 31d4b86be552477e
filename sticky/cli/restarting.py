"""`sticky restart`: the daemon replaced by a new one from the same command line, without an interruption."""

from __future__ import annotations

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import say, waiting

STARTING = 180.0  #: seconds: an app may take 30 to import, and the daemon itself gives up after 150


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "restart", "sticky restart        # after pip install --upgrade, or a change of [daemon] settings")
    @daemon
    @json_output
    def restart(admin: Admin, as_json: bool) -> None:
        """Replace the running daemon by a new one, without an interruption.

        The new one is started with the same command line: new code, new settings. It takes over listening sockets, containers
        and sessions; no connection is refused. The old one serves the connections that it has to their end, for at most
        daemon.drain_timeout. A new daemon that does not start changes nothing, and you are told why.
        """
        with waiting("a new daemon starts"):
            done = admin.call("POST", "/v1/restart", timeout=STARTING)
        if as_json:
            print_json(done)
        else:
            say(f"version {done['version']} is in charge, pid {done['pid']}")

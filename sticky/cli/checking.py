"""`sticky check`: what a configuration or an app would run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output, sources
from sticky.cli.output import as_json, note, say


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(
        root,
        "check",
        "sticky check sticky.toml\nsticky check game.py:Server\nsticky check game.py --config sticky.toml",
    )
    @click.argument("file", metavar="FILE", type=click.Path())
    @click.option("--config", type=click.Path(), metavar="TOML", help="A configuration file beside the app.")
    @click.option(
        "--by-daemon", is_flag=True, help="Let a running daemon check it: with its environment and its backends."
    )
    @daemon
    @json_output
    def check(file: str, config: str | None, by_daemon: bool, admin: Admin, as_json: bool) -> None:
        """Check a configuration, an app, or both together.

        Says what FILE would run: a sticky.toml, game.py, game.py:Server or package.module.
        """
        config, app = sources(file, config)
        found = _by(admin, config, app) if by_daemon else _here(config, app)
        _show(found, as_json)


def _here(file: str | None, app: str | None) -> dict[str, Any]:
    from sticky.admin.bodies import checked
    from sticky.config.loading import load
    from sticky.containers.describe import describe
    from sticky.containers.plugins import installed

    return checked(
        load(
            file=None if file is None else Path(file),
            app=None if app is None else describe(app, None, Path.cwd()),
            flags={},
            cwd=Path.cwd(),
            environ=os.environ,
            backends=installed(),
        )
    )


def _by(admin: Admin, file: str | None, app: str | None) -> dict[str, Any]:
    body = {"file": file, "app": app, "cwd": str(Path.cwd())}
    return admin.call("POST", "/v1/check", body=body, timeout=60.0)


def _show(found: dict[str, Any], json: bool) -> None:
    for warning in found["warnings"]:
        note(f"warning: {warning}")
    if json:
        as_json(found)
        return
    for server in found["servers"]:
        limits = server["limits"]
        containers = f"{limits['min_containers']} to {limits['max_containers']} containers"
        sessions = f"up to {limits['max_concurrency']} {'sessions' if server['sessioned'] else 'requests at once'} each"
        say(f"{server['name']}: {containers}, {sessions}, backend {server['backend']}: {' '.join(server['command'])}")
    say(f"listens on {' '.join(found['listen'])}")

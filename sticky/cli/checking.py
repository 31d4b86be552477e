"""`sticky check`: what a configuration or an app would run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output
from sticky.cli.output import as_json, note, say


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "check", "sticky check sticky.toml\nsticky check game.py:Server")
    @click.argument("file", metavar="FILE", type=click.Path())
    @click.option(
        "--by-daemon", is_flag=True, help="Let a running daemon check it: with its environment and its backends."
    )
    @daemon
    @json_output
    def check(file: str, by_daemon: bool, admin: Admin, as_json: bool) -> None:
        """Check a configuration or an app.

        Says what FILE would run: a sticky.toml, game.py, game.py:Server or package.module.
        """
        is_file = file.endswith(".toml")
        found = _by(admin, file, is_file) if by_daemon else _here(file, is_file)
        _show(found, as_json)


def _here(file: str, is_file: bool) -> dict[str, Any]:
    from sticky.admin.bodies import checked
    from sticky.config.loading import load
    from sticky.containers.describe import describe
    from sticky.containers.plugins import installed

    return checked(
        load(
            file=Path(file) if is_file else None,
            app=None if is_file else describe(file, None, Path.cwd()),
            flags={},
            cwd=Path.cwd(),
            environ=os.environ,
            backends=installed(),
        )
    )


def _by(admin: Admin, file: str, is_file: bool) -> dict[str, Any]:
    body = {"file" if is_file else "app": file, "cwd": str(Path.cwd())}
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
        sessions = f"up to {limits['max_concurrency']} sessions each" if server["sessioned"] else "no sessions"
        say(f"{server['name']}: {containers}, {sessions}, backend {server['backend']}: {' '.join(server['command'])}")
    say(f"listens on {' '.join(found['listen'])}")

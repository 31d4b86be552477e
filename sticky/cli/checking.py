"""`sticky check`: what a configuration or an app would run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output, sources
from sticky.cli.output import as_json, counted, note, say
from sticky.cli.problems import Status


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
    @click.option("--strict", is_flag=True, help="Exit with 1 where there is a warning.")
    @daemon
    @json_output
    def check(file: str, config: str | None, by_daemon: bool, strict: bool, admin: Admin, as_json: bool) -> int:
        """Check a configuration, an app, or both together.

        Says what FILE would run: a sticky.toml, game.py, game.py:Server or package.module. Warns of what can be served and
        will hardly work, such as a command whose program is not there, or isolation that you cannot have on this machine.
        """
        config, app = sources(file, config)
        found = _by(admin, config, app) if by_daemon else _here(config, app)
        _show(found, as_json)
        return Status.FAILED if strict and found["warnings"] else Status.DONE


def _here(file: str | None, app: str | None) -> dict[str, Any]:
    from sticky.admin.bodies import checked
    from sticky.config.sources import Sources
    from sticky.containers.describe import describe
    from sticky.containers.plugins import installed
    from sticky.errors import ConfigError
    from sticky.possible import absent_engines, check_possible

    sources = Sources(None if file is None else Path(file), app, {}, Path.cwd())
    settings = sources.read(describe, os.environ, installed())
    found = checked(settings)
    try:
        check_possible(settings)
    except (ConfigError, OSError) as error:
        # It may be meant for another machine, or for a daemon with other rights.
        found["warnings"].append(f"a daemon that you start here would refuse this: {error}")
    for server, problem in absent_engines(settings.servers):
        found["warnings"].append(f"containers of {server.name} cannot start here now: {problem}")
    for server, said in zip(settings.servers, found["servers"], strict=True):
        if server.docker:
            said["image"] = server.docker["image"]
    return found


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
        held = counted(limits["max_concurrency"], "session" if server["sessioned"] else "request")
        sessions = f"up to {held}{'' if server['sessioned'] else ' at once'} each"
        say(f"{server['name']}: {containers}, {sessions}, backend {server['backend']}: {_runs(server)}")
    say(f"listens on {' '.join(found['listen'])}")


def _runs(server: Mapping[str, Any]) -> str:
    """What its containers run. `image`: known to whoever has read the configuration."""
    command, image = " ".join(server["command"]), server.get("image")
    if image is None:
        return command or "the command of its image"
    return f"{image}, {command or 'with the command of the image'}"

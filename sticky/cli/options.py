"""Options and arguments that several commands share, with their shell completion. Must not know what a command does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from sticky.cli.client import Admin
from sticky.cli.problems import Problem
from sticky.cli.ways import NetworkWay

_F = TypeVar("_F", bound=Callable[..., Any])
_Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class StateDir(click.ParamType[Admin]):
    """A state directory; the value is its daemon, not asked yet."""

    name = "DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Admin:
        return value if isinstance(value, Admin) else Admin(Path(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


def _elsewhere(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Kept for `_there`, which is called after it: --url is eager."""
    ctx.meta["sticky.url"] = value, param.name is not None and _typed(ctx, param.name)


def _typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _there(ctx: click.Context, param: click.Parameter, value: Admin) -> Admin:
    """The daemon of --url, if there is one. What was typed counts more than what the environment says."""
    url, typed = ctx.meta.get("sticky.url", (None, False))
    if typed and _typed(ctx, "admin"):
        raise click.UsageError("Give --url or --state-dir.")
    if not url or (_typed(ctx, "admin") and not typed):
        return value
    return Admin(Path(), NetworkWay(url, os.environ.get("STICKY_ADMIN_TOKEN", "")))


def daemon(command: _F) -> _F:
    """Which daemon: the command gets it as `admin`."""
    command = click.option(
        "--url",
        metavar="URL",
        envvar="STICKY_ADMIN_URL",
        is_eager=True,
        expose_value=False,
        callback=_elsewhere,
        help="Admin API of a daemon elsewhere, with the token of $STICKY_ADMIN_TOKEN.  [default: $STICKY_ADMIN_URL]",
    )(command)
    return click.option(
        "--state-dir",
        "admin",
        type=StateDir(),
        envvar="STICKY_STATE_DIR",
        default="state",
        show_default="$STICKY_STATE_DIR, else ./state",
        callback=_there,
        help="State directory of the daemon.",
    )(command)


def json_output(command: _F) -> _F:
    """For programs: the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def _asked(path: str, key: str, name: str) -> _Completion:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        admin = ctx.params.get("admin")
        try:
            found: Sequence[dict[str, Any]] = (
                admin if isinstance(admin, Admin) else Admin(Path(str(admin or "state")))
            ).call("GET", path, timeout=2.0)[key]
        except Problem:
            return []
        return [
            CompletionItem(item[name], help=str(item.get("server", "")))
            for item in found
            if str(item[name]).startswith(incomplete)
        ]

    return complete


servers = _asked("/v1/status", "servers", "name")
containers = _asked("/v1/containers", "containers", "id")
sessions = _asked("/v1/sessions", "sessions", "id")
tokens = _asked("/v1/tokens", "tokens", "id")


def server(command: _F) -> _F:
    """One Server's things only: the command gets `server`, perhaps None."""
    return click.option("--server", metavar="NAME", shell_complete=servers, help="Only of this Server.")(command)


def server_argument(command: _F) -> _F:
    """The Server that is meant; may be left out where there is only one."""
    return click.argument("server", metavar="[SERVER]", required=False, shell_complete=servers)(command)


def container_argument(command: _F) -> _F:
    """A container's id, or its beginning."""
    return click.argument("container", metavar="CONTAINER", shell_complete=containers)(command)


def session_argument(command: _F) -> _F:
    """A session's id, or its beginning."""
    return click.argument("session", metavar="SESSION", shell_complete=sessions)(command)


def sources(file: str | None, config: str | None) -> tuple[str | None, str | None]:
    """A configuration file and an app, of what FILE and --config may be; either may be None. Raises `UsageError`."""
    if file is None or not file.endswith(".toml"):
        return config, file
    if config is not None:
        raise click.UsageError("FILE is a configuration file already; give it or --config.")
    return file, None


class Group(click.Group):
    """Commands, listed with the whole of their first sentences, where click would cut them to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Group`."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=1000)) for name, one in commands if one is not None]
            )


class Example(click.Command):
    """A command whose help ends with an example. `example`: what to type, a line or more."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(group: click.Group, name: str, example: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a command that has an example."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        group.command(name, cls=Example, example=example)(function)
        return function

    return decorate

"""The tree of commands: who is where, in which order. Holds no command of its own but the small ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sticky._version import __version__
from sticky.admin.bodies import API
from sticky.cli import (
    asking,
    checking,
    containers,
    deploying,
    doctor,
    entering,
    initial,
    keys,
    loadtest,
    logs,
    opening,
    restarting,
    running,
    sessions,
    status,
    tokens,
    top,
)
from sticky.cli.options import Group, command, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import say


class PipeClosed(Exception):
    """Whoever read the output has left. No OSError: click would make exit status 1 of that."""


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise PipeClosed from None


class _InOrder(Group):
    """Lists its commands in the order in which they were added, which is the order in which they are needed."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """See `click.Command`: --help prints here."""
        with _reading():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """See `click.Command`."""
        with _reading():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The daemon itself is started with twistd: twistd -n --pidfile= sticky --app game.py",
)
@click.version_option(__version__, message="sticky %(version)s")
def root() -> None:
    """Self-hosted sticky sessions: every request and WebSocket of a session reaches its container."""


@command(root, "version", "sticky version")
@json_output
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__, "api": API})
    else:
        say(f"sticky {__version__}")


initial.add_to(root)
running.add_to(root)
checking.add_to(root)
deploying.add_to(root)
restarting.add_to(root)
status.add_to(root)
top.add_to(root)
sessions.add_to(root)
opening.add_to(sessions.group)
containers.add_to(root)
entering.add_to(containers.group)
logs.add_to(root)
tokens.add_to(root)
keys.add_to(root)
asking.add_to(root)
loadtest.add_to(root)
doctor.add_to(root)


@command(root, "completion", 'eval "$(sticky completion bash)"      # in ~/.bashrc')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    source = found(root, {}, "sticky", "_STICKY_COMPLETE").source()
    # Click's own splits what a value means at every comma of it, and loses the rest.
    say(source.replace('string split ","', 'string split --max 1 ","'))

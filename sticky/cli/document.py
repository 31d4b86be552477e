"""Writes docs/cli.md and docs/errors.md from the commands and the error tree. Must not hold a fact about either itself.

`python -m sticky.cli.document cli > docs/cli.md` and `python -m sticky.cli.document errors > docs/errors.md`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from sticky import errors
from sticky.cli.advice import ADVICE
from sticky.cli.encounters import APP, DAEMON, START
from sticky.cli.options import Example
from sticky.cli.problems import MEANINGS
from sticky.cli.root import root
from sticky.core.values import EndReason
from sticky.edge.wire import close_code

_CLI = """\
# The `sticky` command

This page is generated from the commands; a test fails when it is out of date.

The daemon itself is `twistd sticky` ([configuration.md](configuration.md)). `sticky` finds it by its state directory:
`--state-dir`, else `STICKY_STATE_DIR`, else `./state`; there it speaks to a Unix socket that only the daemon's own user
and root can use, so it needs no token.

- Tables are for people and `--json` is for programs: keys in JSON stay, times there are seconds, ids are whole.
- Ids may be shortened to their first characters (four at least) wherever only one begins with them.
- Colours appear only on a terminal, and not where `NO_COLOR` is set.
- Tokens never stand in an argument list, where every user of the machine could read them.
- Errors are one line on stderr: what, where, why, what next.
- Shell completion, of Servers, containers and sessions too: `eval "$(sticky completion bash)"` (or `zsh`; `fish`:
  `sticky completion fish | source`).

## Exit statuses

| status | meaning |
| --- | --- |
"""

_ERRORS = """\
# Errors

This page is generated from the error tree in `sticky/errors.py` and the texts in `sticky/cli/advice.py`; a test fails when
it is out of date.

An error is answered with its status and a JSON object `{"error": code, "message": text}`, to browsers as a page. A start
that waits is told `failed` with the same fields. *Retry* says whether the same request can succeed later without the
client changing anything; then there may be a `Retry-After`. Control calls never answer a lack of capacity with 4xx.

| status | code | retry | meaning | what to do |
| --- | --- | --- | --- | --- |
"""

_ENDED = """
## Sessions that are over

A request with the token of a session that is over gets 410 (or 401, `ended_status`), and its code is the reason. A
WebSocket, and a browser's handshake, is closed with the reason's close code and name. A session never comes back.
How a container was lost is told in `detail`: `exited`, `killed` (by a signal), `unhealthy`, `out_of_memory`; of a sandbox also
`call_timeout`, `call_not_interrupted` and `door_closed` ([function calls](calls.md)).

| code | close code | meaning | what to do |
| --- | --- | --- | --- |
"""

_COMMAND = """
## What the `sticky` command says

Exit statuses are in [cli.md](cli.md). Where the daemon refuses, the line on stderr is its message and what to do, as above.
"""

#: What each reason means.
_REASONS = {
    EndReason.IDLE_TIMEOUT: "Nothing was in flight for the session's idle timeout.",
    EndReason.TERMINATED: "A client or the operator terminated it.",
    EndReason.CONTAINER_LOST: "Its container exited, was killed, was unhealthy or ran out of memory.",
    EndReason.CONTAINER_MAX_AGE: "Its container reached `container_max_age`.",
    EndReason.DEPLOYMENT_ENDED: "Its deployment was replaced with `recreate`, or its Server removed.",
    EndReason.SERVER_STOPPED: "The operator stopped its container or the daemon.",
    EndReason.UNKNOWN: "The token is genuine, and nobody remembers the session.",
}


def cli() -> str:
    """docs/cli.md."""
    lines = [_CLI.rstrip("\n")]
    lines += [f"| {status.value} | {meaning} |" for status, meaning in MEANINGS.items()]
    lines.append("\n`sticky curl` exits as curl does, `sticky run` as its entrypoint, `sticky serve` as its daemon.")
    for path, command in commands(root, "sticky"):
        lines.append(f"\n## `{path}`\n")
        lines.append(_help(command))
        arguments = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        context = click.Context(command, info_name=path)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += ["", "```text", f"{path} {usage}".rstrip(), "```"]
        if arguments:
            lines += ["", "| option | what it is |", "| --- | --- |"]
            for option in arguments:
                record = option.get_help_record(context)
                if record is not None:
                    lines.append(f"| `{_cell(record[0])}` | {_plain(record[1])} |")
        assert isinstance(command, Example), f"{path} has no example"
        lines += ["", "```sh", command.example, "```"]
    return "\n".join(lines) + "\n"


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below a group, in the order of its help."""
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def errors_page() -> str:
    """docs/errors.md."""
    rows = sorted(refusals(), key=lambda refusal: (refusal.status, refusal.code))
    lines = [_ERRORS.rstrip("\n")]
    for refusal in rows:
        retry = "yes" if refusal.retry else "no"
        advice = ADVICE[refusal.code]
        lines.append(f"| {refusal.status} | `{refusal.code}` | {retry} | {_cell(refusal.text)} | {_cell(advice)} |")
    lines.append(_ENDED.rstrip("\n"))
    for reason, meaning in _REASONS.items():
        lines.append(f"| `{reason.value}` | {close_code(reason)} | {meaning} | {_cell(ADVICE[reason.value])} |")
    lines.append(_COMMAND.rstrip("\n"))
    for title, encounters in (("An app", APP), ("A daemon that is asked", DAEMON), ("A daemon that starts", START)):
        lines += ["", f"### {title}", "", "| when | exit status | what it says |", "| --- | --- | --- |"]
        lines += [f"| {one.when} | {int(one.status)} | `{_cell(one.says)}` |" for one in encounters]
    return "\n".join(lines) + "\n"


def refusals() -> list[type[errors.Refusal]]:
    """Every class that a client can meet; the reasons of `SessionEnded` are a table of their own."""
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.Refusal) and value is not errors.SessionEnded
    ]


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """No link: `[default: all] [x>=1]` would be one to whatever is called x>=1."""
    return _cell(text).replace("[", "\\[")


if __name__ == "__main__":
    sys.stdout.write({"cli": cli, "errors": errors_page}[sys.argv[1]]())

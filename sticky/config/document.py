"""Writes docs/configuration.md from the table (`python -m sticky.config.document`). Must not hold a setting itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum

from sticky.config.kinds import show
from sticky.config.table import (
    DAEMON,
    DOCKER,
    ISOLATION,
    PROXY_TOKEN,
    REQUIRED,
    RLIMITS,
    SANDBOX,
    SERVER,
    SERVER_NAME,
    Setting,
)

_INTRODUCTION = """\
# Configuration

This page is generated from the table in `sticky/config/table.py`; a test fails when it is out of date.

<!-- block: fragment two ways to start a daemon, which the guides go -->
```sh
twistd -n --pidfile= sticky --config sticky.toml
twistd -n --pidfile= sticky --app game.py
```

With both, the file's `[servers.NAME]` tables change settings of the app's Servers of the same names. `--listen`
(repeatable), `--state-dir` and `--workers` override the file. What is wrong is reported on one line that names file,
key, value and what is allowed, before anything starts, with exit status 2.

- All times are seconds.
- Relative paths are relative to the file that names them; on the command line to the working directory.
- *Change* says what it takes for a new value to take effect: *live* touches no running container, *new deployment*
  starts new containers and lets the old ones serve their sessions to the end, *restart* needs a new daemon.
  `sticky deploy` or SIGHUP brings the new values ([deploying.md](deploying.md)).
"""


def document() -> str:
    """The whole page."""
    parts = [
        _INTRODUCTION,
        _section("[daemon]", "", DAEMON),
        _section(
            "[[proxy_tokens]]",
            "Who may start and terminate sessions. Give one of these tables for each token.",
            PROXY_TOKEN,
        ),
        _section("[servers.NAME]", f"One table for each Server. NAME has {SERVER_NAME.allowed}.", SERVER),
        _section(
            "[servers.NAME.sandbox]",
            "A Server that runs function calls. See [calls.md](calls.md).",
            SANDBOX,
        ),
        _section(
            "[servers.NAME.isolation]",
            "What child processes are kept from. See [isolation.md](isolation.md).",
            ISOLATION,
        ),
        _section("[servers.NAME.rlimits]", "See setrlimit(2). A program cannot raise them again.", RLIMITS),
        _section(
            "[servers.NAME.docker]", "What to run on a Docker Engine or Podman. See [docker.md](docker.md).", DOCKER
        ),
    ]
    return "\n".join(parts)


def _section(title: str, text: str, table: Sequence[Setting]) -> str:
    lines = [f"## `{title}`", ""]
    if text:
        lines += [text, ""]
    lines += ["| key | allowed | default | change | what it is |", "| --- | --- | --- | --- | --- |"]
    for setting in table:
        allowed = setting.kind.allowed
        if setting.only:
            allowed += f" (this version: only {' or '.join(f'`{show(value)}`' for value in setting.only)})"
        cells = (f"`{setting.name}`", allowed, _default(setting), setting.change.value, setting.help)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def _default(setting: Setting) -> str:
    if setting.default is REQUIRED:
        return "must be given"
    if setting.default is None:
        return setting.unset
    value = setting.default.value if isinstance(setting.default, Enum) else setting.default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{show(value)}`"


if __name__ == "__main__":
    sys.stdout.write(document())

"""The `sticky` command. Owns the command line, exit statuses and one-line errors; each command's work is elsewhere.

Status 0: done; 1: it failed; 2: the command line, the configuration or the app is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from sticky._version import __version__
from sticky.errors import ConfigError
from sticky.sdk.exception import Error, InvalidError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage first."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; `--help` and wrong usage raise SystemExit."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ConfigError, InvalidError) as error:
        sys.stderr.write(f"{getattr(error, 'trace', '')}sticky: {_one_line(error)}\n")
        return 2
    except Error as error:
        sys.stderr.write(f"sticky: {_one_line(error)}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sticky", description="Self-hosted sticky sessions. The daemon itself is: twistd sticky")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    run = commands.add_parser("run", help="serve an app for the length of its local entrypoint")
    run.add_argument("file", metavar="FILE", help="game.py, or game.py:entrypoint")
    run.set_defaults(run=_run)
    check = commands.add_parser("check", help="say what a sticky.toml or an app would run")
    check.add_argument("file", metavar="FILE", help="sticky.toml, game.py, game.py:Server or package.module")
    check.set_defaults(run=_check)
    return parser


def _version(options: argparse.Namespace) -> int:
    sys.stdout.write(f"sticky {__version__}\n")
    return 0


def _run(options: argparse.Namespace) -> int:
    from sticky.sdk.run import run_entrypoint

    def terminated(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as an exception, so that the daemon is stopped

    signal.signal(signal.SIGTERM, terminated)
    return run_entrypoint(options.file)


def _check(options: argparse.Namespace) -> int:
    from sticky.config.loading import load
    from sticky.containers.describe import describe
    from sticky.containers.plugins import installed

    is_file = options.file.endswith(".toml")
    settings = load(
        file=Path(options.file) if is_file else None,
        app=None if is_file else describe(options.file, None, Path.cwd()),
        flags={},
        cwd=Path.cwd(),
        environ=os.environ,
        backends=installed(),
    )
    for warning in settings.warnings:
        sys.stderr.write(f"sticky: warning: {warning}\n")
    for server in settings.servers:
        limits = f"{server.policy.min_containers} to {server.policy.max_containers} containers"
        sessions = f"up to {server.policy.max_concurrency} sessions each" if server.sessioned else "no sessions"
        sys.stdout.write(f"{server.name}: {limits}, {sessions}, backend {server.backend}: {' '.join(server.command)}\n")
    sys.stdout.write(f"listens on {' '.join(settings.daemon.listen)}\n")
    return 0


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())

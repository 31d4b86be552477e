"""`twistd sticky`: its command line, read and checked. Must hold no rule; what is wired together of it is `sticky.wiring`'s.

A wrong configuration ends here, before twistd daemonizes: one line on stderr and exit status 2. (A UsageError would
print the whole usage and exit with 1; anything raised from `makeService` is a traceback.)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twisted.application.service import IService
from twisted.logger import Logger
from twisted.python import usage

from sticky._version import __version__
from sticky.config.settings import ServerSettings, Settings
from sticky.config.sources import Sources
from sticky.containers.describe import describe
from sticky.containers.plugins import installed
from sticky.errors import ConfigError
from sticky.startup import WRONG_CONFIGURATION, give_up, one_line

_log = Logger(namespace="sticky.tap")


class Options(usage.Options):
    """The command line of `twistd sticky`. After `parseOptions`, `settings` holds the whole configuration, validated."""

    synopsis = "[--app FILE_OR_MODULE[:Name]] [--config sticky.toml] [options]"
    longdesc = "Serves the Servers of a Python app, of a configuration file, or of both. See docs/configuration.md."

    optParameters = [
        ["app", None, None, "A Python app: game.py, game.py:Server or package.module:Server"],
        ["config", None, None, "A configuration file: sticky.toml"],
        ["state-dir", None, None, "Directory of keys, sockets and containers' output (default: ./state)"],
        ["workers", None, None, "Processes that share the listeners (default: 1)"],
    ]
    optFlags = [
        ["ephemeral", None, "Containers die with the daemon, however it ends, and nothing is kept for the next one"],
    ]
    # A file name where one belongs completes by itself; these say so to shells.
    compData = usage.Completions(
        optActions={
            "app": usage.CompleteFiles("*.py"),
            "config": usage.CompleteFiles("*.toml"),
            "state-dir": usage.CompleteDirs(),
        },
        multiUse=["listen"],
    )

    settings: Settings
    sources: Sources  #: where they come from, to be read again at a deploy

    def __init__(self) -> None:
        usage.Options.__init__(self)  # not super(): mypy knows by this spelling that it is Twisted's own
        self["listen"] = []

    def opt_listen(self, endpoint: str) -> None:
        """Where clients connect, a Twisted endpoint string; may be given several times
        (default: tcp:8080:interface=127.0.0.1)"""
        self["listen"].append(endpoint)

    def opt_version(self) -> None:
        """Display Sticky's version and exit."""
        sys.stdout.write(f"sticky {__version__}\n")
        raise SystemExit(0)

    def parseOptions(self, options: list[str] | None = None) -> None:
        """Read, describe and validate. Exits with status 2 and one line on stderr for everything that is wrong."""
        try:
            usage.Options.parseOptions(self, options)
        except usage.UsageError as error:
            give_up(f"command line: {error}; see twistd sticky --help", WRONG_CONFIGURATION)
        except ConfigError as error:
            give_up(str(error), WRONG_CONFIGURATION)

    def parseArgs(self, *arguments: str) -> None:
        if arguments:
            raise usage.UsageError(
                f"unexpected argument {arguments[0]!r}; apps and files are given by --app and --config"
            )

    def postOptions(self) -> None:
        app, file = self["app"], self["config"]
        if app is None and file is None:
            raise ConfigError("command line", "", "nothing to serve; give --app game.py, --config sticky.toml or both")
        self.sources = Sources(None if file is None else Path(file), app, self._flags(), Path.cwd())
        # User code runs in a child only, never where keys and other Servers' state are. This blocks, before there is a reactor.
        self.settings = self.sources.read(describe, os.environ, installed())
        for warning in self.settings.warnings:
            sys.stderr.write(f"sticky: warning: {one_line(warning)}\n")

    def _flags(self) -> dict[str, object]:
        flags: dict[str, object] = {}
        if self["listen"]:
            flags["listen"] = self["listen"]
        if self["state-dir"] is not None:
            flags["state_dir"] = self["state-dir"]
        if self["workers"] is not None:
            flags["workers"] = _number(self["workers"])
        if self["ephemeral"]:
            flags["ephemeral"] = True
        return flags


def _number(text: str) -> object:
    """A whole number, or the text for the table to refuse."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _shared_user(settings: Settings) -> list[str]:
    """semantics.md, Trust. Said of daemons that stay: whoever tries something out runs programs of their own."""
    trusted = [
        str(server.name)
        for server in settings.servers
        if server.backend == "process" and server.user is None and not _hides_the_state(server)
    ]
    if settings.daemon.ephemeral or not trusted:
        return []
    who = "root" if os.geteuid() == 0 else "the daemon's own user"
    return [
        f"containers of {', '.join(trusted)} run as {who}: they can read the state directory and its keys, and reach other "
        "containers. For programs that you do not trust set `user` or `isolation` (docs/isolation.md)"
    ]


def _hides_the_state(server: ServerSettings) -> bool:
    return any((server.isolation or {}).get(name) for name in ("read_only", "private_tmp"))


def makeService(options: Options) -> IService:
    """What twistd calls. Nothing is opened, spawned or forked before its `startService`."""
    from sticky.wiring import make_service

    try:
        service = make_service(options.settings, options.sources, {} if options.parent is None else options.parent)
    except ConfigError as error:
        give_up(str(error), WRONG_CONFIGURATION)
    for warning in _shared_user(options.settings):
        _log.warn("{what}", what=warning)  # kept by Twisted until twistd's log begins
    return service

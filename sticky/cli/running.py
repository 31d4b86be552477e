"""`sticky run` and `sticky serve`: a daemon as a child of this command. What it serves is not known here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from sticky.cli.client import Admin
from sticky.cli.deploying import READING, WHAT
from sticky.cli.following import following
from sticky.cli.options import command
from sticky.cli.output import note
from sticky.cli.problems import Problem
from sticky.errors import ConfigError
from sticky.sdk import child
from sticky.sdk.exception import InvalidError
from sticky.sdk.loading import names_file, split_target

HINT = "in another terminal: sticky sessions open, sticky status, sticky logs -f. Ctrl-C ends it"
POLL = 0.3  #: seconds between two looks at the files
SETTINGS = "sticky.toml"  #: what a configuration file is called
_SKIPPED = ("__pycache__", "node_modules", "state", "venv")

Stamp = Mapping[Path, tuple[int, int]]  #: (time of change in nanoseconds, size) by file


def add_to(root: click.Group) -> None:
    """Register the commands."""

    @command(root, "run", "sticky run game.py\nsticky run game.py:main")
    @click.argument("file", metavar="FILE")
    def run(file: str) -> int:
        """Run an app's local entrypoint, with a daemon for its length.

        FILE is game.py, or game.py:entrypoint of several. What its containers write is on stderr.
        """
        from sticky.sdk.run import run_entrypoint

        _end_in_order()
        return run_entrypoint(file, beside=lambda state_dir: following(state_dir / "logs"))

    @command(root, "serve", "sticky serve game.py --listen tcp:8080:interface=127.0.0.1")
    @click.argument("file", metavar="FILE")
    @click.option("--config", type=click.Path(), metavar="TOML", help="A configuration file beside the app.")
    @click.option("--listen", multiple=True, metavar="ENDPOINT", help="Where clients connect; repeatable.")
    @click.option(
        "--state-dir", type=click.Path(), envvar="STICKY_STATE_DIR", default="state", show_default=True, metavar="DIR",
        help="The daemon's state directory.",
    )  # fmt: skip
    def serve(file: str, config: str | None, listen: Sequence[str], state_dir: str) -> int:
        """Serve an app, and deploy it again when its files change.

        Looked at are .py and .toml files beside it and below; of those called sticky.toml only the one that --config names. Old
        containers keep their sessions to the end, new sessions go to new containers; what they write is on stderr. A version
        that cannot be loaded changes nothing; one that only another daemon can serve ([daemon] in the TOML has changed)
        restarts it, and sessions end.
        """
        _end_in_order()
        left_out = not_read(file, config)
        if left_out is not None:
            note(f"{left_out} is there and is not read; with --config {left_out} it is")
        options = ["--app", file, "--state-dir", state_dir, "--ephemeral"]
        if config is not None:
            options += ["--config", config]
        for endpoint in listen:
            options += ["--listen", endpoint]
        serving = Serving(
            options,
            lambda: stamp(folder_of(file), config),
            lambda: problem_of(file, config),
            lambda force: redeploy(Path(state_dir), force),
            lambda pid: answers(Path(state_dir), pid),
            config=None if config is None else Path(config).absolute(),
        )
        with following(Path(state_dir) / "logs", earlier=False):
            return serving.run()


def _end_in_order() -> None:
    """On SIGTERM, and when the terminal is closed (but not with nohup)."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminated)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # as an exception, so that the daemon is stopped


class Serving:
    """A daemon that is given what has changed, if that can be loaded, and is replaced where it cannot take it.

    `look` gives what is compared, `check` what is wrong with the files as they are, or None. `deploy` gives it to the daemon,
    with `force` new containers in any case, gives what became of each Server (a key of `WHAT`) and raises `Problem`. `is_up`:
    whether the daemon with this pid serves. `config`: the configuration file, if there is one.
    """

    def __init__(
        self,
        options: Sequence[str],
        look: Callable[[], Stamp],
        check: Callable[[], str | None],
        deploy: Callable[[bool], Mapping[str, str]],
        is_up: Callable[[int], bool],
        sleep: Callable[[float], None] = time.sleep,
        config: Path | None = None,
    ) -> None:
        self._command = child.command(options)
        self._look = look
        self._check = check
        self._deploy = deploy
        self._is_up = is_up
        self._sleep = sleep
        self._config = config

    def run(self) -> int:
        """Until Ctrl-C (raises KeyboardInterrupt), or until the daemon ends by itself: its status."""
        served = self._look()
        said = HINT
        while True:
            with child.running(self._command) as daemon:
                served, status = self._watch(daemon, served, said)
                if status is not None:
                    return status if status >= 0 else 128 - status
            said = "serving the new version"

    def _watch(self, daemon: subprocess.Popen[bytes], served: Stamp, said: str) -> tuple[Stamp, int | None]:
        """Return when there is a version to go over to, or with the status of a daemon that has ended. Say `said` once it is up."""
        while True:
            if said and self._is_up(daemon.pid):
                note(said)
                said = ""
            status = daemon.poll()
            if status is not None:
                return served, status
            self._sleep(POLL)
            if self._look() == served:
                continue
            self._sleep(POLL)  # an editor may still be writing
            before, served = served, self._look()
            changed = {path for path in {*before, *served} if before.get(path) != served.get(path)}
            names = ", ".join(sorted({path.name for path in changed}))
            problem = self._check()
            if problem is not None:
                note(f"the new version is not served; containers that run go on with the old one: {problem}")
                continue
            try:
                # A module that the app imports is not part of what the daemon compares.
                done = self._deploy(any(path.suffix == ".py" for path in changed))
            except Problem as refusal:
                note(f"changed: {names}; the daemon is restarted and its sessions end: {refusal.text}")
                return served, None
            if any(path.suffix == ".py" or path == self._config for path in changed) or {*done.values()} != {
                "unchanged"
            }:
                note(f"changed: {names}; {', '.join(f'{name} {WHAT[what]}' for name, what in done.items())}")
            # Else it is a .toml that nobody has read, or nothing of what the app reads in it counts.


def answers(state_dir: Path, pid: int) -> bool:
    """Whether this daemon has the state directory and serves. One that is about to is waited for."""
    try:
        found: int = Admin(state_dir).call("GET", "/v1/status", timeout=5.0)["daemon"]["pid"]
    except Problem:
        return False
    return found == pid


def redeploy(state_dir: Path, force: bool) -> Mapping[str, str]:
    """Have the daemon read its app again; what that meant for each Server. Raises `Problem`."""
    found = Admin(state_dir).call("POST", "/v1/deploy", body={"force": force}, timeout=READING)
    return {one["name"]: one["what"] for one in found["servers"]}


def folder_of(target: str) -> Path:
    """Where an app's files are."""
    path, _ = split_target(target)
    return Path(path).absolute().parent if names_file(path) else Path.cwd()


def not_read(target: str, config: str | None) -> Path | None:
    """The sticky.toml beside an app that nobody has asked for, though it looks as if it counted."""
    path, _ = split_target(target)
    if Path(path).is_dir():
        return None  # it is no app
    beside = Path(path).parent / SETTINGS if names_file(path) else Path(SETTINGS)
    return beside if config is None and beside.is_file() else None


def stamp(folder: Path, config: str | None) -> Stamp:
    """All .py and .toml files at and below a folder, those of environments and hidden folders excepted.

    Of files called sticky.toml, which are a daemon's, only the one that is given to ours: an app may read any other .toml itself.
    """
    found: dict[Path, tuple[int, int]] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not Path(where, name, "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith((".py", ".toml")) and name != SETTINGS:
                _note(Path(where, name), found)
    if config is not None:
        _note(Path(config).absolute(), found)
    return found


def _note(path: Path, found: dict[Path, tuple[int, int]]) -> None:
    try:
        status = path.stat()
    except OSError:
        return
    found[path] = status.st_mtime_ns, status.st_size


def problem_of(target: str, config: str | None) -> str | None:
    """What is wrong with the app as its files are now; None if it can be served."""
    from sticky.config.loading import load
    from sticky.containers.describe import describe
    from sticky.containers.plugins import installed

    try:
        load(
            file=None if config is None else Path(config),
            app=describe(target, None, Path.cwd()),
            flags={},
            cwd=Path.cwd(),
            environ=os.environ,
            backends=installed(),
        )
    except (ConfigError, InvalidError) as error:
        return " ".join(str(error).split())
    return None

"""`sticky run`: a daemon for the length of one local entrypoint.

Imports the user's app into this process, which is the user's own; the daemon is a child and never does. Owns that
one's temporary state directory. Must not know what the daemon does.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from sticky.admin.sockets import LONGEST, find
from sticky.errors import ConfigError
from sticky.sdk import child
from sticky.sdk.daemon import URL_FILE
from sticky.sdk.exception import ConnectionError, InvalidError
from sticky.sdk.loading import load_app, split_target

#: Seconds for the daemon to listen; it asks a child of its own to import the app first (30 s at most).
START_LIMIT = 60.0
_POLL = 0.02  #: seconds


def daemon_command(app: str, state_dir: Path) -> Sequence[str]:
    """The daemon as a child of this interpreter, on a free port of this machine only."""
    options = ["--ephemeral", "--app", app, "--listen", "tcp:0:interface=127.0.0.1", "--state-dir", str(state_dir)]
    return child.command(options)


def run_entrypoint(
    target: str,
    *,
    command: Callable[[str, Path], Sequence[str]] = daemon_command,
    start_limit: float = START_LIMIT,
    beside: Callable[[Path], AbstractContextManager[None]] = lambda state_dir: nullcontext(),
) -> int:
    """Run the local entrypoint of `game.py`, or `game.py:main` of several, with a daemon beside it; then stop the daemon.

    Blocks for as long as the entrypoint runs. `beside` is entered before the daemon starts and left after its end, for whoever
    wants to watch its state directory. The status: 0, or 1 if the entrypoint raised, with its traceback on stderr;
    SystemExit and KeyboardInterrupt pass. Raises `LoadError` or `InvalidError` for the app, `ConfigError` if the daemon
    refuses it, `ConnectionError` if it does not come up.
    """
    path, name = split_target(target)
    app = load_app(path)
    known = ", ".join(app.entrypoints) or "none"
    if name is None and len(app.entrypoints) != 1:
        raise InvalidError(f"{path} has these local entrypoints: {known}; sticky run needs one, or {path}:NAME")
    if name is not None and name not in app.entrypoints:
        raise InvalidError(f"there is no local entrypoint {name!r} in {path}; it has: {known}")
    entrypoint = app.entrypoints[name if name is not None else known]
    with (
        tempfile.TemporaryDirectory(prefix="sticky-run-") as scratch,
        beside(Path(scratch)),
        _daemon(path, Path(scratch), command, start_limit),
        _environment(scratch),
    ):
        try:
            result = entrypoint()
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except Exception:
            traceback.print_exc()
            return 1
    return 0


@contextmanager
def _environment(state_dir: str) -> Iterator[None]:
    """Point the SDK at this daemon and at no other."""
    names = ("STICKY_STATE_DIR", "STICKY_URL", "STICKY_PROXY_TOKEN", "STICKY_ADMIN_URL", "STICKY_ADMIN_TOKEN")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["STICKY_STATE_DIR"] = state_dir
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _daemon(
    app: str, state_dir: Path, command: Callable[[str, Path], Sequence[str]], start_limit: float
) -> Iterator[None]:
    log = state_dir / "daemon.log"
    with log.open("wb") as output, child.running(command(app, state_dir), output) as daemon:
        _wait_for_url(app, daemon, state_dir, log, start_limit)
        yield


def _wait_for_url(app: str, daemon: subprocess.Popen[bytes], state_dir: Path, log: Path, limit: float) -> None:
    deadline = time.monotonic() + limit
    while True:
        # In this order: a daemon that wrote its URL and ended at once has ended.
        status = daemon.poll()
        if status is not None:
            last = _last_line(log)
            if status == 2 and last:
                raise ConfigError("sticky run", "", last)
            raise ConnectionError(f"the daemon for {app} ended with status {status} before it listened: {last}")
        if _is_up(state_dir):
            return
        if time.monotonic() > deadline:
            raise ConnectionError(f"the daemon for {app} did not listen within {limit:g} seconds: {_last_line(log)}")
        time.sleep(_POLL)


def _is_up(state_dir: Path) -> bool:
    """Whether it listens, and its admin API, which opens later and knows each Server's own URL. Not where that has no room."""
    url, admin = state_dir / URL_FILE, find(state_dir)
    if not url.is_file() or not url.stat().st_size:
        return False
    if len(os.fsencode(admin)) > LONGEST:
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(admin))
        except OSError:
            return False
    return True


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"

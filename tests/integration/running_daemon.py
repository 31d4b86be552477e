"""A real `twistd sticky` for tests of the whole: starts it, says where it listens, and stops it. Knows no configuration."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.integration import preloaded
from tests.integration.preloaded import ROOT, Preloaded

TWISTD = [str(Path(sys.executable).with_name("twistd"))]
#: A session token, or the secret of a proxy token, long enough to be one.
SECRET = re.compile(r"v4\.public\.[\w-]{40,}|\bws-[\w-]{20,}")
STARTS_WITHIN = 60.0  #: seconds
STOPS_WITHIN = 60.0  #: seconds; shutdown_timeout is 45

__all__ = ["ROOT", "SECRET", "TWISTD", "Daemon", "Running", "until"]

_Found = TypeVar("_Found")


def until(what: str, check: Callable[[], _Found], within: float = 60.0) -> _Found:
    """Ask until the answer is true, and return it. `within` seconds at most, then an AssertionError that names `what`."""
    deadline = time.monotonic() + within
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what} (last answer: {found!r})")
        time.sleep(0.05)


class Running:
    """A child in a process group of its own, with its output in a file."""

    def __init__(
        self,
        command: list[str],
        output: Path,
        env: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        *,
        fresh: bool = False,
    ) -> None:
        """`fresh`: an interpreter of its own also where `preloaded` would do, for whoever looks at its command line."""
        self._output = output
        folder, environ = output.parent, {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | Preloaded
        with output.open("ab") as log:
            if command[:1] == TWISTD and not fresh and preloaded.suits(environ):
                self._process = Preloaded(
                    "twistd",
                    command[1:],
                    output=log.fileno(),
                    errors=log.fileno(),
                    folder=folder,
                    environ=environ,
                    passed=pass_fds,
                )
            else:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env=environ,
                    start_new_session=True,
                    pass_fds=pass_fds,
                )

    def output(self) -> str:
        """Everything it has said."""
        return self._output.read_text(errors="replace")

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, within: float) -> int:
        """Its exit status, once it has ended by itself."""
        return self._process.wait(within)

    def wait_for(self, what: str, check: Callable[[], _Found], within: float = STARTS_WITHIN) -> _Found:
        """As `until`, but a child that ends instead is an error at once, with its last words."""

        def checked() -> _Found:
            if not self.alive():
                raise AssertionError(f"ended with {self._process.returncode} before {what}:\n{self.output()[-3000:]}")
            return check()

        try:
            return until(what, checked, within)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.output()[-3000:]}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, to the process itself and nobody else."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM and wait; whatever of its process group is left after that is killed. Returns its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(STOPS_WITHIN)
        finally:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            self._told_no_secret()

    def _told_no_secret(self) -> None:
        """Every daemon of the whole test run, whatever happened to it: its output holds no token, and no secret of one."""
        for number, line in enumerate(self.output().splitlines(), 1):
            assert not SECRET.search(line), f"line {number} of {self._output} holds a secret"


class Daemon(Running):
    """`twistd -n sticky` on a free port, with its state in `folder`/state."""

    def __init__(
        self, folder: Path, *arguments: str, env: Mapping[str, str] | None = None, listen: bool = True
    ) -> None:
        """`listen`: on a free port of ours; False leaves that to the arguments."""
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        if (self.state / "url").is_file():
            with contextlib.suppress(
                OSError
            ):  # where it can only be read, and no daemon is going to say where it listens
                (self.state / "url").unlink()  # of one that was killed
        command = [*TWISTD, "-n", "--pidfile=", "sticky", *arguments]
        command += ["--state-dir", str(self.state)]
        if listen:
            command += ["--listen", "tcp:0:interface=127.0.0.1"]
        super().__init__(command, folder / "daemon.log", env)

    def url(self) -> str:
        """Where it listens, without a slash at the end; waits until it does."""
        left_at = self.state / "url"
        lines = self.wait_for("the daemon listens", lambda: left_at.exists() and left_at.read_text().splitlines())
        assert lines
        return lines[0].strip().rstrip("/")

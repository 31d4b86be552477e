"""`twistd sticky` and `sticky` as processes of their own that need not import everything again: forked by `preloading`.

They are what `subprocess.Popen` would have made of the same command, but for what is in /proc/PID: cmdline, environ and exe are
those of the process that forked. For tests that look there, or that set limits or variables which an interpreter reads at
its start, `Running` takes a whole command.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(sys.executable).parent
PRELOADING = Path(__file__).with_name("preloading.py")


class Preloaded:
    """One process. Its interface is that part of `subprocess.Popen`'s that tests use.

    `command` is "twistd" or "sticky", or "earlier_daemon.py" beside this file; `given`, `output` and `errors` are descriptors that
    stay the caller's. A variable that an
    interpreter or its loader reads at its start (PYTHON*, LD_*) has to have the value that it has here: AssertionError.
    """

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        *,
        output: int,
        errors: int,
        folder: Path,
        environ: Mapping[str, str],
        given: int | None = None,
        passed: Sequence[int] = (),
        by: Preloading | None = None,
    ) -> None:
        """`given`: its stdin; None: nothing. `by`: who forks it, where the one that everybody shares has another environment."""
        assert by is not None or suits(environ), "an interpreter reads its variables at its start, which was before"
        self.returncode: int | None = None
        self._end, told = os.pipe()
        request = {
            "argv": [str(SCRIPTS / command), *arguments],
            "folder": str(folder),
            "environ": dict(environ),
            "session": True,
            "passed": list(passed),
        }
        try:
            with open(os.devnull) as nothing:
                self.pid = (by or _the_one()).fork(
                    request, [nothing.fileno() if given is None else given, output, errors, told, *passed]
                )
        finally:
            os.close(told)

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        return self._reaped(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        status = self._reaped(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reaped(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            text = os.read(self._end, 64)
            os.close(self._end)
            assert text, "whoever forked it has ended before it"
            self.returncode = int(text)
        return self.returncode


def suits(environ: Mapping[str, str]) -> bool:
    """Whether a process with these variables would have imported the same, in the same way."""
    read = {name for name in (*environ, *os.environ) if name.startswith(("PYTHON", "LD_", "STICKY_PURE"))}
    read.discard("PYTHONPATH")
    ours = {str(ROOT), "", *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    return ours.issuperset(environ.get("PYTHONPATH", "").split(os.pathsep)) and all(
        environ.get(name) == os.environ.get(name) for name in read
    )


def run(
    command: str, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with its output captured as text. One that takes longer than `timeout` seconds is killed."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = Preloaded(
            command, arguments, output=output.fileno(), errors=errors.fileno(), folder=folder, environ=environ
        )
        try:
            status = process.wait(timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([command, *arguments], status, output.read(), errors.read())


class Preloading:
    """A process that forks, gone with this one."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """`environ`: its environment; None: ours."""
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PRELOADING), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environ,
            )

    def fork(self, request: Mapping[str, object], fds: Sequence[int]) -> int:
        with self._lock:
            socket.send_fds(self._ours, [json.dumps(request).encode()], list(fds))
            pid = self._ours.recv(64)
        assert pid, f"{PRELOADING.name} has ended: it said why on stderr"
        return int(pid)

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


_only: Preloading | None = None
_making = threading.Lock()


def _the_one() -> Preloading:
    global _only
    with _making:
        if _only is None:
            _only = Preloading()
            atexit.register(_only.close)
        return _only

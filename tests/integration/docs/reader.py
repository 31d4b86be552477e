"""A person who reads a page and does what it says: one shell for the page's length, in an empty folder of its own.

Where the machine allows it, in network and process namespaces of their own, so that ports are those on the page and nothing
stays behind; elsewhere the ports must be free. Knows nothing of pages.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs

_ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_KEPT = ("LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "COVERAGE_PROCESS_START")
PORTS = (8080, 8443)  #: on the pages


class Stumble(AssertionError):
    """A page's block did not do what the page says."""


@attrs.frozen
class Said:
    """What a block printed."""

    out: str
    err: str


def can_be_alone() -> bool:
    """Whether namespaces can be had."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*_ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=30).returncode == 0


def ports_are_free() -> bool:
    """Whether the pages' ports can be used without namespaces."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


class Reader:
    """Runs blocks one after another, until it is closed or abandoned."""

    def __init__(self, *, alone: bool, path: tuple[Path, ...] = ()) -> None:
        """`path`: folders of programs in front of those of the tests' own environment."""
        # Short and not below a folder of ours: sockets' paths have 107 bytes, and the reader knows nothing of the source.
        self._scratch = Path(tempfile.mkdtemp(prefix="reader-")).resolve()
        self.folder = self._scratch / "home"  #: where the shell is; follows its `cd`
        self.folder.mkdir()
        self._count = 0
        self._terminals: list[tuple[str, Path]] = []
        self._hear, tell = os.pipe()
        self._tell = tell
        programs = [str(folder) for folder in (*path, Path(sys.executable).parent)]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PATH"] = os.pathsep.join([*programs, os.environ["PATH"], "/usr/sbin", "/sbin"])
        environment["HOME"] = str(self.folder)
        self._shell = subprocess.Popen(
            [*(_ALONE if alone else ()), "bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            pass_fds=(tell,),
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        os.close(tell)
        if alone:
            self.run("ip link set lo up")

    def write(self, name: str, text: str) -> None:
        """A file that the page shows, in the folder that the shell is in."""
        path = self.folder / name
        if not path.resolve().is_relative_to(self._scratch):
            raise Stumble(f"{name} is not in the reader's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, script: str, within: float = 90.0) -> Said:
        """A block of shell. Variables and the working directory stay for the next one. Raises `Stumble`."""
        place = self._new("sh", f"set -euo pipefail\n{script}")
        return self._do(f". {place} >{place}.out 2>{place}.err </dev/null", place, within)

    def python(self, program: str, within: float = 90.0) -> Said:
        """A block of Python, as a program of its own."""
        place = self._new("py", program)
        return self._do(f"PYTHONPATH=. python3 {place} >{place}.out 2>{place}.err </dev/null || exit", place, within)

    def terminal(self, script: str, port: int, within: float = 60.0) -> None:
        """A block that goes on in another terminal; waits until it listens on `port`."""
        place = self._new("sh", f"set -euo pipefail\n{script}")
        self._terminals.append((script.strip(), place))
        self.run(f"bash {place} >{place}.out 2>&1 </dev/null & echo $! >{place}.pid")
        looking = (
            f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 $(cat {place}.pid); sleep 0.1; done"
        )
        try:
            self.run(looking, within)
        except Stumble as stumble:
            raise Stumble(
                f"{script.strip()}: does not listen on {port}\n{self._output(place, 'out')}{stumble}"
            ) from None

    def close(self) -> None:
        """End what goes on in terminals, in good order. Raises `Stumble` for what does not end, or not without a traceback."""
        try:
            for script, place in reversed(self._terminals):
                # The shell around the program has nothing to say.
                ending = f"pkill -TERM -P $(cat {place}.pid) || kill -TERM $(cat {place}.pid); wait $(cat {place}.pid) || true"
                try:
                    self.run(ending, 60)
                except Stumble as stumble:
                    raise Stumble(f"{script}: does not end\n{self._output(place, 'out')}{stumble}") from None
                if "Traceback" in self._output(place, "out"):
                    raise Stumble(f"{script}: {self._output(place, 'out')}")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End everything by force."""
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        os.close(self._hear)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def terminals(self) -> str:
        """What the terminals say, for messages."""
        return "".join(f"--- {script}\n{self._output(place, 'out')}" for script, place in self._terminals)

    def _new(self, kind: str, text: str) -> Path:
        self._count += 1
        place = self._scratch / f"block-{self._count}.{kind}"
        place.write_text(text, "utf-8")
        return place

    def _do(self, command: str, place: Path, within: float) -> Said:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{command}; printf '%s\\n' \"$PWD\" >&{self._tell}\n")
            self._shell.stdin.flush()
        except BrokenPipeError:
            raise Stumble("the shell is gone") from None
        there = self._answer(within)
        said = Said(self._output(place, "out"), self._output(place, "err"))
        if not there:
            raise Stumble(f"did not succeed within {within:g} s:\n{said.out}{said.err}")
        self.folder = Path(there)
        return said

    def _answer(self, within: float) -> str:
        """The shell's working directory after a block; nothing if it has ended, or not by then."""
        heard, deadline = b"", time.monotonic() + within
        while not heard.endswith(b"\n"):
            ready, _, _ = select.select([self._hear], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._hear, 4096) if ready else b""
            if not piece:
                return ""
            heard += piece
        return heard.decode().strip()

    def _output(self, place: Path, kind: str) -> str:
        path = Path(f"{place}.{kind}")
        return path.read_text("utf-8", "replace") if path.exists() else ""

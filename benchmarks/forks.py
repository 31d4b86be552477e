"""A forked sandbox by itself, without a daemon: from what it is told to its first answer, in processor time and page faults.

    python -m benchmarks.forks [--forks N] [--module NAME ...]

Counts hardly move when the machine is busy, where times do. Needs nothing of `setup`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.looking import worked
from sticky.sandbox.forkserver import visit

MODULES = [name for name in ("numpy", "pandas") if importlib.util.find_spec(name) is not None]
SETTLED = 0.1  #: seconds that a fork has to get itself ready, and one before it to be learnt from


def faults(process: int) -> int:
    """That needed no disk."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[7])


class Server:
    """A fork server, asked as the daemon asks (`forking.serving`)."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        self.folder = folder
        self.log = (folder / "log").open("ab")
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "sticky.sandbox.forkserver", *(f"--preimport={name}" for name in modules)]
        env = {**os.environ, "STICKY_CONTAINER_ID": "ct-0000"}
        with theirs:
            self.process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=self.log, stderr=self.log, env=env)
        if b"warm" not in self.socket.recv(1 << 17):
            raise SystemExit("it cannot be forked")

    def fork(self) -> tuple[int, socket.socket]:
        """Its pid, and where it is told what it is."""
        self.socket.send(b"{}")
        while True:
            message, found, _, _ = socket.recv_fds(self.socket, 1 << 17, 1)
            if found:
                return int(json.loads(message)["pid"]), socket.socket(fileno=found[0])

    def begin(self, waiting: socket.socket, name: str) -> str:
        """Tell it. The path of its door."""
        path = str(self.folder / name)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen()
            env = {**os.environ, "STICKY_CONTAINER_ID": "ct-1111"}
            asked = {
                "env": env,
                "directory": str(self.folder),
                "cgroups": [],
                "rlimits": {},
                "descriptors": ["log", "door"],
            }
            socket.send_fds(waiting, [json.dumps(asked).encode()], [self.log.fileno(), door.fileno()])
        return path

    def stop(self) -> None:
        """With its forks that still wait."""
        self.socket.close()
        self.process.wait(60)
        self.log.close()


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=50)
    parser.add_argument("--module", action="append", default=None)
    options = parser.parse_args()
    modules = MODULES if options.module is None else options.module
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="sticky-forks-") as name:
        server = Server(Path(name), modules)
        try:
            for number in range(options.forks):
                pid, waiting = server.fork()
                with waiting:
                    time.sleep(SETTLED)
                    before = worked(pid), faults(pid)
                    began = time.perf_counter()
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect(server.begin(waiting, f"door-{number}"))
                        visit(client)
                        took = time.perf_counter() - began
                        after = worked(pid), faults(pid)
                os.kill(pid, signal.SIGKILL)
                for what, figure in (
                    ("told to first answer, ms", took * 1e3),
                    ("its processor time meanwhile, ms", (after[0] - before[0]) / 1e6),
                    ("its page faults meanwhile", after[1] - before[1]),
                    ("its processor time before, ms", before[0] / 1e6),
                ):
                    rows.setdefault(what, []).append(figure)
        finally:
            server.stop()
    print(f"imported: {', '.join(modules) or 'nothing'}")
    for what, figures in rows.items():
        ordered = sorted(figures)
        print(f"| {what} | p50 {statistics.median(ordered):.1f}, p90 {ordered[int(len(ordered) * 0.9)]:.1f} |")


if __name__ == "__main__":
    main()

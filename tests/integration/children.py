"""Real programs for containers in tests, and what is left of them. Knows nothing of trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PYTHON = (sys.executable, "-I", "-S", "-c")

#: Listens on the port of its first argument (the variable PORT without one), then sleeps.
LISTENS = """
import os, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1] if len(sys.argv) > 1 else os.environ["PORT"])))
s.listen()
print("listening", flush=True)
time.sleep(600)
"""

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + LISTENS


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (OSError, IndexError):
        return False


def zombies() -> list[int]:
    """Our own children that nobody has reaped."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(int(name))
    return found


def written(path: Path) -> str:
    """What a program has written to a file by now, once the last line is whole; else nothing."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    return text if text.endswith("\n") else ""

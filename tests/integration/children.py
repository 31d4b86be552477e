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

GO = "@go@"  #: as an argument: the path of a file whose appearance tells a program to go on
IDENTITY = "{container_id}"  #: as an argument: by it all processes of a container can be found, see `bearing`

_OPENS = LISTENS.replace("sys.argv[1] if len(sys.argv) > 1 else ", "").replace("time.sleep(600)\n", "")
_WAITS = """
def wait():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.005)
"""

#: The rest takes GO as its first argument, and IDENTITY as its second.
LATE = f"import os, sys, time{_WAITS}wait(){LISTENS}".replace("sys.argv[1] if len(sys.argv) > 1 else ", "")
CRASHES = f"{_OPENS}{_WAITS}wait()\nprint('last words', flush=True)\nos._exit(3)"
DIES = f"{_OPENS}{_WAITS}wait()\nos.kill(os.getpid(), 10)\ntime.sleep(600)"

#: 6 MB before it listens and 6 MB after that: short lines, and one of 300 kB that is no UTF-8.
FLOODS = f"""
import sys
def flood():
    for number in range(60):
        sys.stdout.buffer.write((b"%0199d\\n" % number) * 500)
    sys.stdout.buffer.write(b"\\xff\\xfe" * 150_000 + b"\\n")
    sys.stdout.buffer.flush()
flood()
{_OPENS}{_WAITS}wait()
flood()
print("last words", flush=True)
sys.exit(3)
"""

#: A child; one without a parent, in the same process group; one in a session of its own that ignores SIGTERM; and with the third
#: argument "hides" one that besides has no environment.
FAMILY = f"""
import os, signal, sys, time
def start(orphan, away, hides):
    read, write = os.pipe()
    if os.fork() == 0:
        if away:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if orphan and os.fork():
            os._exit(0)
        os.write(write, b".")
        if hides:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", sys.argv[2]], {{}})
        time.sleep(600)
        os._exit(0)
    os.read(read, 1)
    os.close(read)
    os.close(write)
start(False, False, False)
start(True, False, False)
start(True, True, False)
if sys.argv[3:] == ["hides"]:
    start(True, True, True)
{_OPENS}{_WAITS}wait()
print("last words", flush=True)
os._exit(3)
"""


def bearing(identity: str) -> list[int]:
    """The processes with a container's id in their command line, wherever they hide from us; zombies have none."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if identity.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and alive(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


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

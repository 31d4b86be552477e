"""Function calls: a warm session, new sandboxes from a snapshot and from scratch, idle ones, large arguments.

    python -m benchmarks.calls [--calls N] [--sandboxes N] [--idle N] [--megabytes N]

Starts a daemon of its own, with numpy and pandas to import where they are installed. Prints a table for docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import sticky
from benchmarks.looking import private

MODULES = [name for name in ("numpy", "pandas") if importlib.util.find_spec(name) is not None]


@sticky.remote
def nothing() -> None:
    """What a call costs by itself."""


@sticky.remote
def length(data: bytes) -> int:
    """For large arguments."""
    return len(data)


@sticky.remote
def pid() -> int:
    """Whose memory to look at."""
    return os.getpid()


@contextmanager
def daemon(snapshot: bool, idle: int) -> Iterator[None]:
    """A daemon with one Server of sandboxes, which the SDK then finds."""
    with tempfile.TemporaryDirectory(prefix="sticky-calls-") as name:
        folder = Path(name)
        modules = ", ".join(f'"{module}"' for module in MODULES)
        (folder / "sticky.toml").write_text(
            '[daemon]\nlisten = ["tcp:0:interface=127.0.0.1"]\naccess_log = "off"\n'
            f"[servers.calls]\nmax_containers = {idle + 50}\nscaledown_window = 2\nqueue_timeout = 300\n"
            f"sandbox = {{ preimport = [{modules}], snapshot = {str(snapshot).lower()} }}\n"
        )
        twistd = Path(sys.executable).with_name("twistd")
        command = [str(twistd), "-n", "--pidfile=", "sticky", "--config", "sticky.toml"]
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            url = folder / "state" / "url"
            until = time.monotonic() + 30
            while not url.exists():
                if time.monotonic() > until or process.poll() is not None:
                    raise SystemExit((folder / "log").read_text())
                time.sleep(0.02)
            os.environ["STICKY_URL"] = url.read_text().splitlines()[0]
            os.environ["STICKY_PROXY_TOKEN"] = (folder / "state" / "proxy-token").read_text().strip()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def milliseconds(times: Sequence[float]) -> str:
    """Median and 99th percentile."""
    ordered = sorted(times)
    return f"p50 {statistics.median(ordered) * 1e3:.2f} ms, p99 {ordered[int(len(ordered) * 0.99)] * 1e3:.2f} ms"


def warm(calls: int) -> list[float]:
    """One session, call after call."""
    with sticky.Session() as session:
        bound = nothing.bind(session)
        for _ in range(20):
            bound()
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            bound()
            times.append(time.perf_counter() - began)
        session.release()
        return times


def _client(calls: int) -> float:
    with sticky.Session() as session:
        bound = nothing.bind(session)
        bound()
        began = time.perf_counter()
        for _ in range(calls):
            bound()
        took = time.perf_counter() - began
        session.release()
        return took


def together(calls: int, clients: int) -> float:
    """Calls a second of several client processes, each with a session of its own."""
    with ProcessPoolExecutor(clients) as pool:
        return sum(calls / took for took in pool.map(_client, [calls] * clients))


def fresh(count: int) -> list[float]:
    """From nothing to a sandbox's first answer."""
    for _ in range(3):
        nothing()
        time.sleep(0.3)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        nothing()
        times.append(time.perf_counter() - began)
        time.sleep(0.05)  # the one before is on its way out
    return times


def idle(count: int) -> list[int]:
    """So many sandboxes at once, each of which has served one call; what each has for itself."""
    sessions = [sticky.Session() for _ in range(count)]
    processes = [pid.bind(session)() for session in sessions]
    found = [private(process) for process in processes]
    for session in sessions:
        session.release()
    return found


def large(megabytes: int) -> float:
    """Megabytes a second of an argument, there and read."""
    blob = os.urandom(1 << 20) * megabytes
    with sticky.Session() as session:
        bound = length.bind(session)
        bound(b"")
        began = time.perf_counter()
        if bound(blob) != len(blob):
            raise SystemExit("not all of it came")
        took = time.perf_counter() - began
        session.release()
        return megabytes / took


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--sandboxes", type=int, default=30)
    parser.add_argument("--idle", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=255)
    options = parser.parse_args()
    rows: list[tuple[str, str]] = []
    with daemon(True, options.idle):
        rows.append(("call on a warm session", milliseconds(warm(options.calls))))
        rows.append(("calls in all, 2 clients", f"{together(options.calls, 2):.0f} a second"))
        forked = fresh(options.sandboxes)
        rows.append(("new sandbox from a snapshot, to its first answer", milliseconds(forked)))
        rows.append((f"an argument of {options.megabytes} MiB", f"{large(options.megabytes):.0f} MiB/s"))
        memory = idle(options.idle)
        rows.append(
            (
                f"{options.idle} idle sandboxes, each beyond what is shared",
                f"{statistics.median(memory) / (1 << 20):.1f} MiB",
            )
        )
    with daemon(False, options.idle):
        scratch = fresh(max(options.sandboxes // 3, 1))
        rows.append(("the same from scratch", milliseconds(scratch)))
        rows.append(("ratio", f"{statistics.median(scratch) / statistics.median(forked):.0f}"))
    print(f"imported: {', '.join(MODULES) or 'nothing'}")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()

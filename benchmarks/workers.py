"""What a request costs with one process and with several: small answers over connections that are kept.

python -m benchmarks.workers [--rounds N] [--seconds S]

Nothing is pinned: with several processes the question is what they cost where there are processors for them. `turns` are looks of an
event loop for what there is to do (epoll_wait, counted by perf): with fewer connections to each process a look finds less, and
the looks are what that costs, and being put to sleep between them (context switches).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import looking
from benchmarks.proxies import cookie, start_session
from benchmarks.rig import Broken, Rig, Unavailable, _children, built, free_ports, wait_until

#: Processes that serve, and connections: as many to each process; as many in all; one process with what each of several has.
CASES = ((1, 16), (2, 32), (4, 64), (2, 16), (4, 16), (1, 8), (1, 4))
PATIENCE = 6  #: times that a daemon with four workers may take as long to start as one without, on a busy machine
SWITCHES = "context-switches"
EPOLL = "syscalls:sys_enter_epoll_wait"


class Served:
    """A daemon with so many workers, and the processes of it that serve."""

    def __init__(self, rig: Rig, workers: int) -> None:
        folder = rig.folder(f"workers-{workers}")
        conf = folder / "sticky.toml"
        conf.write_text(
            f'[daemon]\nworkers = {workers}\nstate_dir = "{folder / "state"}"\n\n[servers.bench]\n'
            f'command = ["{built("backend")}", "{{port}}"]\nunauthenticated = true\nmin_containers = 1\n'
            "max_containers = 1\nscaledown_window = 3600\nidle_timeout = 3600\n"
        )
        (self.port,) = free_ports(1)
        twistd = Path(sys.executable).parent / "twistd"
        listen = f"tcp:{self.port}:interface=127.0.0.1:backlog=4096"
        self.daemon = rig.spawn(
            "sticky", [str(twistd), "-n", "--pidfile=", "sticky", "--config", str(conf), "--listen", listen], folder
        )
        for _ in range(PATIENCE):
            with contextlib.suppress(Unavailable):
                wait_until(lambda: self._serves(folder, workers), self.daemon, folder)
                break
        self.fields = cookie(start_session(self.port))
        self.pids = [self.daemon.pid, *self._workers()]

    def _serves(self, folder: Path, workers: int) -> bool:
        """Whether it listens, and as many workers as there are to be have said hello."""
        said = (folder / "output").read_text(errors="replace")
        return (folder / "state" / "url").exists() and (workers == 1 or said.count(" serves, pid ") >= workers)

    def _workers(self) -> list[int]:
        return [
            pid for pid in _children(self.daemon.pid) if b"sticky.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]


def measure(served: Served, connections: int, seconds: float) -> dict[str, float]:
    """Microseconds a request of all processes and of the daemon, requests a turn, requests a second."""
    pids = served.pids
    lines = [word for name, value in served.fields.items() for word in ("-H", f"{name}: {value}")]
    load = ["wrk", "-t1", f"-c{connections}", f"-d{round(seconds)}s", *lines, f"http://127.0.0.1:{served.port}/"]
    perf = ["perf", "stat", "-x,", "-e", EPOLL, "-e", SWITCHES, "-p", ",".join(map(str, pids)), *load]
    before = [looking.worked(pid) for pid in pids]
    begun = time.monotonic()
    done = subprocess.run(perf, capture_output=True, text=True, timeout=seconds + 60, check=False)
    spent = [looking.worked(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    took = time.monotonic() - begun
    count = re.search(r"(\d+) requests in", done.stdout)
    turns, switches = (re.search(rf"^(\d+),.*{name}", done.stderr, re.MULTILINE) for name in (EPOLL, SWITCHES))
    if count is None or "Non-2xx" in done.stdout:
        raise Broken((done.stdout + done.stderr)[-300:])
    requests = int(count[1])
    return {
        "cpu": sum(spent) / requests / 1e3,
        "daemon": spent[0] / requests / 1e3,
        "turn": requests / int(turns[1]) if turns else float("nan"),
        "switches": int(switches[1]) / requests if switches else float("nan"),
        "rate": requests / took,
    }


def main() -> int:
    """Rounds of all cases, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    found: dict[tuple[int, int], list[dict[str, float]]] = {case: [] for case in CASES}
    try:
        with Rig() as rig:
            daemons = {workers: Served(rig, workers) for workers in sorted({workers for workers, _ in CASES})}
            for _ in range(given.rounds):
                for case in CASES:
                    found[case].append(measure(daemons[case[0]], case[1], given.seconds))
    except (Unavailable, Broken) as error:
        sys.stderr.write(f"benchmarks.workers: {error}\n")
        return 1
    sys.stdout.write(
        "| processes | connections | CPU µs a request | the daemon's | requests a turn | switches a request | requests/s |\n"
    )
    sys.stdout.write("| --- | --- | --- | --- | --- | --- | --- |\n")
    for (workers, connections), rounds in found.items():
        figures = {name: [one[name] for one in rounds] for name in rounds[0]}
        middle = {name: statistics.median(values) for name, values in figures.items()}
        spread = f"{min(figures['cpu']):.1f} to {max(figures['cpu']):.1f}"
        sys.stdout.write(
            f"| {workers} | {connections} | {middle['cpu']:.1f} ({spread}) | {middle['daemon']:.1f} | {middle['turn']:.2f} |"
            f" {middle['switches']:.2f} | {middle['rate']:.0f} |\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

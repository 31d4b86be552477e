"""Child processes as containers: what a start costs over bare fork, exec and open port, 200 alive at once, 100 stopped at once.

Run as `python -m benchmarks.containers [--quick]`; about a minute. Needs gcc, and nothing of `setup`: the program in the
containers is a few lines of C that open the port and wait, so that what is measured is ours. Only processes that a run
started are stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from zope.interface import implementer

from sticky.containers.logs import log_path
from sticky.containers.ownership import realm_of
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerListener

PROGRAM = r"""
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("PORT")))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 64)) return 1;
    for (;;) pause();
}
"""
ALIVE = 200
STOPPED = 100
TOGETHER = 20
FIRST_PORT = 17000  #: of the bare processes, outside the range that the backend gives out


@implementer(IContainerListener)
class Heard:
    """When each container was ready, and when it was gone."""

    def __init__(self) -> None:
        self.ready_at: dict[ContainerId, float] = {}
        self.gone_at: dict[ContainerId, float] = {}

    def ready(self, container: ContainerId, address: Address) -> None:
        self.ready_at[container] = time.perf_counter()

    def exited(self, container: ContainerId, exit: Exit) -> None:
        self.gone_at[container] = time.perf_counter()


class Bench:
    """One backend, and a folder for it."""

    def __init__(self, reactor: Any, folder: Path) -> None:
        self.reactor = reactor
        self.folder = folder
        self.program = folder / "listens"
        source = folder / "listens.c"
        source.write_text(PROGRAM)
        subprocess.run(["gcc", "-O2", "-o", str(self.program), str(source)], check=True)
        self.backend = ProcessBackend(reactor, realm=realm_of(folder))
        self.heard = Heard()
        self._made = 0

    def spawn(self) -> IContainer:
        self._made += 1
        container = ContainerId(f"ct-bench{self._made}")
        spec = ContainerSpec(
            container=container,
            server=ServerName("bench"),
            deployment=DeploymentId("dp-1"),
            app="bench",
            command=(str(self.program),),
            directory=self.folder,
            log=log_path(self.folder / "logs", ServerName("bench"), container),
            scratch=self.folder / "run" / container,
            options={"state_dir": str(self.folder)},
        )
        return self.backend.spawn(spec, self.heard)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await deferLater(self.reactor, 0.0005, lambda: None)

    async def start(self, count: int) -> list[tuple[IContainer, float]]:
        """So many at once: each with the milliseconds until it was ready."""
        began = time.perf_counter()
        containers = [self.spawn() for _ in range(count)]
        await self.until(lambda: all(one.id in self.heard.ready_at for one in containers))
        return [(one, 1e3 * (self.heard.ready_at[one.id] - began)) for one in containers]

    async def stop(self, containers: Sequence[IContainer]) -> float:
        """Milliseconds until the last of them was gone."""
        began = time.perf_counter()
        for one in containers:
            one.terminate()
        await self.until(lambda: all(one.id in self.heard.gone_at for one in containers))
        return 1e3 * (max(self.heard.gone_at[one.id] for one in containers) - began)

    def bare(self, count: int) -> list[float]:
        """The same program without us: milliseconds from fork to an accepted connection, for each of so many at once."""
        began = time.perf_counter()
        ports = [FIRST_PORT + number for number in range(count)]
        children = [
            subprocess.Popen([str(self.program)], env={"PORT": str(port)}, stdin=subprocess.DEVNULL) for port in ports
        ]
        took: dict[int, float] = {}
        while len(took) < count:
            for port in ports:
                if port not in took:
                    with socket.socket() as attempt:
                        if attempt.connect_ex(("127.0.0.1", port)) == 0:
                            took[port] = 1e3 * (time.perf_counter() - began)
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.wait()
        return list(took.values())


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def used(pid: int) -> tuple[float, float]:
    """(seconds of CPU so far, resident MB) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def starts(bench: Bench, rounds: int) -> None:
    """The table of starts: bare and ours in the same round."""
    print("| starts | bare p50 | p99 | as a container p50 | p99 | over bare p50 | p99 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in (1, TOGETHER):
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(rounds if count > 1 else 10 * rounds):
            bare += bench.bare(count)
            started = await bench.start(count)
            ours += [took for _, took in started]
            await bench.stop([one for one, _ in started])
        figures = [percentile(bare, 0.5), percentile(bare, 0.99), percentile(ours, 0.5), percentile(ours, 0.99)]
        figures += [figures[2] - figures[0], figures[3] - figures[1]]
        print(f"| {count} at once, ms | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |", flush=True)


async def stops(bench: Bench, rounds: int) -> None:
    """How long it takes until the last of many is gone, with all that it left."""
    took = []
    for _ in range(rounds):
        started = await bench.start(STOPPED)
        took.append(await bench.stop([one for one, _ in started]))
    print(
        f"\nstop of {STOPPED} at once, until the last is gone: {statistics.median(took):.0f} ms ({min(took):.0f}-{max(took):.0f})"
    )


def alive(bench: Bench, seconds: float) -> None:
    """A daemon with many containers and nothing to do."""
    folder = bench.folder / "daemon"
    folder.mkdir()
    config = folder / "sticky.toml"
    figures = []
    for count in (0, ALIVE):
        config.write_text(
            f'[daemon]\nlisten = ["tcp:0:interface=127.0.0.1"]\naccess_log = "off"\n'
            f'[servers.bench]\ncommand = ["{bench.program}"]\nmin_containers = {count}\nmax_containers = {ALIVE}\n'
        )
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(
                [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "sticky", "--ephemeral"]
                + ["--config", str(config)],
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            began = time.monotonic()
            while (folder / "log").read_text().count("is ready") < count or not (folder / "state" / "url").exists():
                if time.monotonic() - began > 120 or daemon.poll() is not None:
                    raise SystemExit((folder / "log").read_text()[-2000:])
                time.sleep(0.05)
            up = time.monotonic() - began
            time.sleep(3)
            before, _ = used(daemon.pid)
            time.sleep(seconds)
            after, memory = used(daemon.pid)
            figures.append((100 * (after - before) / seconds, memory, up))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(90)
            (folder / "state" / "url").unlink(missing_ok=True)
    (idle, small, _), (cpu, large, up) = figures
    print(
        f"\n{ALIVE} containers alive, nothing to do: {cpu:.2f} % of a core ({idle:.2f} % with none), "
        f"{large:.0f} MB resident ({small:.0f} MB with none: {1e3 * (large - small) / ALIVE:.0f} kB a container); "
        f"all ready {up:.1f} s after the daemon's start"
    )


async def main(reactor: Any) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.containers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shows that all works: no figures to quote")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="sticky-bench-"))
    try:
        bench = Bench(reactor, folder)
        await starts(bench, 3 if quick else 20)
        await stops(bench, 1 if quick else 5)
        await bench.backend.stop()
        alive(bench, 3 if quick else 20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), ())

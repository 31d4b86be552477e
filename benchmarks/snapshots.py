"""A Python Server's container from spawn to its first answer: from scratch, and forked from a process that has prepared it.

    python -m benchmarks.snapshots [--forks N] [--scratch N]

The app imports what a real one does (Twisted's web, autobahn and treq; numpy and pandas where they are installed) and answers
by `http.server` (without its look-up of a name for the address). Needs nothing of `setup`. Only processes that a run started are
stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from zope.interface import implementer

from benchmarks.looking import private, worked
from sticky.containers.logs import log_path
from sticky.containers.ownership import realm_of
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerListener, TCPAddress

TAUGHT, LIVES = 4, 0.7  #: containers that live as long as real ones do, and seconds of that
PAUSE = 0.1  #: seconds between two starts
WANTED = ("twisted.web.server", "twisted.web.client", "autobahn.twisted.websocket", "treq.client", "numpy", "pandas")
APP = """
import http.server, os, socketserver, threading
{imports}
import sticky

app = sticky.App("bench")


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments): ...


@app.server(port=None)
@sticky.sessioned()
class Server:
    @sticky.enter(snap=True)
    def load(self):
        self.table = {{number: str(number) for number in range(200_000)}}

    @sticky.enter()
    def serve(self):
        server = socketserver.ThreadingTCPServer(("127.0.0.1", int(os.environ["PORT"])), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def installed() -> list[str]:
    """Those of the modules that there are."""
    return [name for name in WANTED if importlib.util.find_spec(name.partition(".")[0]) is not None]


@implementer(IContainerListener)
class Heard:
    """Asks each container for its page as soon as it is ready, and notes when the answer was there."""

    def __init__(self) -> None:
        self.answered_at: dict[ContainerId, float] = {}
        self.gone: dict[ContainerId, Exit] = {}

    def ready(self, container: ContainerId, address: Address) -> None:
        assert isinstance(address, TCPAddress)
        with socket.create_connection((address.host, address.port), 10) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if not connection.recv(4096).startswith(b"HTTP/1.0 200"):
                raise SystemExit("a container gave another answer")
        self.answered_at[container] = time.perf_counter()

    def exited(self, container: ContainerId, exit: Exit) -> None:
        self.gone[container] = exit


class Bench:
    """One backend, one app, and a folder for both."""

    def __init__(self, reactor: Any, folder: Path, modules: Sequence[str]) -> None:
        self._reactor = reactor
        self._folder = folder
        self._app = folder / "app.py"
        self._app.write_text(APP.format(imports="\n".join(f"import {name}" for name in modules)))
        self.backend = ProcessBackend(reactor, realm=realm_of(folder))
        self._heard = Heard()

    def spec(self, snapshot: bool) -> ContainerSpec:
        """A container to be forked, or not."""
        container = ContainerId(f"ct-{secrets.token_urlsafe(16)}")
        runtime = (sys.executable, "-m", "sticky.containers.runtime")
        return ContainerSpec(
            container=container,
            server=ServerName("bench"),
            deployment=DeploymentId("dp-1"),
            app="bench",
            command=(*runtime, "serve", str(self._app)),
            directory=self._folder,
            log=log_path(self._folder / "logs", ServerName("bench"), container),
            scratch=self._folder / "run" / container,
            reports_ready=True,
            snapshot=(*runtime, "zygote", str(self._app)) if snapshot else (),
            options={"state_dir": str(self._folder)},
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Look every half a millisecond."""
        while not condition():
            await deferLater(self._reactor, 0.0005, lambda: None)

    async def warm(self) -> int:
        """Milliseconds until the process that forks is ready to."""
        began = time.perf_counter()
        self.backend.warm(self.spec(True))
        await self.until(lambda: (found := self.backend.snapshot(ServerName("bench"))) and found.state != "warming")
        found = self.backend.snapshot(ServerName("bench"))
        if found is None or found.state != "warm":
            raise SystemExit(f"there is no snapshot: {found and found.problem}")
        took = round(1e3 * (time.perf_counter() - began))
        for _ in range(
            TAUGHT
        ):  # forks are got ready by what those before them wrote to, as far as these live for a moment
            _, container = await self.start(True)
            await deferLater(self._reactor, LIVES, lambda: None)
            await self.end(container)
        return took

    async def start(self, snapshot: bool) -> tuple[float, IContainer]:
        """Milliseconds from spawn to the first answer of one container."""
        began = time.perf_counter()
        container = self.backend.spawn(self.spec(snapshot), self._heard)
        await self.until(lambda: container.id in self._heard.answered_at or container.id in self._heard.gone)
        if container.id in self._heard.gone:
            raise SystemExit(self._heard.gone[container.id].message)
        return 1e3 * (self._heard.answered_at[container.id] - began), container

    async def starts(self, count: int, snapshot: bool) -> tuple[list[float], list[float]]:
        """One after the other; each is gone before the next. Milliseconds, and those of a processor in it and its zygote."""
        times, work = [], []
        for _ in range(count):
            found = self.backend.snapshot(ServerName("bench"))
            zygote = None if found is None else found.pid
            before = 0 if zygote is None else worked(zygote)
            took, container = await self.start(snapshot)
            times.append(took)
            spent = worked(int(str(container.place["pid"]))) + (0 if zygote is None else worked(zygote) - before)
            work.append(spent / 1e6)
            await self.end(container)
        return times, work

    async def end(self, container: IContainer) -> None:
        """It is gone, and the next fork is there."""
        container.kill()
        await self.until(lambda: container.id in self._heard.gone)
        await deferLater(self._reactor, PAUSE, lambda: None)

    async def own_memory(self, count: int) -> list[int]:
        """Bytes of so many forked containers at once that each shares with nobody."""
        containers = [(await self.start(True))[1] for _ in range(count)]
        found = [private(int(str(container.place["pid"]))) for container in containers]
        for container in containers:
            container.kill()
        await self.until(lambda: all(container.id in self._heard.gone for container in containers))
        return found


def row(name: str, times: Sequence[float]) -> None:
    """A line for docs/performance.md."""
    ordered = sorted(times)
    print(f"| {name} | p50 {statistics.median(ordered):.1f} ms, p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms |")


async def main(reactor: Any) -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=100)
    parser.add_argument("--scratch", type=int, default=15)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sticky-bench-"))
    modules = installed()
    try:
        bench = Bench(reactor, folder, modules)
        scratch, scratch_work = await bench.starts(options.scratch, False)
        warmed = await bench.warm()
        forked, forked_work = await bench.starts(options.forks, True)
        found = bench.backend.snapshot(ServerName("bench"))
        memory = await bench.own_memory(10)
        await bench.backend.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"imported: {', '.join(modules)}")
    row("from scratch, spawn to first answer", scratch)
    row("forked, spawn to first answer", forked)
    row("the same, time of a processor: from scratch", scratch_work)
    row("the same, forked, with what the zygote did", forked_work)
    print(f"| from scratch : forked | {statistics.median(scratch) / statistics.median(forked):.0f} |")
    print(f"| until the process that forks is ready | {warmed} ms |")
    print(f"| its memory | {((found and found.memory) or 0) / (1 << 20):.0f} MiB |")
    print(f"| a forked container's own, of 10 | {statistics.median(memory) / (1 << 20):.1f} MiB |")


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), ())

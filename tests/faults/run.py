"""One run: a daemon, clients, and a hand that kills at random times. `python -m tests.faults.run --help`.

The times and kinds of faults follow from the seed; what meets them does not, being a real machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp
import attrs

from tests.faults.clients import Clients
from tests.faults.model import Model
from tests.integration.running_daemon import ROOT

LIMIT = 60
SAY_EVERY = 10  #: kills of the daemon, in a long run
KINDS = {"daemon": 6, "worker": 2, "container": 1, "restart": 1}  #: how often each, relative to the others


@attrs.frozen
class Plan:
    """What a run does."""

    seed: int
    daemon_kills: int
    rate: float = 50.0  #: starts a second
    workers: int = 1
    counters: int = 20
    between: tuple[float, float] = (0.3, 2.5)  #: seconds between two faults
    kinds: tuple[str, ...] = tuple(KINDS)


@attrs.define(eq=False)
class Report:
    """What came of it."""

    plan: Plan
    faults: Counter[str] = attrs.field(factory=Counter)
    down: list[float] = attrs.field(factory=list)  #: seconds from a daemon's kill to a request that is served again
    memory: list[tuple[float, int]] = attrs.field(factory=list)  #: (seconds, KiB of the daemon's resident memory)
    seconds: float = 0.0
    orphans: int = 0
    model: Model = attrs.field(factory=lambda: Model(LIMIT))
    retries: int = 0

    def lines(self) -> list[str]:
        """For people."""
        model, down = self.model, sorted(self.down)
        found = [
            f"seed {self.plan.seed}, workers {self.plan.workers}, {self.seconds:.0f} s, faults {dict(self.faults)}",
            f"starts answered {model.starts} ({model.starts / max(1.0, self.seconds):.0f} a second; {model.found_again} found"
            f" by their key), answers {model.answers}, ends {model.ends}, tries again {self.retries}",
            f"promises broken {len(model.broken)}, processes left over {self.orphans}",
        ]
        if len(down) > 1:
            cuts = statistics.quantiles(down, n=100, method="inclusive")
            found.append(
                f"from a daemon's kill to served again: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, max {down[-1]:.2f} s"
            )
        return [*found, *model.broken[:20]]


class Ground:
    """The folder, the daemon, and what runs for it."""

    def __init__(self, plan: Plan) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-faults-")).resolve()
        command = json.dumps([sys.executable, str(Path(__file__).with_name("app.py")), "{port}"])
        (self.folder / "sticky.toml").write_text(
            f'[daemon]\nworkers = {plan.workers}\naccess_log = "off"\ndrain_timeout = 5\n\n[servers.one]\ncommand = {command}\n'
            f"max_concurrency = {LIMIT}\nmax_containers = 10\nmax_sessions_per_caller = 100000\nmax_queue_per_caller = 1000\n"
            "scaledown_window = 5\nmin_containers = 2\n"
        )
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = (self.folder / "daemon.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """A daemon on what is there."""
        twistd = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
        arguments = ["-n", "--pidfile=", "sticky", "--config", "sticky.toml", "--state-dir", str(self.folder / "state")]
        listen = ["--listen", f"tcp:{self._port}:interface=127.0.0.1"]
        self.process = subprocess.Popen(
            [*twistd, *arguments, *listen], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip

    def in_charge(self) -> int:
        """The pid of the daemon: it may be the successor of the one that was started."""
        return int((self.folder / "state" / "lock").read_text().strip() or 0)

    def kill_daemon(self) -> None:
        """SIGKILL to whoever is in charge; earlier ones go with it."""
        _kill(self.in_charge())
        if self.process is not None and self.process.poll() is None and self.process.pid not in self.daemons():
            self.process.wait()

    def processes(self, mark: bytes) -> list[int]:
        """Whatever works in this folder and has this in its command line or environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or (entry / "cwd").readlink() != self.folder:
                    continue
                if mark in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def daemons(self) -> list[int]:
        """Daemons, old and new."""
        return [pid for pid in self.processes(b"--state-dir") if pid not in self.containers()]

    def workers(self) -> list[int]:
        """Worker processes."""
        return self.processes(b"sticky.worker import")

    def containers(self) -> dict[int, str]:
        """Containers' ids by pid."""
        found = {}
        for pid in self.processes(b"STICKY_CONTAINER_ID="):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found[pid] = next(one[20:].decode() for one in environ if one.startswith(b"STICKY_CONTAINER_ID="))
        return found

    def close(self) -> None:
        """Nothing of this run stays."""
        for pid in self.processes(b""):
            _kill(pid)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Hand:
    """Does the harm."""

    def __init__(self, ground: Ground, clients: Clients, report: Report, chance: random.Random) -> None:
        self._ground = ground
        self._clients = clients
        self._report = report
        self._chance = chance
        self._began = time.monotonic()

    async def work(self) -> None:
        """Until the daemon has been killed as often as was planned."""
        plan = self._report.plan
        weights = [KINDS[kind] for kind in plan.kinds]
        while self._report.faults["daemon"] < plan.daemon_kills:
            await asyncio.sleep(self._chance.uniform(*plan.between))
            kind = self._chance.choices(plan.kinds, weights)[0]
            await getattr(self, f"_{kind}")()

    async def _daemon(self) -> None:
        self._ground.kill_daemon()
        at = time.monotonic()
        self._report.faults["daemon"] += 1
        await asyncio.sleep(0.01)
        self._ground.start()
        await self._served()
        self._report.down.append(time.monotonic() - at)
        self._report.memory.append((at, _memory(self._ground.in_charge())))
        if not self._report.faults["daemon"] % SAY_EVERY:
            self._report.seconds = time.monotonic() - self._began
            sys.stderr.write("\n".join(self._report.lines()) + "\n")

    async def _served(self) -> None:
        stay = await self._clients.start()
        await self._clients.ask(stay)
        self._clients.begin(self._clients.terminate(stay))

    async def _worker(self) -> None:
        workers = self._ground.workers()
        if workers:
            _kill(self._chance.choice(workers))
            self._report.faults["worker"] += 1

    async def _container(self) -> None:
        containers = self._ground.containers()
        if containers:
            pid = self._chance.choice(sorted(containers))
            self._clients.model.killed.add(containers[pid])
            _kill(pid)
            self._report.faults["container"] += 1

    async def _restart(self) -> None:
        command = [sys.executable, "-m", "sticky.cli", "restart", "--state-dir", str(self._ground.folder / "state")]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self._ground.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        if process.returncode:
            self._clients.model.broken.append(f"a restart failed: {said.decode().strip()[-300:]}")
        self._report.faults["restart"] += 1


async def run(plan: Plan) -> Report:
    """The whole of it."""
    chance = random.Random(plan.seed)
    report = Report(plan)
    ground = Ground(plan)
    try:
        ground.start()
        await _up(ground)
        bearer = (ground.folder / "state" / "proxy-token").read_text().strip()
        timeout = aiohttp.ClientTimeout(total=90, sock_connect=5)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
            clients = Clients(ground.url, bearer, report.model, random.Random(plan.seed + 1), http)
            began = time.monotonic()
            for _ in range(plan.counters):
                clients.begin(clients.counter())
            arriving = asyncio.ensure_future(clients.arrivals(plan.rate))
            await Hand(ground, clients, report, chance).work()
            await asyncio.sleep(1.0)  # of load after the last fault: what it did to them is to be seen, too
            clients.stopped.set()
            await arriving
            while clients.busy:
                await asyncio.wait(clients.busy)
            report.seconds = time.monotonic() - began
            await _all_findable(clients)
            report.retries = clients.retries
        report.orphans = await _left_over(ground)
    except BaseException:
        report.model.broken.append("the run was not finished")
        raise
    finally:
        if report.model.broken or os.environ.get("STICKY_FAULTS_KEEP_LOG"):
            kept = Path(tempfile.gettempdir(), f"sticky-faults-{plan.seed}.log")
            shutil.copy(ground.folder / "daemon.log", kept)
            sys.stderr.write(f"the daemons' log is kept as {kept}\n")
        ground.close()
    return report


async def _all_findable(clients: Clients) -> None:
    """Each session that was promised and not ended answers, and none that has ended."""
    for stay in list(clients.model.stays.values()):
        if stay.over is None:
            await clients.ask(stay)


async def _left_over(ground: Ground) -> int:
    """Processes of containers 60 s after a tidy stop at the latest."""
    os.kill(ground.in_charge(), signal.SIGTERM)
    deadline = time.monotonic() + 60
    while ground.containers() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return len(ground.containers())


async def _up(ground: Ground) -> None:
    deadline = time.monotonic() + 60
    while not (ground.folder / "state" / "url").exists():
        if time.monotonic() > deadline or (ground.process is not None and ground.process.poll() is not None):
            raise AssertionError((ground.folder / "daemon.log").read_text()[-3000:])
        await asyncio.sleep(0.05)


def _kill(pid: int) -> None:
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _memory(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4
    except (OSError, IndexError):
        return 0


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def main() -> int:
    """Exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Kill a daemon under load, and check what its clients were promised.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="of the daemon")
    parser.add_argument("--rate", type=float, default=50.0, help="starts a second")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    report = asyncio.run(run(Plan(given.seed, given.kills, given.rate, given.workers)))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 1 if report.model.broken or report.orphans else 0


if __name__ == "__main__":
    sys.exit(main())

"""One run: a daemon, clients, and a hand that kills at random times. `python -m tests.faults.run --help`.

The times and kinds of faults follow from the seed; what meets them does not, being a real machine.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from sticky.cli.client import Admin
from tests.faults.clients import Clients
from tests.faults.ground import Ground
from tests.faults.hand import Hand
from tests.faults.report import KINDS, Plan, Report


async def run(plan: Plan) -> Report:
    """The whole of it."""
    chance = random.Random(plan.seed)
    report = Report(plan)
    ground = Ground(plan.workers, plan.kinds, preloaded=plan.preloaded)
    report.left_out = ground.left_out
    try:
        ground.start()
        await up(ground)
        bearer = (ground.state / "proxy-token").read_text().strip()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            clients = Clients(ground.url, bearer, report.model, random.Random(plan.seed + 1), http)
            began = time.monotonic()
            for _ in range(plan.counters):
                clients.begin(clients.counter())
            arriving = asyncio.ensure_future(clients.arrivals(plan.rate))
            await Hand(ground, clients, report, chance).work()
            await asyncio.sleep(1.0)  # of load after the last fault: what it did to them is to be seen, too
            await clients.finish(arriving)
            report.seconds = time.monotonic() - began
            await clients.all_findable()
            report.retries, report.held_back = clients.retries, clients.held_back
        report.strays = await strays(ground)
        report.orphans = await left_over(ground)
    except BaseException:
        report.model.broken.append("the run was not finished")
        raise
    finally:
        if report.model.broken or os.environ.get("STICKY_FAULTS_KEEP_LOG"):
            kept = Path(tempfile.gettempdir(), f"sticky-faults-{plan.seed}.log")
            shutil.copy(ground.log, kept)
            sys.stderr.write(f"the daemons' log is kept as {kept}\n")
        ground.close()
    return report


async def strays(ground: Ground) -> list[str]:
    """Containers that run and that the daemon does not know, 60 s after it came back at the latest."""
    deadline = time.monotonic() + 60
    while True:
        there = set(ground.containers().values())
        status = await asyncio.to_thread(Admin(ground.state).status)
        known = {container["id"] for server in status["servers"] for container in server["containers"]}
        if not there - known or time.monotonic() > deadline:
            return sorted(there - known)
        await asyncio.sleep(0.5)


async def left_over(ground: Ground) -> int:
    """Processes of containers 60 s after a tidy stop at the latest."""
    os.kill(ground.in_charge(), signal.SIGTERM)
    deadline = time.monotonic() + 60
    while ground.containers() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return len(ground.containers())


async def up(ground: Ground) -> None:
    """It listens."""
    deadline = time.monotonic() + 60
    while not (ground.state / "url").exists():
        if time.monotonic() > deadline or (ground.process is not None and ground.process.poll() is not None):
            raise AssertionError(ground.last_words())
        await asyncio.sleep(0.05)


def main() -> int:
    """Exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        description="Do harm to a daemon under load, and check what its clients were promised."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="of the daemon")
    parser.add_argument("--rate", type=float, default=50.0, help="starts a second")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of faults (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further fault is begun")
    parser.add_argument("--hold", type=float, default=15.0, help="seconds that a fault that lasts may last")
    parser.add_argument("--between", type=float, default=2.5, help="seconds between two faults at most")
    parser.add_argument(
        "--preloaded",
        action="store_true",
        help="fork daemons from a process that has imported them: starts cost a tenth",
    )
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no such kind of fault: {', '.join(sorted(unknown))}")
    plan = Plan(
        given.seed, given.kills, given.rate, given.workers,
        between=(0.3, given.between), hold=(0.5, given.hold), kinds=kinds, seconds=given.minutes * 60,
        preloaded=given.preloaded,
    )  # fmt: skip
    report = asyncio.run(run(plan))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 1 if report.model.broken or report.strays or report.orphans else 0


if __name__ == "__main__":
    sys.exit(main())

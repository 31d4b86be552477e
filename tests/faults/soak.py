"""A long, quiet run: does a daemon that works for an hour grow? `python -m tests.faults.soak --help`.

Nothing is killed: sessions come and go, containers reach their age, and the memory of daemon and workers is looked at. What has to
be remembered for a while (how sessions ended, as long as their tokens live) is steady once that while is over: the warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import attrs

from tests.faults.clients import Clients
from tests.faults.ground import Ground
from tests.faults.model import Model
from tests.faults.report import LIMIT
from tests.faults.run import left_over, up

AGE = 300  #: seconds that a container lives; what its tokens need is remembered for 300 more
LOOKS_EVERY = 15.0  #: seconds
_MIB = 1024 * 1024

SERVER = (
    f"max_concurrency = {LIMIT}\nmax_containers = 6\nmin_containers = 2\nscaledown_window = 5\ncontainer_max_age = {AGE}\n"
    "idle_timeout = 60\nmax_sessions_per_caller = 100000\nmax_queue_per_caller = 1000\n"
)


@attrs.frozen
class Sample:
    """One look at one process."""

    at: float  #: seconds since the beginning
    resident: int  #: bytes
    descriptors: int
    processor: float  #: seconds that it has used


@attrs.define(eq=False)
class Soak:
    """What was seen, by process: "daemon", "worker 1" and so on, and "all" for their sum."""

    warm_up: float  #: seconds that do not count
    model: Model = attrs.field(factory=lambda: Model(LIMIT, frozenset({"container_max_age"})))
    samples: dict[str, list[Sample]] = attrs.field(factory=dict)
    seconds: float = 0.0
    orphans: int = 0

    def note(self, at: float, pids: Sequence[int]) -> None:
        """The daemon's pid first."""
        seen = []
        for number, pid in enumerate(pids):
            sample = look(at, pid)
            seen.append(sample)
            self.samples.setdefault(f"worker {number}" if number else "daemon", []).append(sample)
        total = Sample(
            at,
            sum(one.resident for one in seen),
            sum(one.descriptors for one in seen),
            sum(one.processor for one in seen),
        )
        self.samples.setdefault("all", []).append(total)

    def lines(self) -> list[str]:
        """For people."""
        model = self.model
        found = [
            f"{self.seconds:.0f} s, of these {self.warm_up:.0f} s warm-up",
            f"starts answered {model.starts} ({model.starts / max(1.0, self.seconds):.1f} a second), answers {model.answers},"
            f" ends {model.ends}, tries again after {dict(model.setbacks)}",
            f"promises broken {len(model.broken)}, processes left over {self.orphans}",
        ]
        for name, samples in self.samples.items():
            kept = [one for one in samples if one.at >= self.warm_up]
            if len(kept) < 2:
                continue
            first, last = kept[0], kept[-1]
            found.append(
                f"{name}: {slope(kept):+.2f} MiB/h over {len(kept)} looks, from {first.resident / _MIB:.1f} to"
                f" {last.resident / _MIB:.1f} MiB, at most {max(one.resident for one in samples) / _MIB:.1f}; descriptors"
                f" {first.descriptors} to {last.descriptors}; {last.processor / last.at * 100:.1f} % of a processor"
            )
        return [*found, *model.broken[:20]]


def slope(samples: Sequence[Sample]) -> float:
    """MiB an hour that resident memory grew, as the straight line of least squares."""
    middle = sum(one.at for one in samples) / len(samples)
    level = sum(one.resident for one in samples) / len(samples)
    above = sum((one.at - middle) * (one.resident - level) for one in samples)
    return above / sum((one.at - middle) ** 2 for one in samples) * 3600 / _MIB


def look(at: float, pid: int) -> Sample:
    """What /proc says of it."""
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    times = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Sample(at, resident, len(os.listdir(folder / "fd")), sum(map(int, times)) / os.sysconf("SC_CLK_TCK"))


async def soak(minutes: float, warm_up: float, rate: float, counters: int, workers: int) -> Soak:
    """The whole of it."""
    found = Soak(warm_up * 60)
    ground = Ground(workers, server=SERVER, daemon="")
    try:
        ground.start()
        await up(ground)
        bearer = (ground.state / "proxy-token").read_text().strip()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            clients = Clients(ground.url, bearer, found.model, random.Random(1), http, counts_every=1.0)
            began = time.monotonic()
            for _ in range(counters):
                clients.begin(clients.counter())
            arriving = asyncio.ensure_future(clients.arrivals(rate))
            while (at := time.monotonic() - began) < minutes * 60:
                found.seconds = at
                found.note(at, [ground.in_charge(), *ground.workers()])
                if len(found.samples["all"]) % 20 == 0:
                    sys.stderr.write("\n".join(found.lines()) + "\n")
                await asyncio.sleep(LOOKS_EVERY)
            await clients.finish(arriving)
            await clients.all_findable()
        found.orphans = await left_over(ground)
    finally:
        ground.close()
    return found


def main() -> int:
    """Exit status 1 if a promise was broken; what slope is too steep is for the reader."""
    parser = argparse.ArgumentParser(description="Let a daemon work, and see whether its memory grows.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=15.0, help="minutes of these that do not count")
    parser.add_argument("--rate", type=float, default=3.0, help="starts a second")
    parser.add_argument("--counters", type=int, default=10, help="WebSockets that are open all the time")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    found = asyncio.run(soak(given.minutes, given.warm_up, given.rate, given.counters, given.workers))
    sys.stdout.write("\n".join(found.lines()) + "\n")
    return 1 if found.model.broken or found.orphans else 0


if __name__ == "__main__":
    sys.exit(main())

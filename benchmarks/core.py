"""The core's figures: memory a session, cost of a request's touch, and how admission and expiry grow. No I/O.

    python benchmarks/core.py [--sessions 100000] [--ledgers 100]

Prints a table in markdown. Goals: at most 400 bytes a session, touch under 1 µs, admission and expiry O(log n) or better.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tracemalloc
from itertools import count
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sticky.core.effects import EndSession, SpawnContainer
from sticky.core.events import ContainerReady, StartAbandoned, StartRequested, TimePassed
from sticky.core.fleet import Fleet, Ids
from sticky.core.values import Caller, ContainerId, DeploymentId, Policy, SessionId, WaiterId

SAMPLE = 2000  #: operations that are timed at each size


class Crowd:
    """A fleet with READY containers, and sessions on them whose deadlines are spread over their idle timeout."""

    def __init__(self, ledgers: int, room: int) -> None:
        self.now = 1000.0
        self.numbers = count(1)
        ids = Ids(
            lambda: SessionId(f"sd-{next(self.numbers):022}"),
            lambda: ContainerId(f"ct-{next(self.numbers):022}"),
            lambda: 0.5,
        )
        policy = Policy(
            max_concurrency=room,
            min_containers=ledgers,
            max_containers=ledgers,
            max_queue=10**9,
            max_queue_per_caller=10**9,
            max_sessions_per_caller=10**9,
        )
        self.fleet = Fleet(policy, DeploymentId("dp-1"), ids)
        self.waiters = count(1)
        for effect in self.fleet.step(self.now, TimePassed()):
            if isinstance(effect, SpawnContainer):
                self.fleet.step(self.now, ContainerReady(effect.container))

    def start(self) -> None:
        """One more session."""
        event = StartRequested(WaiterId(next(self.waiters)), Caller("10.0.0.1"), "", None, None)
        self.fleet.step(self.now, event)

    def fill(self, sessions: int) -> None:
        """So many sessions, started over 500 s, so that they end one after the other from 600 s on."""
        for _ in range(sessions):
            self.now += 500.0 / sessions
            self.start()


def rss() -> int:
    """Resident bytes of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def traced(sessions: int, ledgers: int) -> float:
    """Bytes a session by tracemalloc. Ids are the core's own; the caller's name is shared."""
    crowd = Crowd(ledgers, sessions // ledgers + 1)
    gc.collect()
    tracemalloc.start()
    crowd.fill(sessions)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / sessions


def touch(crowd: Crowd) -> float:
    """Seconds for one begin and finish."""
    fleet, now = crowd.fleet, crowd.now
    pairs = [(session.id, ledger.container) for ledger in fleet.ledgers for session in ledger]
    pairs = pairs[:: max(1, len(pairs) // 10_000)]
    best = float("inf")
    for _ in range(7):
        began = perf_counter()
        for session, home in pairs:
            fleet.finish(now, home, fleet.begin(now, home, session))
        best = min(best, (perf_counter() - began) / len(pairs))
    return best


def yardstick() -> float:
    """Microseconds for a call of an empty method and its loop, the least that Python can do: how fast the machine is just now."""

    class Empty:
        def call(self, now: float) -> None: ...

    empty, best = Empty(), float("inf")
    for _ in range(7):
        began = perf_counter()
        for _ in range(100_000):
            empty.call(0.0)
        best = min(best, (perf_counter() - began) / 100_000)
    return best * 1e6


def admission(crowd: Crowd) -> float:
    """Seconds for one start that is granted at once."""
    began = perf_counter()
    for _ in range(SAMPLE):
        crowd.now += 0.001
        crowd.start()
    return (perf_counter() - began) / SAMPLE


def expiry(crowd: Crowd) -> float:
    """Seconds for one session that ends by its idle clock, each at its own deadline, as a timer would have it."""
    fleet, ended = crowd.fleet, 0
    began = perf_counter()
    while ended < SAMPLE:
        crowd.now = fleet.wake_at
        effects = fleet.step(crowd.now, TimePassed())
        ended += sum(isinstance(effect, EndSession) for effect in effects)
    return (perf_counter() - began) / SAMPLE


def herd(waiting: int) -> float:
    """Seconds for one start that joins a long queue, and leaves it again."""
    crowd = Crowd(1, 1)
    for _ in range(waiting):
        crowd.start()
    began = perf_counter()
    for _ in range(200):
        crowd.start()
        crowd.fleet.step(crowd.now, StartAbandoned(WaiterId(next(crowd.waiters) - 1)))
        next(crowd.waiters)
    return (perf_counter() - began) / 400


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--ledgers", type=int, default=100)
    options = parser.parse_args()
    by_trace = traced(options.sessions // 5, options.ledgers // 5)
    sizes = [options.sessions // 100, options.sessions // 10, options.sessions]
    rows: dict[str, list[float]] = {"admission: start to grant": [], "expiry": [], "touch: begin + finish": []}
    for sessions in sizes:
        crowd = Crowd(options.ledgers, sessions // options.ledgers + SAMPLE)
        gc.collect()
        before = rss()
        crowd.fill(sessions)
        gc.collect()
        resident = (rss() - before) / sessions
        for row, measure in zip(rows.values(), (admission, expiry, touch), strict=True):
            row.append(measure(crowd) * 1e6)
        del crowd
    print(f"Python {sys.version.split()[0]}, {options.sessions:,} sessions on {options.ledgers} ledgers\n")
    print("| figure | value | goal |\n| --- | --- | --- |")
    print(f"| memory a session, tracemalloc | {by_trace:.0f} B | 400 B |")
    print(f"| memory a session, RSS | {resident:.0f} B | 400 B |")
    print(f"| touch (begin + finish), best of 7 | {rows['touch: begin + finish'][-1]:.2f} µs | 1 µs |")
    print(f"| yardstick: a call of an empty method, best of 7 | {yardstick():.3f} µs | |\n")
    print(
        "| µs an operation | "
        + " | ".join(f"{size:,} sessions" for size in sizes)
        + " | growth over 100 times the sessions |"
    )
    print("| --- |" + " --- |" * (len(sizes) + 1))
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in row) + f" | {row[-1] / row[0]:.2f} |")
    queues = [10, 100, 1000]
    figures = [herd(waiting) * 1e6 for waiting in queues]
    print("\n| µs an operation | " + " | ".join(f"{size:,} waiting" for size in queues) + " |")
    print("| --- |" + " --- |" * len(queues))
    print("| start that joins the queue, or leaves it | " + " | ".join(f"{figure:.0f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()

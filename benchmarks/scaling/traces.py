"""Traffic: who comes when and stays how long, drawn from committed arrivals and seeds. Knows no policy and no fleet.

Only `random.Random.random` is used: it alone is promised to give the same numbers for a seed in every Python.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from math import cos, exp, log, pi, sqrt
from pathlib import Path
from random import Random
from typing import TypeVar

import attrs

from sticky.core.values import UNBOUNDED

T = TypeVar("T")
FOLDER = Path(__file__).parent / "days"
MINUTES = 24 * 60


@attrs.frozen
class Visit:
    """One client: when it asks for a session, how long it uses it, and whether it ends it or just goes away."""

    arrives: float  #: seconds from the beginning of the trace
    stay: float  #: seconds from the grant to its last byte
    releases: bool  #: ends its session when it leaves; else the idle timeout does


@attrs.frozen
class Traffic:
    """What a simulation is fed with. Times are seconds."""

    name: str
    visits: tuple[Visit, ...]  #: by time of arrival
    max_concurrency: int
    start_time: float  #: that a container needs until it is ready, on average
    idle_timeout: float
    seed: int
    spread: float = 0.2  #: start times lie evenly within this share of the average, to both sides
    #: Container time is counted up to here; what still runs then is played to its end uncounted.
    window: float = UNBOUNDED

    @property
    def shortest_start(self) -> float:
        return self.start_time * (1.0 - self.spread)

    @property
    def longest_start(self) -> float:
        return self.start_time * (1.0 + self.spread)

    def start_times(self) -> Iterator[float]:
        """Start times of the first, the second ... container, without end."""
        chance = Random(self.seed)
        while True:
            yield self.shortest_start + (self.longest_start - self.shortest_start) * chance.random()

    def hold(self, visit: Visit) -> float:
        """Seconds from the grant to the end of the session."""
        return visit.stay if visit.releases else visit.stay + self.idle_timeout


@attrs.frozen
class Crowd:
    """How the visitors of one kind of Server behave, and what its containers can do: a row of days/workloads.toml."""

    arrivals: str  #: file in days/ with the arrivals of each minute
    seed: int
    sessions: int  #: a day, about
    max_concurrency: int
    start_time: float
    idle_timeout: float
    stay_median: float
    stay_sigma: float  #: of the logarithm of the stay
    stay_longest: float
    releases: float  #: share of the visitors that end their sessions

    def visits(self, arrivals: Sequence[int], chance: Random) -> tuple[Visit, ...]:
        """Visitors of a trace: anywhere within their minute, stays lognormal, a second at least."""
        visits = [
            Visit(
                60.0 * minute + 60.0 * chance.random(),
                min(max(1.0, self.stay_median * exp(self.stay_sigma * normal(chance))), self.stay_longest),
                chance.random() < self.releases,
            )
            for minute, count in enumerate(arrivals)
            for _ in range(count)
        ]
        return tuple(sorted(visits, key=lambda visit: visit.arrives))

    def traffic(self, name: str, visits: tuple[Visit, ...], window: float) -> Traffic:
        """These visitors on such containers."""
        return Traffic(name, visits, self.max_concurrency, self.start_time, self.idle_timeout, self.seed, window=window)


def workloads() -> dict[str, Crowd]:
    """The committed kinds of Servers by name."""
    tables = tomllib.loads((FOLDER / "workloads.toml").read_text())
    return {name: Crowd(**table) for name, table in tables.items()}


def day(name: str) -> Traffic:
    """The committed day of one kind of Server."""
    crowd = workloads()[name]
    visits = crowd.visits(read_arrivals(FOLDER / crowd.arrivals), Random(crowd.seed))
    return crowd.traffic(name, visits, 60.0 * MINUTES)


def read_arrivals(path: Path) -> list[int]:
    """Arrivals of each minute, from a CSV file with the columns minute and arrivals; minutes without any are left out."""
    arrivals = [0] * MINUTES
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            arrivals[int(row["minute"])] = int(row["arrivals"])
    return arrivals


def random_seeds() -> list[int]:
    """The committed seeds of random traffic."""
    with (FOLDER / "random.csv").open(newline="") as lines:
        return [int(row["seed"]) for row in csv.DictReader(lines)]


def random_traffic(seed: int, hours: float = 3.0) -> Traffic:
    """Traffic of which everything is drawn from the seed: load, bursts, stays, start time, sessions a container takes.

    Arrivals come in two moods, calm and busy, that change at random moments; now and then a herd comes within a second.
    """
    chance = Random(seed)
    crowd = Crowd(
        arrivals="",
        seed=seed,
        sessions=0,
        max_concurrency=choice(chance, (1, 4, 10, 20, 50)),
        start_time=choice(chance, (1.0, 5.0, 20.0)),
        idle_timeout=choice(chance, (60.0, 300.0)),
        stay_median=choice(chance, (60.0, 300.0, 900.0)),
        stay_sigma=choice(chance, (0.5, 1.0, 1.5)),
        stay_longest=4 * 3600.0,
        releases=choice(chance, (0.0, 0.5, 1.0)),
    )
    mean_hold = crowd.stay_median * exp(crowd.stay_sigma**2 / 2) + (1.0 - crowd.releases) * crowd.idle_timeout
    calm = choice(chance, (0.2, 1.0, 3.0)) * crowd.max_concurrency / mean_hold  # arrivals a second that fill so many
    busy = calm * choice(chance, (2.0, 4.0))
    moments: list[float] = []
    now, mood_ends, rate = 0.0, 0.0, busy
    while now < hours * 3600.0:
        if now >= mood_ends:
            rate = calm if rate == busy else busy
            mood_ends = now - 900.0 * log(1.0 - chance.random())
            if chance.random() < 0.2:
                moments += [now + chance.random() for _ in range(int(100 * chance.random()))]
        now += -log(1.0 - chance.random()) / rate
        moments.append(now)
    visits = tuple(
        attrs.evolve(visit, arrives=moment)
        for moment, visit in zip(sorted(moments), crowd.visits([len(moments)], chance), strict=True)
    )
    return crowd.traffic(f"random {seed}", visits, hours * 3600.0)


# --- how the committed files were made


def draw_day(seed: int, sessions: int) -> list[int]:
    """Arrivals of each minute of a day as servers record it: quiet at night, a bump at noon, a peak in the evening.

    The level drifts (the logarithm is a first-order autoregression), minutes are Poisson around it, and five times a
    crowd comes on top: two herds within a minute (a link went round), three that decay over minutes (a broadcast ends).
    """
    chance = Random(seed)
    shape = [
        0.12 + 0.45 * bump(minute, 12.5 * 60, 130.0) + 1.0 * bump(minute, 20.5 * 60, 110.0) for minute in range(MINUTES)
    ]
    drift, level = 0.0, []
    for value in shape:
        drift = 0.97 * drift + 0.05 * normal(chance)
        level.append(value * exp(drift))
    scale = 0.93 * sessions / sum(level)
    arrivals = [poisson(value * scale, chance) for value in level]
    for _ in range(2):
        arrivals[int(MINUTES * chance.random())] += round(0.012 * sessions * (0.5 + chance.random()))
    for _ in range(3):
        begins, size = int((MINUTES - 30) * chance.random()), 0.015 * sessions * (0.5 + chance.random())
        for later in range(30):
            arrivals[begins + later] += poisson(size * exp(-later / 5.0) * (1.0 - exp(-0.2)), chance)
    return arrivals


def write_days() -> None:
    """Write the arrivals of every workload anew; the same seeds give the same files."""
    for crowd in workloads().values():
        with (FOLDER / crowd.arrivals).open("w", newline="") as lines:
            lines.write(format_arrivals(draw_day(crowd.seed, crowd.sessions)))


def format_arrivals(arrivals: Iterable[int]) -> str:
    rows = [f"{minute},{count}" for minute, count in enumerate(arrivals) if count]
    return "\n".join(["minute,arrivals", *rows, ""])


# --- distributions


def bump(value: float, centre: float, width: float) -> float:
    """A bell of height 1."""
    return exp(-0.5 * ((value - centre) / width) ** 2)


def normal(chance: Random) -> float:
    """Standard normal (Box and Muller)."""
    return sqrt(-2.0 * log(1.0 - chance.random())) * cos(2.0 * pi * chance.random())


def poisson(mean: float, chance: Random) -> int:
    """Counts exponential gaps within `mean`."""
    count, sum_of_gaps = -1, 0.0
    while sum_of_gaps <= mean:
        sum_of_gaps -= log(1.0 - chance.random())
        count += 1
    return count


def choice(chance: Random, options: Sequence[T]) -> T:
    """One of them."""
    return options[int(len(options) * chance.random())]


if __name__ == "__main__":
    write_days()

"""Which policies are tried on which traffic, and the tables that say how they did against the oracle. Decides nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil

import attrs

from benchmarks.scaling import oracle
from benchmarks.scaling.simulator import Outcome, Simulation
from benchmarks.scaling.traces import Traffic
from sticky.core.values import Placement, Policy

HOURS_GOAL = 1.3  #: container-hours against the oracle's
QUEUE_GOAL = 1.5  #: 99th percentile of the queue time, in container start times

#: Containers live long and limits are wide, so that what is seen is scaling alone.
WIDE = Policy(max_containers=200, max_queue=10_000, startup_timeout=300.0, container_max_age=7 * 86_400.0)


@attrs.frozen
class Setting:
    """A policy by its name. `share`: target_concurrency as a share of max_concurrency; `cap`: max_containers of the peak."""

    label: str
    share: float = 1.0
    placement: Placement = Placement.SPREAD
    buffer: int = 0
    scaleup_window: float = 0.0
    scaledown_window: float = 60.0
    cap: float | None = None

    def target(self, traffic: Traffic) -> int:
        return max(1, round(self.share * traffic.max_concurrency))

    def policy(self, traffic: Traffic) -> Policy:
        """What an operator would write for this Server."""
        most = WIDE.max_containers
        if self.cap is not None:
            most = max(1, ceil(self.cap * oracle.crowd(holds_of(traffic)) / traffic.max_concurrency))
        return attrs.evolve(
            WIDE,
            max_concurrency=traffic.max_concurrency,
            target_concurrency=self.target(traffic),
            placement=self.placement,
            buffer_containers=self.buffer,
            scaleup_window=self.scaleup_window,
            scaledown_window=self.scaledown_window,
            max_containers=most,
        )


PACK = Placement.PACK
SETTINGS: Sequence[Setting] = (
    Setting("default (spread)"),
    Setting("pack", placement=PACK),
    Setting("pack, buffer 1", placement=PACK, buffer=1),
    Setting("pack, buffer 2", placement=PACK, buffer=2),
    Setting("target 0.7 (spread)", 0.7),
    Setting("target 0.7, buffer 1", 0.7, buffer=1),
    Setting("target 0.7, pack", 0.7, PACK),
    Setting("target 0.7, pack, buffer 1", 0.7, PACK, 1),
    Setting("target 0.7, pack, buffer 2", 0.7, PACK, 2),
    Setting("target 0.7, pack, scaleup_window 10", 0.7, PACK, scaleup_window=10.0),
    Setting("target 0.7, pack, scaleup_window 60", 0.7, PACK, scaleup_window=60.0),
    Setting("target 0.7, pack, scaledown_window 300", 0.7, PACK, scaledown_window=300.0),
    Setting("target 0.85, pack", 0.85, PACK),
    Setting("pack, containers for 80 % of the peak", placement=PACK, cap=0.8),
)


@attrs.frozen
class Bounds:
    """The oracle's container-seconds: none needs less than `floor`, and `plan` is enough."""

    floor: float
    plan: float


@attrs.frozen
class Row:
    """One policy on one trace."""

    setting: Setting
    traffic: Traffic
    outcome: Outcome
    at_max: Bounds  #: an oracle that may fill containers to max_concurrency
    at_target: Bounds  #: one that must keep to the target as well, and thus has the same head-room

    @property
    def hours_ratio(self) -> float:
        return self.outcome.container_time / self.at_max.floor

    @property
    def hours_ratio_at_target(self) -> float:
        return self.outcome.container_time / self.at_target.floor

    @property
    def queue_ratio(self) -> float:
        """99th percentile of the queue time in start times."""
        return self.outcome.wait(0.99) / self.traffic.start_time

    @property
    def fill(self) -> float:
        """Share of the places that sessions took, on average."""
        until = self.traffic.window
        used = sum(
            max(0.0, min(self.traffic.hold(visit), until - visit.arrives - wait))
            for number, wait in zip(self.outcome.served, self.outcome.waits, strict=True)
            for visit in [self.traffic.visits[number]]
        )
        return used / self.traffic.max_concurrency / self.outcome.container_time


def holds_of(traffic: Traffic) -> list[oracle.Hold]:
    """What the oracle has to find places for: every visit, with the time that its session would hold a place."""
    return [oracle.Hold(visit.arrives, traffic.hold(visit)) for visit in traffic.visits]


def bounds(traffic: Traffic, limit: int) -> Bounds:
    """The oracle's cost of all visits with `limit` sessions on a container, each at most a start time late."""
    holds = holds_of(traffic)
    return Bounds(
        oracle.floor(holds, limit, traffic.shortest_start, traffic.longest_start, traffic.window),
        oracle.plan(holds, limit, traffic.start_time, traffic.window).cost,
    )


def judge(setting: Setting, traffic: Traffic) -> Row:
    """Run one simulation and compare it."""
    outcome = Simulation(traffic, setting.policy(traffic)).run()
    at_max = bounds(traffic, traffic.max_concurrency)
    target = setting.target(traffic)
    at_target = at_max if target == traffic.max_concurrency else bounds(traffic, target)
    return Row(setting, traffic, outcome, at_max, at_target)


# --- tables

COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "policy": lambda row: row.setting.label,
    "hours": lambda row: f"{row.outcome.container_time / 3600:.1f}",
    "/ oracle": lambda row: f"{row.hours_ratio:.2f}",
    "/ oracle at target": lambda row: f"{row.hours_ratio_at_target:.2f}",
    "fill": lambda row: f"{row.fill:.2f}",
    "empty h": lambda row: f"{row.outcome.empty_time / 3600:.1f}",
    "queued": lambda row: f"{row.outcome.queued}",
    "p50 s": lambda row: f"{row.outcome.wait(0.5):.1f}",
    "p99 s": lambda row: f"{row.outcome.wait(0.99):.1f}",
    "max s": lambda row: f"{row.outcome.wait(1.0):.1f}",
    "p99 / start": lambda row: f"{row.queue_ratio:.2f}",
    "refused": lambda row: f"{sum(row.outcome.refusals.values())}",
    "starts": lambda row: f"{row.outcome.starts}",
    "peak": lambda row: f"{row.outcome.peak}",
}


def table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table, the first column to the left."""
    yield "| " + " | ".join(titles) + " |"
    yield "| --- |" + " ---: |" * (len(titles) - 1)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def describe(rows: Sequence[Row]) -> Iterator[str]:
    """The section of one trace."""
    traffic, first = rows[0].traffic, rows[0]
    yield (
        f"### {traffic.name}: {len(traffic.visits)} sessions, max_concurrency {traffic.max_concurrency}, "
        f"start time {traffic.start_time:g} s, idle timeout {traffic.idle_timeout:g} s, "
        f"{oracle.crowd(holds_of(traffic))} sessions at the peak"
    )
    yield ""
    yield (
        f"Oracle: at least {first.at_max.floor / 3600:.1f} container-hours, a plan with {first.at_max.plan / 3600:.1f} exists "
        f"({first.at_max.plan / first.at_max.floor:.2f} times as many)."
    )
    keepers = {row.setting.share: row.at_target for row in rows if row.setting.share != 1.0}
    for share, kept in sorted(keepers.items()):
        yield (
            f"One that keeps to target {share:g}: at least {kept.floor / 3600:.1f} "
            f"({kept.floor / first.at_max.floor:.2f} times), a plan with {kept.plan / 3600:.1f} exists."
        )
    yield ""
    yield from table(list(COLUMNS), ([column(row) for column in COLUMNS.values()] for row in rows))
    yield ""


def summarize(rows: Sequence[Row]) -> Iterator[str]:
    """Random traffic: one line a policy over all its traces, weighted as they are and the worst one."""
    traces = {row.traffic.name for row in rows}
    sessions = sum(len(traffic.visits) for traffic in {row.traffic.name: row.traffic for row in rows}.values())
    yield f"### Random traffic: {len(traces)} seeds, {sessions} sessions"
    yield ""
    titles = [
        "policy",
        "/ oracle",
        "worst",
        "/ oracle at target",
        "worst",
        "p99 / start, worst",
        "max / start",
        "refused",
    ]
    lines = []
    for label in dict.fromkeys(row.setting.label for row in rows):
        mine = [row for row in rows if row.setting.label == label]
        used = sum(row.outcome.container_time for row in mine)
        lines.append(
            [
                label,
                f"{used / sum(row.at_max.floor for row in mine):.2f}",
                f"{max(row.hours_ratio for row in mine):.2f}",
                f"{used / sum(row.at_target.floor for row in mine):.2f}",
                f"{max(row.hours_ratio_at_target for row in mine):.2f}",
                f"{max(row.queue_ratio for row in mine):.2f}",
                f"{max(row.outcome.wait(1.0) / row.traffic.start_time for row in mine):.2f}",
                f"{sum(sum(row.outcome.refusals.values()) for row in mine)}",
            ]
        )
    yield from table(titles, lines)
    yield ""


def verdict(rows: Iterable[Row]) -> Iterator[str]:
    """Which goals the settings with target 0.7 meet, trace by trace."""
    yield (
        f"### Goals at target 0.7: container-hours at most {HOURS_GOAL:g} times the oracle's, p99 of the queue time at most "
        f"{QUEUE_GOAL:g} start times"
    )
    yield ""
    words = {True: "met", False: "missed"}
    lines = [
        [
            f"{row.traffic.name}, {row.setting.placement.value}",
            f"{words[row.hours_ratio <= HOURS_GOAL]} ({row.hours_ratio:.2f})",
            f"{row.at_target.floor / row.at_max.floor:.2f}",
            f"{words[row.hours_ratio_at_target <= HOURS_GOAL]} ({row.hours_ratio_at_target:.2f})",
            f"{words[row.queue_ratio <= QUEUE_GOAL]} ({row.queue_ratio:.2f})",
        ]
        for row in rows
        if attrs.evolve(row.setting, label="", placement=PACK) == Setting("", 0.7, PACK)
    ]
    titles = [
        "trace, placement",
        "hours / oracle",
        "least possible at this target",
        "hours / oracle at target",
        "queue",
    ]
    yield from table(titles, lines)
    yield ""

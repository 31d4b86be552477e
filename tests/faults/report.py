"""What a run is to do and what came of it: values alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter

import attrs

from tests.faults.model import Model

LIMIT = 60  #: sessions that a container may hold

AT_LEAST = 50  #: starts a second under which kills are to fall

#: How often each, in a deck that all are dealt from.
KINDS = {
    "daemon": 6,
    "worker": 2,
    "container": 1,
    "restart": 1,
    "cut": 2,
    "disk": 1,
    "clock": 1,
    "descriptors": 1,
}


@attrs.frozen
class Plan:
    """What a run does."""

    seed: int
    daemon_kills: int
    rate: float = 50.0  #: starts a second
    workers: int = 1
    counters: int = 20
    between: tuple[float, float] = (0.3, 2.5)  #: seconds between two faults
    hold: tuple[float, float] = (0.5, 2.0)  #: seconds that a disk stays full and descriptors stay out
    kinds: tuple[str, ...] = tuple(KINDS)
    seconds: float = math.inf  #: after which no further fault is begun
    preloaded: bool = False  #: daemons are forked, and need not import what they run


@attrs.define(eq=False)
class Report:
    """What came of it."""

    plan: Plan
    faults: Counter[str] = attrs.field(factory=Counter)
    left_out: dict[str, str] = attrs.field(factory=dict)  #: kinds of faults that this machine cannot do, and why
    down: list[float] = attrs.field(factory=list)  #: seconds from a daemon's kill to a request that is served again
    at_kills: list[float] = attrs.field(
        factory=list
    )  #: starts a second that were answered just before each kill of a daemon
    seconds: float = 0.0
    strays: list[str] = attrs.field(factory=list)  #: containers that ran and that the last daemon did not know
    orphans: int = 0  #: processes of containers after its tidy stop
    model: Model = attrs.field(factory=lambda: Model(LIMIT))
    retries: int = 0
    held_back: int = 0  #: visits that did not take place, because the machine was too slow for the rate

    def lines(self) -> list[str]:
        """For people."""
        model, down = self.model, sorted(self.down)
        how = ", preloaded" if self.plan.preloaded else ""
        found = [
            f"seed {self.plan.seed}, workers {self.plan.workers}{how}, {self.seconds:.0f} s, faults {dict(self.faults)}",
            f"starts wanted {self.plan.rate:g} a second, answered {model.starts} ({model.starts / max(1.0, self.seconds):.1f} a"
            f" second; {model.found_again} found by their key), answers {model.answers}, ends {model.ends}",
            f"tries again {self.retries}, after {dict(model.setbacks.most_common())}; visits held back {self.held_back}",
            f"promises broken {len(model.broken)}, clients that gave up {dict(model.gave_up)}, containers that no daemon"
            f" knew {self.strays}, processes left over {self.orphans}",
        ]
        if self.at_kills:
            found.append(
                f"starts a second that were answered just before a daemon's kill: median {statistics.median(self.at_kills):.0f},"
                f" {sum(rate >= AT_LEAST for rate in self.at_kills)} of {len(self.at_kills)} kills at {AT_LEAST} or more"
            )
        found += [f"not done: {kind}, because {reason}" for kind, reason in self.left_out.items()]
        if len(down) > 1:
            cuts = statistics.quantiles(down, n=100, method="inclusive")
            found.append(
                f"from a daemon's kill to served again ({len(down)} kills): p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s,"
                f" max {down[-1]:.2f} s"
            )
        return [*found, *model.broken[:20]]

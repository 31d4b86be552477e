"""What somebody who knows the future would need: bounds on the fewest container-seconds. Knows no fleet and no policy.

Serving n stays of which none may move, at most g at once on a container, with the least time of containers is "busy time
scheduling" (interval scheduling with bounded parallelism), NP-hard for g >= 2 (Winkler and Zhang, SODA 2003; Mertzios et
al., IPDPS 2012). So the oracle is given from both sides:

`floor`: nobody can do with less, not even one that may move sessions between containers and may let each wait for a start
time. With N(t) the sessions that are there at t whoever waits, containers(t) >= ceil(N(t) / g). The least cost of a number
of containers above that curve, each start paid with its start time, is exact and simple: each level k is a container of
its own that is kept through a gap in the k-th level if the gap is shorter than a start, and else stopped.

`plan`: a way that really works: nobody moves, nobody waits, every container is started in time. Longest first, with known ends.

The true oracle lies between; the figures say how far apart the two are. `exact` tries everything, for a handful of stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil

import attrs

from sticky.core.values import UNBOUNDED

SLOT = 0.5  #: seconds; plans are made in slots, holds rounded up to whole ones, and paid by the exact times
PLUS_ONE = bytes(min(count + 1, 255) for count in range(256))


@attrs.frozen
class Hold:
    """A place on a container that is taken from `begins` for `lasts` seconds."""

    begins: float
    lasts: float

    @property
    def ends(self) -> float:
        return self.begins + self.lasts


@attrs.frozen
class Plan:
    """Container-seconds, and by number the container of each hold that begins in the window, in the order given."""

    cost: float
    containers: tuple[int, ...]


def floor(holds: Sequence[Hold], limit: int, start: float, patience: float = 0.0, until: float = UNBOUNDED) -> float:
    """Container-seconds before `until` that are needed at least, where a hold may come up to `patience` late, ending as late.

    `limit`: sessions that a container takes, `start`: the shortest start time. O(n log n).
    """
    work = sum(max(0.0, min(hold.lasts, until - hold.begins - patience)) for hold in holds)
    # Whenever it begins, a hold is there from its latest beginning to its earliest end.
    certain = [(hold.begins + patience, min(hold.ends, until)) for hold in holds]
    changes = [(begins, 1) for begins, ends in certain if begins < ends]
    changes += [(ends, -1) for begins, ends in certain if begins < ends]
    changes.sort()  # ends before beginnings: a place that becomes free is taken in the same moment
    cost, present = 0.0, 0
    up_since: list[float] = []  # of level 1, 2, ... as far as they are up
    down_since: dict[int, float] = {}
    for moment, change in changes:
        present += change
        while len(up_since) * limit < present:
            level = len(up_since)
            cost += min(start, moment - down_since[level]) if level in down_since else start
            up_since.append(moment)
        while up_since and (len(up_since) - 1) * limit >= present:
            cost += moment - up_since.pop()
            down_since[len(up_since)] = moment
    return max(cost, work / limit + start if work else 0.0)


def plan(holds: Sequence[Hold], limit: int, start: float, until: float = UNBOUNDED) -> Plan:
    """A plan without waiting: the cheaper one of longest hold first and latest end first.

    Each hold goes to the container that it prolongs least, the first such. `limit` at most 250, `start`: the start time,
    paid for each container; what lies after `until` does not count. O(n * containers).
    """
    known = [Hold(hold.begins, min(hold.lasts, until - hold.begins)) for hold in holds if hold.begins < until]
    orders: list[Callable[[int], float]] = [lambda index: -known[index].lasts, lambda index: -known[index].ends]
    plans = [_plan(known, limit, start, sorted(range(len(known)), key=order)) for order in orders]
    return min(plans, key=lambda plan: plan.cost)


def _plan(holds: Sequence[Hold], limit: int, start: float, order: Sequence[int]) -> Plan:
    if limit > 250:
        raise ValueError("a byte counts the sessions of a container")
    first = min((hold.begins for hold in holds), default=0.0)
    slots = int((max((hold.ends for hold in holds), default=0.0) - first) / SLOT) + 2
    profiles: list[bytearray] = []  # of each machine, its holds in each slot
    members: list[list[int]] = []
    for index in order:
        begin, end = int((holds[index].begins - first) / SLOT), ceil((holds[index].ends - first) / SLOT)
        best, least = len(profiles), end - begin + start / SLOT
        for machine, profile in enumerate(profiles):
            if profile.find(limit, begin, end) < 0 and (price := profile.count(0, begin, end)) < least:
                best, least = machine, price
                if not price:
                    break
        if best == len(profiles):
            profiles.append(bytearray(slots))
            members.append([])
        profiles[best][begin:end] = profiles[best][begin:end].translate(PLUS_ONE)
        members[best].append(index)
    return _cost(holds, start, members)


def _cost(holds: Sequence[Hold], start: float, members: Sequence[Sequence[int]]) -> Plan:
    """A machine without holds for longer than a start is a container that stops and another one that starts."""
    cost, number = 0.0, -1
    chosen = [0] * len(holds)
    for member in members:
        closes = -UNBOUNDED
        for index in sorted(member, key=lambda index: holds[index].begins):
            if holds[index].begins - closes > start:
                cost += start
                number += 1
                closes = holds[index].begins
            cost += max(0.0, holds[index].ends - closes)
            closes = max(closes, holds[index].ends)
            chosen[index] = number
    return Plan(cost, tuple(chosen))


def exact(holds: Sequence[Hold], limit: int, start: float) -> float:
    """The least container-seconds without waiting, by trying every way to share the holds among containers. For up to 8."""
    return min(
        (
            sum(start + max(hold.ends for hold in group) - min(hold.begins for hold in group) for group in groups)
            for groups in _partitions(list(holds))
            if all(crowd(group) <= limit for group in groups)
        ),
        default=0.0,
    )


def crowd(holds: Sequence[Hold]) -> int:
    """Most holds at once."""
    changes = sorted([(hold.begins, 1) for hold in holds] + [(hold.ends, -1) for hold in holds])
    most = present = 0
    for _, change in changes:
        present += change
        most = max(most, present)
    return most


def _partitions(holds: list[Hold]) -> Iterator[list[list[Hold]]]:
    if not holds:
        yield []
        return
    first, rest = holds[0], holds[1:]
    for groups in _partitions(rest):
        yield [[first], *groups]
        for position, group in enumerate(groups):
            yield [*groups[:position], [first, *group], *groups[position + 1 :]]

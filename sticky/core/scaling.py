"""How many containers there should be. A function of counts; starts and stops nothing."""

from __future__ import annotations

from math import ceil

from sticky.core.values import Policy


def wanted_open(policy: Policy, sessions: int, queued: int) -> int:
    """Open containers that the demand asks for, at most `max_containers` (semantics.md, Scaling).

    `sessions`: on open containers, grants under way included. `queued`: starts that wait, refused ones as 1.
    """
    demand = sessions + queued
    needed = ceil(demand / policy.target)
    if demand:
        needed += policy.buffer_containers
    return min(max(policy.min_containers, needed), policy.max_containers)

"""How many containers there should be. Functions of counts; start and stop nothing."""

from __future__ import annotations

from math import ceil

from sticky.core.values import Policy


def needed(policy: Policy, sessions: int, queued: int) -> int:
    """Containers that hold so many sessions and starts at their target, or are there in any case. No buffer, no maximum."""
    return max(policy.min_containers, ceil((sessions + queued) / policy.target))


def wanted_open(policy: Policy, sessions: int, queued: int) -> int:
    """Open containers that the demand asks for, at most `max_containers` (semantics.md, Scaling).

    `sessions`: on open containers, grants under way included. `queued`: starts that wait, refused ones as 1.
    """
    demand = sessions + queued
    wanted = ceil(demand / policy.target)
    if demand:
        wanted += policy.buffer_containers
    return min(max(policy.min_containers, wanted), policy.max_containers)

"""Placement: which container a start should go to. Functions over snapshots; reads no ledger, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from sticky.core.container import Container
from sticky.core.values import Placement, Policy


def choose(now: float, idle_timeout: float, containers: Iterable[Container], policy: Policy) -> Container | None:
    """The container for a start of this idle timeout, or None when none can take it now. O(containers)."""
    able = [container for container in containers if container.takes(now, idle_timeout)]
    if not able:
        return None
    if policy.placement is Placement.PACK:
        below = [container for container in able if container.load < policy.target]
        if below:
            return max(below, key=lambda container: (container.load, -container.order))
    # Below target first is implied: fewest sessions are below target if any container is.
    return min(able, key=lambda container: (container.load, container.order))

"""Placement: which container a start should go to. Functions over snapshots; reads no ledger, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from sticky.core.container import Container
from sticky.core.scaling import needed
from sticky.core.values import Placement, Policy


def choose(
    now: float, idle_timeout: float, containers: Iterable[Container], policy: Policy, queued: int
) -> Container | None:
    """The container for a start of this idle timeout, or None when none can take it now. O(n log n) in containers.

    `queued`: starts that wait, this one included.
    """
    peers = [container for container in containers if container.serves(now, idle_timeout)]
    if policy.placement is Placement.PACK:
        below = [container for container in peers if container.load < policy.target and container.has_place]
        if below:
            return max(below, key=lambda container: (container.load, -container.order))
    else:
        peers = _kept(peers, policy, queued)
    able = [container for container in peers if container.has_place]
    # Below target first is implied: fewest sessions are below target if any container is.
    return min(able, key=lambda container: (container.load, container.order), default=None)


def _kept(peers: list[Container], policy: Policy, queued: int) -> list[Container]:
    """The fullest ones, as many as the demand asks for: whoever is beyond them runs empty and can be stopped.

    One of them is below target if there are more: together they have room at their targets for all sessions and starts.
    """
    count = needed(policy, sum(container.load for container in peers), queued)
    if count >= len(peers):
        return peers
    return sorted(peers, key=lambda container: (-container.load, container.order))[:count]

"""Requests of a plain Server (no sessions): which container each goes to, and how many are in flight where.

A base of `core.fleet.Fleet`. There are tens of thousands of them a second, so they are plain calls, and the fleet settles
only when one of them can change how many containers there should be. Must not know ledgers or starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from sticky import errors
from sticky.core.backoff import Backoff
from sticky.core.capacity import Capacity, Survey
from sticky.core.container import Container, ContainerState
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, EndReason


def choose_for_request(now: float, containers: Iterable[Container], newest: DeploymentId, key: bytes) -> Container:
    """Where a request goes: by rendezvous hashing where it has an affinity key, else to the fewest in flight, oldest on ties.

    Containers of the newest deployment come first; older ones serve as long as those are not ready, or full. Raises
    `NoContainerReady`, and `ServerBusy` where all that are ready are full.
    """
    ready = [
        container
        for container in containers
        if container.state is ContainerState.READY and not container.close_asked and now < container.dies_at
    ]
    if not ready:
        raise errors.NoContainerReady(retry_after=1.0)
    able = [container for container in ready if container.has_place]
    if not able:
        raise errors.ServerBusy(retry_after=1.0)
    able = [container for container in able if container.deployment == newest] or able
    if key:
        return max(able, key=lambda container: affinity(key, container.id))
    return min(able, key=lambda container: (container.load, container.order))


def affinity(key: bytes, container: ContainerId) -> bytes:
    """How well a key and a container go together: the same in every daemon, and even over containers (rendezvous hashing)."""
    return blake2b(container.encode(), digest_size=8, key=blake2b(key, digest_size=32).digest()).digest()


class PlainCalls:
    """The calls about one request."""

    backoff: Backoff
    capacity: Capacity
    stopping: EndReason | None
    wake_at: float
    _refused: bool
    _requests = 0  # in flight, on all containers
    _besides = 0  # demand at the last settling that is not theirs
    _room = 0.0  # demand up to which there are containers enough, as of then

    def _catch_up(self, now: float) -> None:
        raise AssertionError("the fleet's own")

    def settle(self, now: float) -> None:
        """Apply what is due and do what has become possible, until nothing more is."""
        raise AssertionError("the fleet's own")

    def _hopeless(self) -> bool:
        raise AssertionError("the fleet's own")

    def enter(self, now: float, key: bytes) -> ContainerId:
        """One more request in flight, on the container that is returned. `key`: of its affinity, empty for none.

        Raises `NoContainerReady`, `ContainersFailing` or `ServerBusy`, all of which ask for a container, and `ShuttingDown`.
        """
        if now >= self.wake_at:
            self._catch_up(now)
        if self.stopping is not None:
            raise errors.ShuttingDown(retry_after=5.0)
        capacity = self.capacity
        try:
            container = choose_for_request(now, capacity.containers.values(), capacity.deployment, key)
        except errors.Refusal as refusal:
            self._refused = True
            self.settle(now)
            raise (self.backoff.failing(now) if self._hopeless() else refusal) from None
        self._count(now, container)
        return container.id

    def enter_again(self, now: float, identity: ContainerId) -> None:
        """A request counts again that had ceased to, though it went on. A no-op where its container is gone."""
        if now >= self.wake_at:
            self._catch_up(now)
        container = self.capacity.containers.get(identity)
        if container is not None:
            self._count(now, container)

    def leave(self, now: float, identity: ContainerId) -> None:
        """A request is over. A no-op where it was cut, or its container is gone."""
        if now >= self.wake_at:
            self._catch_up(now)
        container = self.capacity.containers.get(identity)
        if container is None or not container.requests:
            return
        container.requests -= 1
        self._requests -= 1
        empty, failures = not container.load, self.backoff.failures
        self.capacity.prove(container)  # it has served: its start has succeeded
        if empty:
            container.note_empty(now)
        demand = self._besides + self._requests
        ordinary = container.state is ContainerState.READY and container.deployment == self.capacity.deployment
        if not ordinary or (empty and self._refused) or failures != self.backoff.failures:
            self._refused = self._refused and not empty  # whoever was refused could come now
            self.settle(now)
        elif demand % self.capacity.policy.target == 0 and (demand or len(self.capacity.containers) > 1):
            self.settle(now)  # fewer containers may be wanted
        elif empty:
            self.wake_at = min(self.wake_at, now + self.capacity.policy.scaledown_window)

    def _count(self, now: float, container: Container) -> None:
        container.requests += 1
        self._requests += 1
        container.empty_since = UNBOUNDED
        if self._besides + self._requests > self._room:
            self.settle(now)

    def _uncount(self, container: Container) -> bool:
        """Its requests are cut. Whether there were any, or might be such as did not count just now."""
        requests, container.requests = container.requests, 0
        self._requests -= requests
        return bool(requests) or not self.capacity.policy.sessioned

    def _note_room(self, seen: Survey) -> None:
        """What was settled, for the requests that come until there is more to settle."""
        policy = self.capacity.policy
        self._besides = seen.demand - self._requests
        full = seen.open + seen.closing >= policy.max_containers
        self._room = UNBOUNDED if full else (seen.open - policy.buffer_containers) * policy.target

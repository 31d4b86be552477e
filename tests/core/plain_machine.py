"""The Hypothesis machine of a plain Server: random requests, containers, deployments and clocks against the same books.

What a request is answered is computed here, from the books; what must be true after every step is in `tests.core.audit`.
"""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    ContainerStopRequested,
    ContainerUnhealthy,
    Deployed,
    PolicyChanged,
    StopRequested,
    TimePassed,
)
from sticky.core.plain_calls import affinity
from sticky.core.recall import memory_of, recall
from sticky.core.values import ContainerId, DeploymentId, Policy
from tests.core.audit import audit, lasting_memory, residue
from tests.core.driver import FleetDriver
from tests.core.entries import FOREVER
from tests.core.worlds import policies

plain_policies = policies.map(lambda policy: attrs.evolve(policy, sessioned=False))


class PlainMachine(FleetDriver):
    """See the module."""

    @initialize(policy=plain_policies, jitter=st.sampled_from([0.0, 0.25, 0.99]), deploys=st.booleans())
    def begin_world(self, policy: Policy, jitter: float, deploys: bool) -> None:
        self.deploys = deploys
        self.deployments = 1
        self.open_books(policy, jitter)

    # --- requests

    @rule(key=st.sampled_from([b"", b"", b"one", b"two"]))
    def request(self, key: bytes) -> None:
        books = self.books
        ready = [
            box
            for box in books.boxes.values()
            if box.state is ContainerState.READY and books.now < box.born + box.max_age
        ]
        able = [box for box in ready if books.load(box) < box.limit]
        able = [box for box in able if box.deployment == books.newest] or able
        self.seen["an old one served"] += bool(able) and able[0].deployment != books.newest
        hopeless = books.hopeless()
        right = min(able, key=lambda box: (books.load(box), box.order), default=None)
        if key:
            right = max(able, key=lambda box: affinity(key, box.id), default=None)
        if not able:
            books.refused = books.refused or not books.stopping
        answer: ContainerId | type[errors.Refusal]
        try:
            answer = self.fleet.enter(books.now, key)
        except errors.Refusal as refusal:
            answer = type(refusal)
        else:
            books.boxes[answer].requests += 1
        self._do(self.fleet.take)
        if books.stopping:
            assert answer is errors.ShuttingDown
        elif not able:
            expected = errors.ServerBusy if ready else errors.NoContainerReady
            assert answer is (errors.ContainersFailing if hopeless else expected)
            self.seen[expected.__name__] += 1
        else:
            assert right is not None and answer == right.id

    @precondition(lambda self: any(box.requests for box in self.books.boxes.values()))
    @rule(data=st.data(), all_of_them=st.booleans())
    def request_ends(self, data: st.DataObject, all_of_them: bool) -> None:
        box = data.draw(st.sampled_from([box for box in self.books.boxes.values() if box.requests]))
        for _ in range(box.requests if all_of_them else 1):
            box.requests -= 1
            self.books.prove(box)
            if not self.books.load(box):
                self.books.refused = False
            self.fleet.leave(self.books.now, box.id)
            self._do(self.fleet.take)

    @rule()
    def a_request_that_was_cut_ends(self) -> None:
        """Late: a no-op."""
        idle = [box.id for box in self.books.boxes.values() if not box.requests]
        for container in [*idle, ContainerId("ct-nobody")]:
            self.fleet.leave(self.books.now, container)
            self._do(self.fleet.take)

    @precondition(lambda self: any(box.requests for box in self.books.boxes.values()))
    @rule(data=st.data())
    def one_counts_again(self, data: st.DataObject) -> None:
        """A WebSocket that was silent speaks: it is on its container, whatever the limit."""
        box = data.draw(st.sampled_from([box for box in self.books.boxes.values() if box.requests]))
        self.fleet.enter_again(self.books.now, box.id)
        box.requests += 1
        self._do(self.fleet.take)

    # --- containers

    @rule()
    def all_become_ready(self) -> None:
        for container in self._in(ContainerState.STARTING):
            if container in self._in(ContainerState.STARTING):
                self._step(ContainerReady(container))

    @precondition(lambda self: self.books.boxes)
    @rule(data=st.data(), which=st.sampled_from(list(ContainerState)))
    def container_exits(self, data: st.DataObject, which: ContainerState) -> None:
        some = self._in(which) or sorted(self.books.boxes)
        self._step(ContainerExited(data.draw(st.sampled_from(some)), "exited"))

    @precondition(lambda self: self._in(ContainerState.READY))
    @rule(data=st.data(), unhealthy=st.booleans())
    def operator_or_health_stops_one(self, data: st.DataObject, unhealthy: bool) -> None:
        which = data.draw(st.sampled_from(self._in(ContainerState.READY)))
        self._step(ContainerUnhealthy(which) if unhealthy else ContainerStopRequested(which))

    @precondition(lambda self: self.deploys)
    @rule(policy=plain_policies, recreate=st.booleans())
    def deploy(self, policy: Policy, recreate: bool) -> None:
        self.deployments += 1
        self._step(Deployed(DeploymentId(f"d{self.deployments}"), policy, recreate))

    @precondition(lambda self: self.deploys and self._in(ContainerState.READY))
    @rule(policy=plain_policies, count=st.integers(1, 4))
    def deploy_under_way(self, policy: Policy, count: int) -> None:
        """Requests come before a container of the new deployment is ready."""
        self.deploy(policy, False)
        for _ in range(count):
            self.request(b"")
        self.all_become_ready()
        self.request(b"")

    @precondition(lambda self: self.deploys)
    @rule(policy=plain_policies)
    def change_limits(self, policy: Policy) -> None:
        self._step(PolicyChanged(policy))

    @precondition(lambda self: self.deploys and not self.books.stopping)
    @rule()
    def stop(self) -> None:
        self._step(StopRequested())
        self.restart()

    # --- time

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self._pass_until(self.books.now + seconds)

    @precondition(lambda self: self.fleet.next_deadline(self.books.now) is not None)
    @rule()
    def wait_for_the_next_deadline(self) -> None:
        deadline = self.fleet.next_deadline(self.books.now)
        assert deadline is not None
        self._pass_until(deadline - (deadline - self.books.now) / 2)
        self._pass_until(deadline)

    @rule()
    def restart(self) -> None:
        """Containers are found again, with nothing in flight."""
        books = self.books
        remembered = lasting_memory(books, books.memory)
        for box in books.boxes.values():
            box.since = books.now
            box.killed = False
            box.proven = box.state not in (
                ContainerState.STARTING,
                ContainerState.READY,
            )  # nobody waits for it any more
            box.requests = 0
            box.limit = books.policy.max_concurrency
            box.startup_timeout = books.policy.startup_timeout
            box.drained_by = books.now + books.policy.exit_grace_period
            box.empty_since = FOREVER
        books.failures, books.next_attempt, books.refused, books.short_since = 0, 0.0, False, FOREVER
        books.stopping = False
        books.cause = TimePassed()
        self.fleet = self._new_fleet()
        self._do(lambda: recall(self.fleet, books.now, remembered))
        assert memory_of(self.fleet).containers.keys() == books.boxes.keys()

    def teardown(self) -> None:
        """Everything ends: nothing may stay behind."""
        if not getattr(self, "sound", False):
            return
        self._step(StopRequested())
        for container in sorted(self.books.boxes):
            self._step(ContainerExited(container, "exited"))
        audit(self.books, self.fleet)
        assert residue(self.fleet) == {} and self.fleet._requests == 0

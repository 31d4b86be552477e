"""Scenarios of a plain Server on a whole fleet: where requests go, when they are refused, what they make of scaling."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import PROVEN_AFTER, Container, ContainerState
from sticky.core.effects import CutRequests, TerminateContainer
from sticky.core.events import (
    ContainerStopRequested,
    ContainerUnhealthy,
    Deployed,
    PolicyChanged,
    StopRequested,
)
from sticky.core.plain_calls import affinity, choose_for_request
from sticky.core.values import ContainerId, DeploymentId, EndReason, Policy
from tests.core.stage import Stage

STARTING, READY = ContainerState.STARTING, ContainerState.READY
DRAINING, STOPPING = ContainerState.DRAINING, ContainerState.STOPPING


class PlainStage(Stage):
    """Requests instead of sessions."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(sessioned=False, **limits)

    def enter(self, key: bytes = b"") -> ContainerId:
        try:
            return self.fleet.enter(self.now, key)
        finally:
            self.told += self.fleet.take()

    def over(self, *containers: str) -> None:
        for container in containers:
            self.fleet.leave(self.now, ContainerId(container))
            self.told += self.fleet.take()

    def in_flight(self) -> dict[str, int]:
        return {container.id: container.requests for container in self.containers()}

    def refused(self, key: bytes = b"") -> errors.Refusal:
        try:
            self.enter(key)
        except errors.Refusal as refusal:
            return refusal
        raise AssertionError("it was let in")


class EnterTests(TestCase):
    def test_where_none_is_ready_it_is_refused_at_once_and_a_start_is_triggered(self) -> None:
        stage = PlainStage()
        refusal = stage.refused()
        self.assertEqual((refusal.status, refusal.code, refusal.retry_after), (503, "no_container", 1.0))
        self.assertEqual(stage.in_state(STARTING), ["ct-1"])
        for _ in range(5):
            stage.refused()
        self.assertEqual(stage.spawned(), 1, "a herd of requests starts one container")
        stage.ready()
        self.assertEqual(stage.enter(), "ct-1")

    def test_beyond_max_concurrency_it_is_429_and_another_container_starts(self) -> None:
        stage = PlainStage(max_concurrency=2)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.enter()
        self.assertEqual(stage.spawned(), 1)
        refusal = stage.refused()
        self.assertEqual((refusal.status, refusal.code, refusal.retry_after), (429, "server_busy", 1.0))
        self.assertEqual(stage.in_state(STARTING), ["ct-2"])
        stage.ready()
        self.assertEqual(stage.enter(), "ct-2")

    def test_without_a_key_the_fewest_in_flight_and_the_oldest_of_equals(self) -> None:
        stage = PlainStage(min_containers=3)
        stage.ready()
        self.assertEqual([stage.enter() for _ in range(4)], ["ct-1", "ct-2", "ct-3", "ct-1"])
        stage.over("ct-2")
        self.assertEqual(stage.enter(), "ct-2")

    def test_a_key_leads_to_the_same_container_as_long_as_that_has_a_place(self) -> None:
        stage = PlainStage(min_containers=3, max_concurrency=2)
        stage.ready()
        home = stage.enter(b"room-7")
        self.assertEqual(stage.enter(b"room-7"), home)
        other = stage.enter(b"room-7")
        self.assertNotEqual(other, home)
        stage.over(home)
        self.assertEqual(stage.enter(b"room-7"), home)

    def test_containers_that_fail_refuse_with_the_cause(self) -> None:
        stage = PlainStage()
        stage.refused()
        for delay in (1.0, 2.0, 0.0):
            stage.exit(stage.in_state(STARTING)[0])
            stage.wait(delay)
            stage.refused()
        refusal = stage.refused()
        self.assertEqual((refusal.code, refusal.retry_after), ("containers_failing", 4.0))
        self.assertIn("exited", refusal.message)
        stage.wait(4.0)
        self.assertEqual(len(stage.in_state(STARTING)), 1)

    def test_a_server_that_stops_takes_none_and_cuts_what_is_left_after_the_grace(self) -> None:
        stage = PlainStage(exit_grace_period=10.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.step(StopRequested())
        self.assertIsInstance(stage.refused(), errors.ShuttingDown)
        self.assertEqual((stage.in_state(DRAINING), stage.of(CutRequests)), (["ct-1"], []))
        stage.wait(10.0)
        self.assertEqual(stage.of(CutRequests), [CutRequests(ContainerId("ct-1"), EndReason.SERVER_STOPPED, None)])
        stage.over("ct-1")  # late: nothing
        self.assertEqual(stage.in_flight(), {"ct-1": 0})


class ScalingTests(TestCase):
    def test_requests_in_flight_are_the_demand(self) -> None:
        stage = PlainStage(max_concurrency=10, target_concurrency=2)
        stage.refused()
        stage.ready()
        spawned = []
        for _ in range(5):
            stage.enter()
            spawned.append(stage.spawned())
        self.assertEqual(spawned, [1, 1, 2, 2, 3])

    def test_the_buffer_is_there_while_there_are_requests(self) -> None:
        stage = PlainStage(buffer_containers=1, scaledown_window=10.0)
        stage.refused()
        stage.ready()
        self.assertEqual(len(stage.in_state(READY)), 2)
        stage.enter()
        stage.wait(100.0)
        self.assertEqual(len(stage.in_state(READY)), 2)
        stage.over("ct-1")
        stage.wait(10.0)
        self.assertEqual(stage.in_state(READY), [])

    def test_an_empty_one_is_stopped_after_the_window_and_a_request_starts_it_anew(self) -> None:
        stage = PlainStage(scaledown_window=60.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.wait(500.0)
        stage.over("ct-1")
        stage.wait(59.0)
        stage.enter()
        stage.over("ct-1")
        stage.wait(59.9)
        self.assertEqual(stage.of(TerminateContainer), [])
        stage.wait(0.1)
        self.assertEqual([effect.container for effect in stage.of(TerminateContainer)], ["ct-1"])

    def test_the_scaleup_window_counts_from_the_first_request_too_many(self) -> None:
        stage = PlainStage(max_concurrency=10, target_concurrency=1, scaleup_window=5.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.enter()
        stage.wait(3.0)
        stage.over("ct-1")
        stage.wait(1.0)
        stage.enter()
        stage.wait(4.9)
        self.assertEqual(stage.spawned(), 1)
        stage.wait(0.1)
        self.assertEqual(stage.spawned(), 2)

    def test_those_who_were_refused_and_did_not_come_back_keep_nothing_up(self) -> None:
        stage = PlainStage(max_concurrency=1, max_containers=1, scaledown_window=10.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.refused()
        stage.over("ct-1")
        stage.wait(10.0)
        self.assertEqual(stage.in_state(READY), [])

    def test_before_the_age_limit_a_successor_is_there(self) -> None:
        stage = PlainStage(container_max_age=1000.0, idle_timeout=100.0, exit_grace_period=20.0, startup_timeout=50.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.wait(900.0)
        self.assertEqual(stage.in_state(STARTING), ["ct-2"])
        stage.ready()
        self.assertEqual(stage.enter(), "ct-2")
        stage.wait(100.0)
        self.assertEqual((stage.in_state(DRAINING), stage.enter()), (["ct-1"], "ct-2"))
        stage.over("ct-1")
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])
        self.assertEqual([effect.container for effect in stage.of(CutRequests) if effect.detail], [])


class EndTests(TestCase):
    def test_an_end_cuts_its_requests_and_nobody_elses(self) -> None:
        stage = PlainStage(min_containers=2)
        stage.ready()
        stage.enter()
        stage.enter()
        stage.wait(PROVEN_AFTER)
        stage.exit("ct-1", "killed")
        self.assertEqual(stage.of(CutRequests), [CutRequests(ContainerId("ct-1"), EndReason.CONTAINER_LOST, "killed")])
        self.assertEqual((stage.in_flight()["ct-2"], stage.in_state(STARTING)), (1, ["ct-3"]))

    def test_one_that_is_unhealthy_is_cut(self) -> None:
        stage = PlainStage()
        stage.refused()
        stage.ready()
        stage.enter()
        stage.step(ContainerUnhealthy(ContainerId("ct-1")))
        self.assertEqual(stage.of(CutRequests)[0].detail, "unhealthy")
        self.assertIsInstance(stage.refused(), errors.NoContainerReady)

    def test_one_that_crashes_with_its_first_request_is_a_failed_start_and_one_that_answered_is_not(self) -> None:
        stage = PlainStage(min_containers=1)
        stage.ready()
        stage.enter()
        stage.exit("ct-1")
        self.assertEqual(stage.fleet.backoff.failures, 1)
        stage.wait(1.0)
        stage.ready()
        stage.enter()
        stage.enter()
        stage.over("ct-2")
        self.assertEqual(stage.fleet.backoff.failures, 0)
        stage.exit("ct-2")
        self.assertEqual(stage.in_state(STARTING), ["ct-3"])

    def test_an_operators_stop_lets_requests_complete(self) -> None:
        stage = PlainStage(exit_grace_period=30.0)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.step(ContainerStopRequested(ContainerId("ct-1")))
        self.assertEqual(stage.in_state(DRAINING), ["ct-1"])
        stage.over("ct-1")
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])

    def test_a_request_that_ceased_to_count_may_count_again(self) -> None:
        stage = PlainStage(max_concurrency=1)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.over("ct-1")
        stage.enter()
        stage.fleet.enter_again(stage.now, ContainerId("ct-1"))
        self.assertEqual(stage.in_flight()["ct-1"], 2)
        stage.over("ct-1", "ct-1")
        self.assertEqual(stage.enter(), "ct-1")
        stage.fleet.enter_again(stage.now, ContainerId("ct-gone"))


class DeployTests(TestCase):
    def stage(self) -> PlainStage:
        stage = PlainStage()
        stage.refused()
        stage.ready()
        return stage

    def deploy(self, stage: PlainStage, **limits: Any) -> None:
        recreate = limits.pop("recreate", False)
        stage.step(Deployed(DeploymentId("dp-2"), Policy(sessioned=False, **limits), recreate))

    def test_the_old_one_serves_until_the_new_one_is_ready_which_its_requests_call_for(self) -> None:
        stage = self.stage()
        stage.enter()
        self.deploy(stage)
        self.assertEqual(stage.in_state(STARTING), ["ct-2"])
        self.assertEqual(stage.enter(), "ct-1")
        stage.ready()
        self.assertEqual(stage.enter(), "ct-2")
        stage.over("ct-1")
        self.assertEqual(stage.in_state(STOPPING), [])
        stage.over("ct-1")
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])

    def test_an_old_one_without_requests_stays_for_those_that_come(self) -> None:
        stage = self.stage()
        self.deploy(stage)
        self.assertEqual((stage.in_state(READY), stage.spawned()), (["ct-1"], 1))
        self.assertEqual(stage.enter(), "ct-1")
        self.assertEqual(stage.in_state(STARTING), ["ct-2"])
        stage.over("ct-1")
        self.assertEqual(stage.in_state(READY), ["ct-1"])
        stage.ready()
        self.assertEqual((stage.in_state(READY), stage.in_state(STOPPING)), (["ct-2"], ["ct-1"]))

    def test_and_goes_when_none_come(self) -> None:
        stage = self.stage()
        self.deploy(stage)
        stage.wait(60.0)
        self.assertEqual((stage.in_state(STOPPING), stage.spawned()), (["ct-1"], 1))

    def test_recreate_drains_it_at_once(self) -> None:
        stage = self.stage()
        stage.enter()
        self.deploy(stage, recreate=True)
        self.assertEqual(stage.of(CutRequests)[0].reason, EndReason.DEPLOYMENT_ENDED)
        self.assertIsInstance(stage.refused(), errors.NoContainerReady)

    def test_a_server_that_becomes_sessioned_completes_its_requests_and_counts_them(self) -> None:
        stage = PlainStage(max_concurrency=2)
        stage.refused()
        stage.ready()
        stage.enter()
        stage.step(PolicyChanged(Policy(max_concurrency=2, max_containers=1)))
        self.assertIsNotNone(stage.session_of(stage.start()))
        waiting = stage.start()
        self.assertIsNone(stage.session_of(waiting))
        stage.over("ct-1")
        stage.wait(0.0)
        self.assertIsNotNone(stage.session_of(waiting))


class AffinityTests(TestCase):
    @given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=20, unique=True), st.integers(2, 6))
    def test_when_one_goes_only_its_own_keys_go_elsewhere(self, keys: list[bytes], count: int) -> None:
        boxes = [box(number) for number in range(count)]
        before = {key: choose_for_request(0.0, boxes, boxes[0].deployment, key).id for key in keys}
        gone, *rest = boxes
        after = {key: choose_for_request(0.0, rest, gone.deployment, key).id for key in keys}
        self.assertEqual(
            {key: home for key, home in after.items() if before[key] != gone.id},
            {key: home for key, home in before.items() if home != gone.id},
        )

    def test_keys_are_spread_evenly(self) -> None:
        boxes = [box(number) for number in range(4)]
        homes = Counter(
            choose_for_request(0.0, boxes, boxes[0].deployment, b"key-%d" % number).id for number in range(4000)
        )
        self.assertTrue(all(800 < homes[one.id] < 1200 for one in boxes), homes)

    def test_it_is_the_same_in_every_daemon(self) -> None:
        self.assertEqual(affinity(b"room-7", ContainerId("ct-1")).hex(), AFFINITY)

    def test_long_keys_are_taken(self) -> None:
        self.assertNotEqual(affinity(b"x" * 5000, ContainerId("ct-1")), affinity(b"x" * 5001, ContainerId("ct-1")))


AFFINITY = "17db222401b25c43"


def box(number: int) -> Container:
    identity = ContainerId(f"ct-{number}")
    return Container(identity, DeploymentId("dp-1"), 0.0, 100.0, 10, number, ContainerState.READY)

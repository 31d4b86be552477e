"""Scenarios of one container that is stopped by an operator or found unhealthy, and of limits that change under all of them."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import PROVEN_AFTER, ContainerState
from sticky.core.effects import KillContainer, TerminateContainer
from sticky.core.events import ContainerStopRequested, ContainerUnhealthy, Deployed, PolicyChanged
from sticky.core.memory import Memory
from sticky.core.values import ContainerId, DeploymentId, EndReason, Policy, StopCause
from tests.core.stage import Stage

BOX = ContainerId("ct-1")
STARTING, READY = ContainerState.STARTING, ContainerState.READY
DRAINING, STOPPING = ContainerState.DRAINING, ContainerState.STOPPING


class OperatorTests(TestCase):
    def test_a_ready_one_drains_for_the_grace_period_and_its_sessions_end_as_stopped(self) -> None:
        stage = Stage(exit_grace_period=20.0)
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.step(ContainerStopRequested(BOX))
        self.assertEqual(stage.in_state(DRAINING), [BOX])
        self.assertEqual(self.assertRaises(errors.SessionEnded, stage.begin, "sd-1").code, "server_stopped")
        stage.step(ContainerStopRequested(BOX))  # doubled
        stage.wait(20.0)
        self.assertEqual(stage.end_of("sd-1"), (EndReason.SERVER_STOPPED, None))
        self.assertEqual(stage.in_state(STOPPING), [BOX])
        stage.step(ContainerStopRequested(BOX))
        self.assertEqual(stage.of(TerminateContainer), [TerminateContainer(BOX, StopCause.ASKED)])

    def test_a_starting_one_stops_and_another_takes_the_start_without_backing_off(self) -> None:
        stage = Stage()
        waiter = stage.start()
        stage.step(ContainerStopRequested(BOX))
        self.assertEqual(stage.fleet.backoff.failures, 0)
        stage.ready("ct-2")
        self.assertEqual(stage.home(str(stage.session_of(waiter))), "ct-2")

    def test_an_unknown_one(self) -> None:
        for event in (ContainerStopRequested(BOX), ContainerUnhealthy(BOX)):
            self.assertRaises(errors.IllegalEvent, Stage().step, event)


class UnhealthyTests(TestCase):
    def test_its_sessions_end_it_is_killed_at_once_and_replaced(self) -> None:
        stage = Stage(min_containers=1, exit_grace_period=20.0)
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.wait(PROVEN_AFTER)
        stage.step(ContainerUnhealthy(BOX))
        self.assertEqual(stage.end_of("sd-1"), (EndReason.CONTAINER_LOST, "unhealthy"))
        self.assertEqual((stage.of(KillContainer), stage.of(TerminateContainer)), ([KillContainer(BOX)], []))
        self.assertEqual((stage.in_state(STOPPING), stage.in_state(STARTING)), ([BOX], ["ct-2"]))
        refusal = self.assertRaises(errors.SessionEnded, stage.begin, "sd-1")
        self.assertEqual((refusal.code, refusal.detail), ("container_lost", "unhealthy"))
        stage.wait(31.0)
        stage.exit(BOX, "killed")
        self.assertEqual(stage.of(KillContainer), [KillContainer(BOX)])

    def test_one_that_drains_or_stops_is_not_touched(self) -> None:
        stage = Stage(exit_grace_period=20.0)
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.step(ContainerStopRequested(BOX))
        stage.step(ContainerUnhealthy(BOX))
        self.assertEqual((stage.in_state(DRAINING), stage.end_of("sd-1")), ([BOX], None))
        stage.wait(20.0)
        stage.step(ContainerUnhealthy(BOX))
        self.assertEqual(stage.of(KillContainer), [])

    def test_one_that_starts_has_another_time_limit(self) -> None:
        stage = Stage(min_containers=1)
        self.assertRaises(errors.IllegalEvent, stage.step, ContainerUnhealthy(BOX))
        self.assertEqual(stage.in_state(STARTING), [BOX])

    def test_a_restart_right_after_it_finds_no_session(self) -> None:
        stage = Stage()
        stage.start()
        stage.ready()
        stage.step(ContainerUnhealthy(BOX))
        memory = Memory.of(stage.records())
        self.assertEqual((memory.sessions, memory.containers[BOX].state), ({}, STOPPING))


class LimitTests(TestCase):
    def changed(self, stage: Stage, **limits: Any) -> None:
        stage.step(PolicyChanged(Policy(**limits)))

    def test_a_higher_limit_lets_a_queued_start_in_at_once(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=1)
        stage.start()
        stage.ready()
        waiter = stage.start()
        self.assertIsNone(stage.session_of(waiter))
        self.changed(stage, max_concurrency=2, max_containers=1)
        self.assertEqual(stage.home(str(stage.session_of(waiter))), BOX)

    def test_a_lower_limit_ends_nobody_and_lets_nobody_in(self) -> None:
        stage = Stage(max_concurrency=3, max_containers=1)
        for _ in range(3):
            stage.start()
        stage.ready()
        self.changed(stage, max_concurrency=1, max_containers=1)
        self.assertEqual(stage.loads(), {"ct-1": 3})
        stage.terminate("sd-1")
        stage.terminate("sd-2")
        waiter = stage.start()
        self.assertIsNone(stage.session_of(waiter))
        stage.terminate("sd-3")
        self.assertIsNotNone(stage.session_of(waiter))

    def test_fewer_containers_stop_only_those_without_sessions(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=3)
        for _ in range(3):
            stage.start()
        stage.ready()
        self.changed(stage, max_concurrency=1, max_containers=1)
        self.assertEqual(len(stage.in_state(READY)), 3)
        stage.terminate("sd-2")
        stage.wait(60.0)
        self.assertEqual(stage.in_state(READY), ["ct-1", "ct-3"])

    def test_a_higher_minimum_starts_containers_at_once(self) -> None:
        stage = Stage()
        self.changed(stage, min_containers=2)
        self.assertEqual(stage.spawned(), 2)

    def test_waiting_starts_keep_their_deadline(self) -> None:
        stage = Stage(queue_timeout=60.0)
        waiter = stage.start()
        self.changed(stage, queue_timeout=5.0, startup_timeout=100.0)
        stage.wait(29.0)
        self.assertIsNone(stage.refusal_of(waiter))

    def test_a_deployment_that_comes_back_takes_starts_again(self) -> None:
        stage = Stage()
        stage.start()
        stage.ready()
        first = stage.fleet.capacity.deployment
        stage.step(Deployed(DeploymentId("dp-2"), Policy()))
        stage.start()
        stage.ready()
        stage.step(Deployed(first, Policy(max_concurrency=2)))
        stage.start()
        self.assertEqual([stage.home(f"sd-{number}") for number in (1, 2, 3)], ["ct-1", "ct-2", "ct-1"])

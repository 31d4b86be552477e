"""Scenarios of containers on a whole fleet: scaling, placement, failures to start."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import PROVEN_AFTER, ContainerState
from sticky.core.effects import KillContainer, TerminateContainer
from sticky.core.events import ContainerStopRequested, ContainerUnhealthy, Deployed
from sticky.core.values import ContainerId, DeploymentId, EndReason, Placement, Policy
from tests.core.stage import Stage

STARTING, READY = ContainerState.STARTING, ContainerState.READY
DRAINING, STOPPING = ContainerState.DRAINING, ContainerState.STOPPING


class ScaleUpTests(TestCase):
    def test_a_herd_of_starts_does_not_start_a_herd_of_containers(self) -> None:
        stage = Stage(max_containers=8, max_concurrency=10)
        for _ in range(25):
            stage.start()
        self.assertEqual(stage.spawned(), 3)

    def test_the_minimum_is_there_from_the_first_step_and_again_after_a_loss(self) -> None:
        stage = Stage(min_containers=2)
        self.assertEqual(stage.in_state(STARTING), ["ct-1", "ct-2"])
        stage.ready()
        stage.wait(PROVEN_AFTER)
        stage.exit("ct-1")
        self.assertEqual(stage.in_state(STARTING), ["ct-3"])

    def test_the_buffer_is_there_while_anybody_plays(self) -> None:
        stage = Stage(buffer_containers=1, scaledown_window=2.0)
        self.assertEqual(stage.spawned(), 0)
        stage.start()
        self.assertEqual(stage.spawned(), 2)

    def test_the_first_container_does_not_wait_for_the_window_and_the_second_does(self) -> None:
        stage = Stage(max_concurrency=1, scaleup_window=5.0)
        stage.start()
        stage.start()
        self.assertEqual(stage.spawned(), 1)
        stage.wait(4.9)
        self.assertEqual(stage.spawned(), 1)
        stage.wait(0.1)
        self.assertEqual(stage.spawned(), 2)

    def test_demand_that_passes_within_the_window_starts_nothing(self) -> None:
        stage = Stage(max_concurrency=1, scaleup_window=5.0)
        stage.start()
        gone = stage.start()
        stage.wait(3.0)
        stage.leave(gone)
        stage.wait(1.0)
        stage.start()
        stage.wait(4.9)
        self.assertEqual(stage.spawned(), 1)
        stage.wait(0.1)
        self.assertEqual(stage.spawned(), 2)

    def test_those_that_are_stopping_count_against_the_maximum(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1, scaledown_window=2.0)
        stage.start()
        stage.ready()
        stage.terminate("sd-1")
        stage.wait(2.0)
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])
        stage.start()
        self.assertEqual(stage.spawned(), 1)
        stage.exit("ct-1")
        self.assertEqual(stage.spawned(), 2)

    def test_one_too_old_for_the_demand_gets_a_successor_while_its_sessions_stay(self) -> None:
        stage = Stage(
            max_containers=1, max_concurrency=5, container_max_age=100.0, max_idle_timeout=50.0, idle_timeout=50.0
        )
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.wait(50.0)
        self.assertEqual(stage.spawned(), 1)
        stage.start()
        self.assertEqual((stage.spawned(), stage.in_state(READY)), (2, ["ct-1"]))


class ScaleDownTests(TestCase):
    def stage(self, containers: int, **limits: Any) -> Stage:
        """So many READY ones with one session each."""
        stage = Stage(max_concurrency=1, scaledown_window=60.0, **limits)
        for _ in range(containers):
            stage.start()
        stage.ready()
        self.assertEqual(stage.loads(), {f"ct-{number}": 1 for number in range(1, containers + 1)})
        return stage

    def test_an_empty_one_is_closed_at_the_end_of_the_window_and_not_before(self) -> None:
        stage = self.stage(1)
        stage.terminate("sd-1")
        stage.wait(59.9)
        self.assertEqual(stage.of(TerminateContainer), [])
        stage.wait(0.1)
        self.assertEqual([effect.container for effect in stage.of(TerminateContainer)], ["ct-1"])

    def test_a_session_in_between_starts_the_window_anew(self) -> None:
        stage = self.stage(1)
        stage.terminate("sd-1")
        stage.wait(59.0)
        stage.start()
        stage.terminate("sd-2")
        stage.wait(59.0)
        self.assertEqual(stage.of(TerminateContainer), [])

    def test_the_newest_goes_first_and_the_minimum_stays(self) -> None:
        stage = self.stage(3, min_containers=1)
        for session in ("sd-1", "sd-2", "sd-3"):
            stage.terminate(session)
        stage.wait(60.0)
        self.assertEqual([effect.container for effect in stage.of(TerminateContainer)], ["ct-3", "ct-2"])
        stage.wait(1000.0)
        self.assertEqual(stage.in_state(READY), ["ct-1"])

    def test_one_whose_window_is_over_does_not_wait_for_a_newer_one(self) -> None:
        stage = self.stage(2, min_containers=1)
        stage.terminate("sd-1")
        stage.wait(30.0)
        stage.terminate("sd-2")
        stage.wait(30.0)
        self.assertEqual([effect.container for effect in stage.of(TerminateContainer)], ["ct-1"])
        stage.wait(1000.0)
        self.assertEqual(stage.in_state(READY), ["ct-2"])

    def test_the_buffer_stays_while_there_is_demand(self) -> None:
        stage = Stage(max_concurrency=1, buffer_containers=1, scaledown_window=10.0)
        stage.start(5000.0)
        stage.ready()
        stage.wait(4000.0)
        self.assertEqual(stage.in_state(READY), ["ct-1", "ct-2"])

    def test_one_with_a_session_is_never_closed(self) -> None:
        stage = self.stage(2)
        busy = stage.begin("sd-2")
        stage.terminate("sd-1")
        stage.wait(5000.0)
        self.assertEqual(stage.in_state(READY), ["ct-2"])
        stage.finish(busy)

    def test_it_is_killed_thirty_seconds_after_it_was_asked_to_end(self) -> None:
        stage = self.stage(1)
        stage.terminate("sd-1")
        stage.wait(60.0)
        stage.wait(29.9)
        self.assertEqual(stage.of(KillContainer), [])
        stage.wait(0.1)
        self.assertEqual([effect.container for effect in stage.of(KillContainer)], ["ct-1"])
        stage.wait(1000.0)
        self.assertEqual(len(stage.of(KillContainer)), 1)


class FailureTests(TestCase):
    def lose(self, stage: Stage) -> None:
        stage.exit(stage.in_state(STARTING)[0])

    def hopeless(self) -> Stage:
        """Three failures in a row, at 1000, 1001 and 1003 s; the next attempt at 1007."""
        stage = Stage()
        self.waiter = stage.start()
        for delay in (1.0, 2.0, 0.0):
            self.lose(stage)
            stage.wait(delay)
        return stage

    def test_attempts_back_off_one_at_a_time(self) -> None:
        stage = Stage(max_concurrency=1)
        stage.start()
        stage.start()
        self.assertEqual(stage.spawned(), 2)
        self.lose(stage)
        stage.wait(0.9)
        self.assertEqual(stage.spawned(), 2)
        self.lose(stage)
        stage.wait(1.9)
        self.assertEqual(stage.spawned(), 2)
        stage.wait(0.1)
        self.assertEqual(stage.spawned(), 3)

    def test_after_three_failures_who_waits_is_refused_with_the_time_of_the_next_attempt(self) -> None:
        stage = self.hopeless()
        refusal = stage.refusal_of(self.waiter)
        assert refusal is not None
        self.assertEqual((refusal.code, refusal.status, refusal.retry_after), ("containers_failing", 503, 4.0))
        stage.wait(1.0)
        refusal = stage.refusal_of(stage.start())
        assert refusal is not None
        self.assertEqual((refusal.code, refusal.retry_after), ("containers_failing", 3.0))

    def test_a_refused_start_makes_the_next_attempt_happen_and_its_success_mends_everything(self) -> None:
        stage = self.hopeless()
        self.assertEqual(stage.spawned(), 3)
        stage.wait(4.0)
        self.assertEqual(stage.spawned(), 4)
        stage.ready()
        self.assertIsNotNone(stage.session_of(stage.start()))
        stage.wait(PROVEN_AFTER)
        self.assertEqual(stage.fleet.backoff.failures, 0)

    def test_an_attempt_that_nobody_asked_for_again_is_not_repeated(self) -> None:
        stage = self.hopeless()
        stage.wait(4.0)
        self.lose(stage)
        stage.wait(1000.0)
        self.assertEqual(stage.spawned(), 4)

    def test_a_start_up_timeout_is_a_failure(self) -> None:
        stage = Stage(startup_timeout=30.0, queue_timeout=300.0)
        stage.start()
        stage.wait(30.0)
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])
        self.assertEqual(stage.fleet.backoff.failures, 1)
        stage.exit("ct-1")
        self.assertEqual(stage.fleet.backoff.failures, 1)

    def test_while_one_is_ready_starts_wait_in_spite_of_failures(self) -> None:
        stage = Stage(max_concurrency=1)
        stage.start()
        stage.ready()
        waiter = stage.start()
        for delay in (1.0, 2.0, 0.0):
            self.lose(stage)
            stage.wait(delay)
        self.assertIsNone(stage.refusal_of(waiter))

    def test_when_the_last_ready_one_drains_they_fail_fast_too(self) -> None:
        stage = Stage(
            max_concurrency=1, container_max_age=100.0, idle_timeout=40.0, exit_grace_period=60.0, queue_timeout=300.0
        )
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.wait(97.0)
        waiter = stage.start()
        for delay in (1.0, 2.0, 0.0):
            self.assertIsNone(stage.refusal_of(waiter))
            self.lose(stage)
            stage.wait(delay)
        self.assertEqual(stage.in_state(DRAINING), ["ct-1"])
        self.assertIsInstance(stage.refusal_of(waiter), errors.ContainersFailing)

    def test_a_client_that_comes_back_to_a_held_start_fails_fast_as_well(self) -> None:
        stage = Stage()
        stage.start()
        stage.leave(stage.start(key="k" * 16))
        for delay in (1.0, 2.0, 0.0):
            self.lose(stage)
            stage.wait(delay)
        self.assertIsInstance(stage.refusal_of(stage.start(key="k" * 16)), errors.ContainersFailing)

    def test_demand_of_the_refused_is_forgotten_when_a_container_is_ready(self) -> None:
        stage = Stage(max_concurrency=1, scaledown_window=10.0)
        for _ in range(4):
            stage.start()
        for _ in range(3):
            self.lose(stage)
        stage.ready()  # the fourth makes it, after everybody was refused
        stage.wait(10.0)
        self.assertEqual(stage.in_state(STOPPING), ["ct-4"])
        stage.exit("ct-4")
        stage.wait(1000.0)
        self.assertEqual(stage.spawned(), 4)


class CrashLoopTests(TestCase):
    """Containers that become ready and die soon after."""

    def crash(self, stage: Stage, after: float = 1.0) -> None:
        stage.ready()
        stage.wait(after)
        stage.exit(stage.in_state(READY)[0])

    def test_attempts_back_off_and_who_waits_is_refused_after_three(self) -> None:
        stage = Stage(min_containers=1)
        spawned = []
        for pause in (1.0, 2.0, 4.0, 8.0):
            self.crash(stage)
            stage.wait(pause - 0.1)
            spawned.append(stage.spawned())
            stage.wait(0.1)
        self.assertEqual(spawned, [1, 2, 3, 4])
        self.crash(stage)
        refusal = stage.refusal_of(stage.start())
        assert refusal is not None
        self.assertEqual((refusal.code, refusal.retry_after), ("containers_failing", 16.0))

    def test_sessions_that_are_lost_with_it_prove_nothing(self) -> None:
        stage = Stage()
        stage.start()
        self.crash(stage)
        self.assertEqual(stage.end_of("sd-1"), (EndReason.CONTAINER_LOST, "exited"))
        self.assertEqual(stage.fleet.backoff.failures, 1)

    def test_one_that_stops_answering_soon_after_is_a_failure_too(self) -> None:
        stage = Stage(min_containers=1)
        stage.ready()
        stage.step(ContainerUnhealthy(ContainerId("ct-1")))
        self.assertEqual(stage.fleet.backoff.failures, 1)
        stage.exit("ct-1")
        self.assertEqual(stage.fleet.backoff.failures, 1)

    def test_one_that_lived_long_enough_is_replaced_at_once(self) -> None:
        stage = Stage(min_containers=1)
        self.crash(stage)
        stage.wait(1.0)
        self.crash(stage, PROVEN_AFTER)
        self.assertEqual((stage.fleet.backoff.failures, stage.in_state(STARTING)), (0, ["ct-3"]))

    def test_a_session_that_came_to_its_own_end_proves_it_as_well(self) -> None:
        stage = Stage(min_containers=1)
        self.crash(stage)
        stage.wait(1.0)
        stage.ready()
        stage.start()
        self.assertEqual(stage.fleet.backoff.failures, 1)
        stage.terminate("sd-1")
        self.assertEqual(stage.fleet.backoff.failures, 0)
        self.crash(stage, 0.0)
        self.assertEqual(stage.in_state(STARTING), ["ct-3"])

    def test_one_that_was_asked_to_go_has_not_failed(self) -> None:
        stage = Stage(min_containers=1)
        self.crash(stage)
        stage.wait(1.0)
        stage.ready()
        stage.step(ContainerStopRequested(ContainerId("ct-2")))
        self.assertEqual((stage.fleet.backoff.failures, stage.in_state(STARTING)), (0, ["ct-3"]))

    def test_those_of_an_older_deployment_say_nothing_of_the_newest(self) -> None:
        stage = Stage(min_containers=1)
        stage.ready()
        stage.start()
        stage.step(Deployed(DeploymentId("dp-2"), Policy(min_containers=1)))
        stage.exit("ct-1")
        self.assertEqual(stage.fleet.backoff.failures, 0)
        stage.exit("ct-2")
        self.assertEqual(stage.fleet.backoff.failures, 1)

    def test_a_herd_meets_one_attempt_at_a_time_until_one_has_lived(self) -> None:
        stage = Stage(max_concurrency=1, startup_timeout=100.0, queue_timeout=300.0)
        stage.start()
        self.crash(stage)
        stage.wait(1.0)
        for _ in range(4):
            stage.start()
        self.assertEqual(len(stage.in_state(STARTING)), 1)
        stage.ready()
        self.assertEqual(len(stage.in_state(STARTING)), 1)
        stage.wait(PROVEN_AFTER)
        self.assertEqual(len(stage.in_state(STARTING, READY)), 4)


class PlacementTests(TestCase):
    def loads_after(self, placement: Placement, starts: int) -> dict[str, int]:
        stage = Stage(min_containers=3, max_concurrency=4, target_concurrency=2, placement=placement)
        stage.ready()
        for _ in range(starts):
            stage.start()
        return stage.loads()

    def test_spread_fills_evenly(self) -> None:
        self.assertEqual(self.loads_after(Placement.SPREAD, 4), {"ct-1": 2, "ct-2": 1, "ct-3": 1})

    def test_spread_lets_the_emptier_ones_run_empty_while_load_falls(self) -> None:
        stage = Stage(max_concurrency=2, scaledown_window=60.0)
        for _ in range(6):
            stage.start()
        stage.ready()
        for session in ("sd-1", "sd-2", "sd-3"):
            stage.terminate(session)
        self.assertEqual(stage.loads(), {"ct-1": 0, "ct-2": 1, "ct-3": 2})
        stage.start()
        self.assertEqual(stage.loads(), {"ct-1": 0, "ct-2": 2, "ct-3": 2})
        stage.wait(60.0)
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])

    def test_pack_fills_one_to_its_target_before_the_next(self) -> None:
        self.assertEqual(self.loads_after(Placement.PACK, 3), {"ct-1": 2, "ct-2": 1, "ct-3": 0})

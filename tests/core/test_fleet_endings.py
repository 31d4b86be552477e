"""Scenarios of containers on a whole fleet: age, deployments, the end, and what cannot happen."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.effects import EndSession, GrantStart
from sticky.core.events import Deployed, StopRequested
from sticky.core.records import ContainerMoved
from sticky.core.values import DeploymentId, EndReason, Policy
from tests.core.stage import Stage

STARTING, READY = ContainerState.STARTING, ContainerState.READY
DRAINING, STOPPING = ContainerState.DRAINING, ContainerState.STOPPING


class AgeTests(TestCase):
    def test_at_its_age_limit_it_drains_for_the_grace_period_and_then_stops(self) -> None:
        stage = Stage(container_max_age=100.0, idle_timeout=10.0, exit_grace_period=20.0)
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.wait(100.0)
        self.assertEqual(stage.in_state(DRAINING), ["ct-1"])
        refusal = self.assertRaises(errors.SessionEnded, stage.begin, "sd-1")
        self.assertEqual(refusal.code, "container_max_age")
        stage.wait(19.9)
        self.assertEqual(stage.of(EndSession), [])
        stage.wait(0.1)
        self.assertEqual(stage.end_of("sd-1"), (EndReason.CONTAINER_MAX_AGE, None))
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])

    def test_a_draining_one_stops_as_soon_as_its_last_session_has_ended(self) -> None:
        stage = Stage(container_max_age=100.0, idle_timeout=10.0, exit_grace_period=20.0)
        stage.start()
        stage.ready()
        busy = stage.begin("sd-1")
        stage.wait(105.0)
        stage.finish(busy)
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])


class DeploymentTests(TestCase):
    def deployed(self, stage: Stage, recreate: bool = False, **limits: Any) -> None:
        stage.step(Deployed(DeploymentId("dp-2"), Policy(**limits), recreate))

    def test_rolling_keeps_old_sessions_and_puts_new_ones_on_the_new_deployment(self) -> None:
        stage = Stage()
        stage.start()
        stage.ready()
        busy = stage.begin("sd-1")
        self.deployed(stage)
        stage.start()
        stage.ready()
        self.assertEqual((stage.home("sd-1"), stage.home("sd-2")), ("ct-1", "ct-2"))
        stage.finish(busy)
        stage.terminate("sd-1")
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])

    def test_queued_starts_keep_rank_and_deadline(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=1)
        first, second = stage.start(), stage.start()
        stage.wait(30.0)
        self.deployed(stage, max_concurrency=1, max_containers=1)
        self.assertEqual((stage.in_state(STOPPING), stage.in_state(STARTING)), (["ct-1"], ["ct-2"]))
        stage.ready("ct-2")
        self.assertEqual(stage.home(str(stage.session_of(first))), "ct-2")
        stage.wait(30.0)
        self.assertIsInstance(stage.refusal_of(second), errors.QueueTimedOut)

    def test_recreate_ends_the_old_ones_now(self) -> None:
        stage = Stage()
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        self.deployed(stage, recreate=True)
        self.assertEqual(stage.end_of("sd-1"), (EndReason.DEPLOYMENT_ENDED, None))

    def test_old_and_new_together_stay_under_the_total(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=2, max_total_containers=3)
        stage.start()
        stage.start()
        stage.ready()
        self.deployed(stage, max_concurrency=1, max_containers=2, max_total_containers=3)
        stage.start()
        stage.start()
        self.assertEqual(stage.in_state(STARTING), ["ct-3"])

    def test_a_start_that_no_new_container_could_ever_take_is_refused_instead_of_starting_one_after_the_other(
        self,
    ) -> None:
        stage = Stage(container_max_age=1000.0)
        waiter = stage.start(400.0)
        self.deployed(stage, container_max_age=300.0, idle_timeout=100.0)
        self.assertIsInstance(stage.refusal_of(waiter), errors.BadIdleTimeout)
        for _ in range(5):
            stage.wait(1.0)
        self.assertEqual(stage.spawned(), 1)

    def test_limits_that_change_under_a_running_container_hold_for_its_ledger_and_for_admission_alike(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=1)
        stage.start()
        stage.ready()
        queued = stage.start()
        stage.step(Deployed(DeploymentId("dp-1"), Policy(max_concurrency=2, max_containers=1)))
        self.assertEqual((stage.loads(), stage.session_of(queued)), ({"ct-1": 2}, "sd-2"))
        stage.step(Deployed(DeploymentId("dp-1"), Policy(max_concurrency=1, max_containers=1)))
        stage.terminate("sd-1")
        self.assertIsNone(stage.session_of(stage.start()))
        self.assertEqual(stage.loads(), {"ct-1": 1})


class StopTests(TestCase):
    def test_everything_ends_and_starts_are_refused(self) -> None:
        stage = Stage(max_concurrency=1, max_containers=2, exit_grace_period=10.0)
        stage.start()
        stage.ready()
        queued = stage.start()
        stage.begin("sd-1")
        stage.step(StopRequested())
        self.assertIsInstance(stage.refusal_of(queued), errors.ShuttingDown)
        self.assertIsInstance(stage.refusal_of(stage.start()), errors.ShuttingDown)
        self.assertEqual((stage.in_state(DRAINING), stage.in_state(STOPPING)), (["ct-1"], ["ct-2"]))
        stage.wait(10.0)
        self.assertEqual(stage.end_of("sd-1"), (EndReason.SERVER_STOPPED, None))
        for container in ("ct-1", "ct-2"):
            stage.exit(container)
        self.assertEqual((stage.spawned(), stage.fleet.next_deadline(stage.now)), (2, None))

    def test_a_second_stop_changes_nothing(self) -> None:
        stage = Stage(min_containers=1)
        stage.step(StopRequested())
        self.assertEqual(stage.step(StopRequested(EndReason.DEPLOYMENT_ENDED)), [])

    def test_a_container_that_answers_while_it_is_being_stopped_stays_so(self) -> None:
        stage = Stage(min_containers=1)
        stage.step(StopRequested())
        stage.ready("ct-1")
        self.assertEqual(stage.in_state(STOPPING), ["ct-1"])


class IllegalTests(TestCase):
    def test_facts_about_unknown_containers_raise_and_change_nothing(self) -> None:
        stage = Stage(min_containers=1)
        told = len(stage.told)
        self.assertRaises(errors.IllegalEvent, stage.ready, "ct-9")
        self.assertRaises(errors.IllegalEvent, stage.exit, "ct-9")
        stage.ready()
        self.assertRaises(errors.IllegalEvent, stage.ready, "ct-1")
        self.assertEqual([type(effect) for effect in stage.told[told:]], [ContainerMoved])
        self.assertEqual(stage.of(GrantStart), [])

"""Why a container is asked to go, as its Server is told."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.effects import TerminateContainer
from sticky.core.events import ContainerStopRequested, Deployed, StopRequested
from sticky.core.values import ContainerId, DeploymentId, EndReason, Policy, StopCause
from tests.core.stage import Stage

BOX = ContainerId("ct-1")


class StopCauseTests(SynchronousTestCase):
    def ready(self, **policy: Any) -> Stage:
        """With one container, ready and empty."""
        stage = Stage(scaledown_window=10.0, exit_grace_period=5.0, idle_timeout=20.0, **policy)
        stage.start()
        stage.ready()
        stage.terminate("sd-1")
        return stage

    def stopped(self, stage: Stage, cause: StopCause) -> None:
        self.assertEqual(stage.of(TerminateContainer), [TerminateContainer(BOX, cause)])

    def test_one_that_nobody_needs(self) -> None:
        stage = self.ready()
        stage.wait(10.0)
        self.stopped(stage, StopCause.SCALED_DOWN)

    def test_one_that_is_too_old_for_another_session(self) -> None:
        stage = self.ready(min_containers=1, container_max_age=100.0)
        stage.wait(90.0)
        self.stopped(stage, StopCause.TOO_OLD)

    def test_one_that_reached_its_age_limit_with_a_session(self) -> None:
        stage = self.ready(container_max_age=100.0)
        stage.start()
        session = stage.begin("sd-2")
        stage.wait(100.0)
        stage.finish(session)
        stage.wait(5.0)
        self.stopped(stage, StopCause.TOO_OLD)

    def test_one_that_is_there_for_one_session(self) -> None:
        self.stopped(self.ready(single_use=True, max_concurrency=1), StopCause.SPENT)

    def test_one_that_was_not_ready_in_time(self) -> None:
        stage = Stage(startup_timeout=30.0)
        stage.start()
        stage.wait(30.0)
        self.stopped(stage, StopCause.STARTUP_TIMEOUT)

    def test_those_of_an_older_deployment(self) -> None:
        for recreate in (False, True):
            for begun in (False, True):
                stage = self.ready() if begun else Stage()
                if not begun:
                    stage.start()
                stage.step(Deployed(DeploymentId("d2"), Policy(), recreate))
                stage.wait(0.0)
                self.stopped(stage, StopCause.REPLACED)

    def test_one_that_an_operator_stops(self) -> None:
        for begun in (False, True):
            stage = self.ready() if begun else Stage()
            if not begun:
                stage.start()
            stage.step(ContainerStopRequested(BOX))
            self.stopped(stage, StopCause.ASKED)

    def test_when_everything_stops(self) -> None:
        for reason, cause in (
            (EndReason.SERVER_STOPPED, StopCause.DAEMON_STOPS),
            (EndReason.DEPLOYMENT_ENDED, StopCause.REMOVED),
        ):
            for begun in (False, True):
                stage = self.ready() if begun else Stage()
                if not begun:
                    stage.start()
                stage.step(StopRequested(reason))
                self.stopped(stage, cause)

    def test_one_that_drained_for_a_cause_of_its_own_before_everything_stops(self) -> None:
        stage = Stage(exit_grace_period=5.0)
        stage.start()
        stage.ready()
        stage.begin("sd-1")
        stage.step(Deployed(DeploymentId("d2"), Policy(exit_grace_period=5.0), recreate=True))
        stage.step(StopRequested(EndReason.SERVER_STOPPED))
        stage.wait(5.0)
        self.stopped(stage, StopCause.REPLACED)

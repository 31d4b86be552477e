"""Containers that have one session in their life: what it leaves behind meets nobody. Numbers: tests/cases/seed003.md."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.container import ContainerState
from sticky.core.effects import Admit, TerminateContainer
from sticky.core.events import Closed
from sticky.core.values import Caller, ContainerId, EndReason, SessionId
from tests.core.stage import Stage


class SingleUseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.stage = Stage(single_use=True, max_concurrency=1, max_containers=2, min_containers=1, idle_timeout=20.0)
        self.stage.ready()

    def test_rule_3_a_container_stops_with_its_session_and_the_next_one_gets_another(self) -> None:
        self.stage.start()
        self.stage.terminate("sd-1")
        self.assertEqual(self.stage.of(TerminateContainer)[0].container, "ct-1")
        waiter = self.stage.start()
        self.stage.ready()
        session = self.stage.session_of(waiter)
        assert session is not None
        self.assertEqual(self.stage.home(session), "ct-2")

    def test_one_that_was_never_used_waits_for_its_session(self) -> None:
        self.stage.wait(1000.0)
        self.assertEqual(self.stage.in_state(ContainerState.READY), ["ct-1"])

    def test_those_that_end_count_until_they_are_gone(self) -> None:
        for _ in range(2):
            self.stage.start()
            self.stage.ready()
        self.stage.terminate("sd-1")
        self.stage.terminate("sd-2")
        self.stage.start()
        self.assertEqual(self.stage.in_state(ContainerState.STARTING), [])
        self.stage.exit("ct-1")
        self.assertEqual(len(self.stage.in_state(ContainerState.STARTING)), 1)

    def test_rule_13_an_idle_session_takes_its_container_along_in_the_same_step(self) -> None:
        self.stage.start()
        self.stage.wait(20.0)
        self.assertEqual(self.stage.in_state(ContainerState.STOPPING), ["ct-1"])

    def test_a_death_by_a_sessions_own_code_is_no_failed_start(self) -> None:
        for number in range(1, 5):
            self.assertIsNone(self.stage.refusal_of(self.stage.start()))
            self.stage.exit(f"ct-{number}")
            self.assertEqual(self.stage.end_of(f"sd-{number}"), (EndReason.CONTAINER_LOST, "exited"))
            self.stage.ready()
        self.assertEqual(self.stage.in_state(ContainerState.READY), ["ct-5"])

    def test_the_death_of_one_that_nobody_has_used_is(self) -> None:
        self.stage.exit("ct-1")
        self.assertEqual(self.stage.spawned(), 1)
        self.stage.wait(1.6)
        self.assertEqual(self.stage.spawned(), 2)

    def test_after_a_restart_an_empty_one_is_taken_for_used(self) -> None:
        after = Stage(after=self.stage, single_use=True, max_concurrency=1, max_containers=2, idle_timeout=20.0)
        self.assertEqual(after.in_state(ContainerState.STOPPING), ["ct-1"])

    def test_after_a_restart_a_session_keeps_its_container(self) -> None:
        self.stage.start()
        after = Stage(after=self.stage, single_use=True, max_concurrency=1, max_containers=2, idle_timeout=20.0)
        self.assertEqual(after.loads(), {"ct-1": 1})
        after.terminate("sd-1")
        self.assertEqual(after.in_state(ContainerState.STOPPING), ["ct-1"])

    def test_the_ledger_itself_takes_no_second_session(self) -> None:
        ledger = self.stage.fleet.ledgers[ContainerId("ct-1")]
        answers: list[object] = []
        ledger._answer = answers.append
        for name in ("sd-x", "sd-y"):
            ledger.admit(1000.0, Admit(ContainerId("ct-1"), SessionId(name), Caller("ann"), 20.0))
            ledger.terminate(1000.0, SessionId("sd-x"), None) if name == "sd-x" else None
        self.assertIsInstance(answers[-1], Closed)

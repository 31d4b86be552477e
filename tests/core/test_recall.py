"""A fleet across a restart."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import KILL_AFTER, ContainerState
from sticky.core.effects import GrantStart, TerminateContainer
from sticky.core.memory import Memory
from sticky.core.recall import memory_of
from sticky.core.records import DeploymentMade
from sticky.core.values import DeploymentId, EndReason
from tests.core.stage import Stage

KEY = "k" * 16


class RecallTests(TestCase):
    """Before: two sessions on ct-1, the first of them with a key, both with an idle timeout of 20 s."""

    def setUp(self) -> None:
        self.before = Stage(idle_timeout=20.0, max_concurrency=2)
        self.before.start(key=KEY)
        self.before.start()
        self.before.ready()

    def after(self, seconds: float = 0.0) -> Stage:
        self.before.now += seconds
        return Stage(after=self.before, idle_timeout=20.0, max_concurrency=2)

    def test_what_is_remembered_equals_the_fold_of_all_records(self) -> None:
        self.before.begin("sd-1")
        self.before.terminate("sd-1")
        self.before.terminate("sd-2")
        memory = memory_of(self.before.fleet)
        self.assertEqual(Memory.of(self.before.records()), memory)
        self.assertEqual(
            (list(memory.containers), list(memory.sessions), list(memory.ended)), (["ct-1"], ["sd-1"], ["sd-2"])
        )

    def test_sessions_live_on_with_nothing_in_flight_and_their_idle_clocks_restarted(self) -> None:
        self.before.begin("sd-1")
        self.before.wait(15.0)
        after = self.after(seconds=1000.0)
        self.assertEqual(after.loads(), {"ct-1": 2})
        after.wait(19.9)
        self.assertEqual(after.loads(), {"ct-1": 2})
        after.wait(0.1)
        self.assertEqual(after.end_of("sd-1"), (EndReason.IDLE_TIMEOUT, None))

    def test_requests_of_a_session_that_lives_on_are_served(self) -> None:
        after = self.after()
        session = after.begin("sd-1")
        after.wait(500.0)
        self.assertEqual(after.loads(), {"ct-1": 1})
        after.finish(session)

    def test_tombstones_stand(self) -> None:
        self.before.terminate("sd-1")
        refusal = self.assertRaises(errors.SessionEnded, self.after().begin, "sd-1")
        self.assertEqual(refusal.code, "terminated")

    def test_a_key_finds_its_session_and_is_free_once_that_has_ended(self) -> None:
        after = self.after()
        again = after.start(key=KEY)
        self.assertEqual(after.session_of(again), "sd-1")
        self.assertFalse(after.of(GrantStart)[-1].created)
        after.terminate("sd-1")
        self.assertEqual(after.fleet.starts.keys, {})

    def test_a_session_that_drained_ends_for_the_reason_it_had(self) -> None:
        self.before.begin("sd-1")
        self.before.terminate("sd-1")
        after = self.after()
        self.assertEqual(after.end_of("sd-1"), (EndReason.TERMINATED, None))
        self.assertEqual(after.loads(), {"ct-1": 1})

    def test_limits_count_the_sessions_that_live_on(self) -> None:
        after = Stage(after=self.before, max_sessions_per_caller=2)
        self.assertIsInstance(after.refusal_of(after.start()), errors.TooManySessions)
        after.terminate("sd-1")
        self.assertIsNone(after.refusal_of(after.start()))

    def test_nothing_is_placed_on_a_container_that_is_full_of_them(self) -> None:
        after = self.after()
        after.start()
        self.assertEqual(after.loads(), {"ct-1": 2, "ct-1001": 0})

    def test_the_remembered_deployment_is_the_newest(self) -> None:
        after = self.after()
        self.assertEqual(after.fleet.capacity.deployment, DeploymentId("dp-1"))
        self.assertEqual(after.of(DeploymentMade), [])

    def test_a_container_that_did_not_survive_is_lost_when_that_is_told(self) -> None:
        after = self.after()
        after.exit("ct-1", "killed")
        self.assertEqual(after.end_of("sd-1"), (EndReason.CONTAINER_LOST, "killed"))

    def test_one_that_was_starting_has_its_start_up_time_again(self) -> None:
        self.before.start()
        self.assertEqual(self.before.in_state(ContainerState.STARTING), ["ct-2"])
        after = self.after(seconds=100.0)
        after.wait(29.9)
        self.assertEqual(after.in_state(ContainerState.STARTING), ["ct-2"])
        after.wait(0.1)
        self.assertEqual(after.in_state(ContainerState.STOPPING), ["ct-2"])


class DrainingRecallTests(TestCase):
    def test_one_that_was_draining_has_nothing_to_wait_for_and_stops(self) -> None:
        before = Stage(container_max_age=100.0, idle_timeout=10.0, exit_grace_period=50.0)
        before.start()
        before.ready()
        before.begin("sd-1")
        before.wait(100.0)
        self.assertEqual(before.in_state(ContainerState.DRAINING), ["ct-1"])
        after = Stage(after=before)
        self.assertEqual(after.end_of("sd-1"), (EndReason.CONTAINER_MAX_AGE, None))
        self.assertEqual([effect.container for effect in after.of(TerminateContainer)], ["ct-1"])
        self.assertEqual([container.stop_at for container in after.containers()], [after.now + KILL_AFTER])

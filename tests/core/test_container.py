"""One container as admission sees it: its table, and what letters from its ledger change."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core.container import TRANSITIONS, Container, ContainerInput, ContainerState
from sticky.core.values import UNBOUNDED, ContainerId, DeploymentId, SessionId
from sticky.errors import IllegalEvent


def container(state: ContainerState = ContainerState.READY) -> Container:
    """Born at 0, for 100 s and at most two sessions."""
    return Container(ContainerId("ct-1"), DeploymentId("dp-1"), 0.0, 100.0, 2, 1, state)


class TableTests(TestCase):
    def test_an_input_without_a_row_raises_and_changes_nothing(self) -> None:
        for state in ContainerState:
            for what in ContainerInput:
                if (state, what) not in TRANSITIONS:
                    moved = container(state)
                    self.assertRaises(IllegalEvent, moved.move, what)
                    self.assertIs(moved.state, state)

    def test_states_only_move_forward(self) -> None:
        order = list(ContainerState)
        for (before, _), after in TRANSITIONS.items():
            self.assertLessEqual(order.index(before), order.index(after))

    def test_every_state_but_gone_may_be_left_by_death(self) -> None:
        alive = [state for state in ContainerState if state is not ContainerState.GONE]
        self.assertEqual({TRANSITIONS[state, ContainerInput.EXIT] for state in alive}, {ContainerState.GONE})


class SnapshotTests(TestCase):
    def test_an_older_snapshot_does_not_undo_a_newer(self) -> None:
        seen = container()
        seen.saw(1.0, 5, 2)
        seen.saw(2.0, 4, 0)
        self.assertEqual(seen.load, 2)

    def test_grants_count_until_the_ledger_has_answered(self) -> None:
        seen = container()
        seen.grants.add(SessionId("sd-1"))
        self.assertEqual(seen.load, 1)
        self.assertTrue(seen.takes(0.0, 10.0))
        seen.saw(1.0, 1, 1)
        self.assertFalse(seen.takes(0.0, 10.0))

    def test_it_is_empty_since_its_last_session_left(self) -> None:
        seen = container()
        seen.note_empty(1.0)
        self.assertEqual(seen.empty_since, 1.0)
        seen.saw(2.0, 1, 1)
        self.assertEqual(seen.empty_since, UNBOUNDED)
        seen.saw(3.0, 2, 0)
        seen.saw(4.0, 2, 0)
        self.assertEqual(seen.empty_since, 3.0)

    def test_old_news_that_settles_the_last_grant_starts_the_clock_all_the_same(self) -> None:
        seen = container()
        seen.grants.add(SessionId("sd-1"))
        seen.saw(2.0, 2, 0)  # its session has left
        self.assertEqual(seen.empty_since, UNBOUNDED)
        seen.grants.clear()
        seen.saw(3.0, 1, 1)  # and only now we hear that it had come
        self.assertEqual(seen.empty_since, 3.0)

    def test_only_a_ready_one_can_be_empty(self) -> None:
        seen = container(ContainerState.STARTING)
        seen.note_empty(1.0)
        self.assertEqual(seen.empty_since, UNBOUNDED)

"""Which container a start goes to."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.core.admission import choose
from sticky.core.container import Container, ContainerState
from sticky.core.values import ContainerId, DeploymentId, Placement, Policy, SessionId


def containers(*loads: int, limit: int = 10) -> list[Container]:
    """READY ones with so many sessions, oldest first, born at 0 with an age limit of 100 s."""
    return [
        Container(
            ContainerId(f"ct-{order}"),
            DeploymentId("dp-1"),
            0.0,
            100.0,
            limit,
            order,
            ContainerState.READY,
            sessions=load,
        )
        for order, load in enumerate(loads)
    ]


def chosen(
    candidates: list[Container], policy: Policy, now: float = 0.0, idle_timeout: float = 10.0, queued: int = 1
) -> int | None:
    """The order of the one that is chosen."""
    container = choose(now, idle_timeout, candidates, policy, queued)
    return None if container is None else container.order


SPREAD = Policy(max_concurrency=10, target_concurrency=5)
PACK = Policy(max_concurrency=10, target_concurrency=5, placement=Placement.PACK)


class SpreadTests(TestCase):
    def test_the_one_with_the_fewest_sessions(self) -> None:
        self.assertEqual(chosen(containers(5, 3, 4), SPREAD), 1)

    def test_the_oldest_of_equals(self) -> None:
        self.assertEqual(chosen(containers(5, 3, 3), SPREAD), 1)

    def test_among_the_fullest_that_have_places_enough_at_their_target_so_that_the_others_run_empty(self) -> None:
        self.assertEqual(chosen(containers(3, 1, 2), SPREAD), 2)  # 6 sessions and a start need two containers
        self.assertEqual(chosen(containers(1, 1, 1), SPREAD), 0)
        self.assertEqual(chosen(containers(5, 0, 4, 1), SPREAD), 3)

    def test_full_ones_and_those_above_target_count_with_what_they_hold(self) -> None:
        self.assertEqual(chosen(containers(10, 0, 0, 0), SPREAD), 1)  # 11 need three, and two of them are empty
        self.assertEqual(chosen(containers(8, 1, 5), SPREAD), 1)

    def test_those_who_wait_count(self) -> None:
        self.assertEqual(chosen(containers(4, 0), SPREAD, queued=1), 0)
        self.assertEqual(chosen(containers(4, 0), SPREAD, queued=2), 1)

    def test_those_that_stay_in_any_case_are_used(self) -> None:
        self.assertEqual(chosen(containers(3, 0, 1), attrs.evolve(SPREAD, min_containers=3)), 1)

    def test_a_lowered_maximum_hides_no_place(self) -> None:
        self.assertEqual(chosen(containers(10, 10, 4), attrs.evolve(SPREAD, max_containers=2)), 2)

    @given(st.lists(st.integers(0, 10), min_size=1, max_size=8), st.integers(1, 10), st.integers(1, 40))
    def test_a_start_is_placed_wherever_there_is_a_place_and_below_target_if_one_is_to_be_left_alone(
        self, loads: list[int], target: int, queued: int
    ) -> None:
        policy = Policy(max_concurrency=10, target_concurrency=target)
        where = chosen(containers(*loads), policy, queued=queued)
        self.assertEqual(where is None, all(load == 10 for load in loads))
        if where is not None and any(load < loads[where] for load in loads):
            self.assertLess(loads[where], target)

    def test_above_target_where_there_is_no_other(self) -> None:
        self.assertEqual(chosen(containers(9, 7, 8), SPREAD), 1)


class PackTests(TestCase):
    def test_the_fullest_below_target(self) -> None:
        self.assertEqual(chosen(containers(1, 4, 5, 3), PACK), 1)

    def test_the_oldest_of_equals(self) -> None:
        self.assertEqual(chosen(containers(1, 4, 4), PACK), 1)

    def test_the_emptiest_where_none_is_below_target(self) -> None:
        self.assertEqual(chosen(containers(9, 7, 8), PACK), 1)


class CandidateTests(TestCase):
    def test_a_full_one_is_none(self) -> None:
        self.assertIsNone(chosen(containers(10, 10), SPREAD))

    def test_what_was_granted_a_moment_ago_counts(self) -> None:
        candidates = containers(9, 10)
        candidates[0].grants.add(SessionId("sd-1"))
        self.assertIsNone(chosen(candidates, SPREAD))

    def test_only_ready_ones_that_are_not_asked_to_close(self) -> None:
        candidates = containers(0, 0, 0, 0, 5)
        candidates[0].state = ContainerState.STARTING
        candidates[1].state = ContainerState.DRAINING
        candidates[2].state = ContainerState.STOPPING
        candidates[3].close_asked = True
        self.assertEqual(chosen(candidates, SPREAD), 4)

    def test_the_age_limit_must_be_farther_away_than_the_idle_timeout(self) -> None:
        self.assertEqual(chosen(containers(0), SPREAD, now=89.9), 0)
        self.assertIsNone(chosen(containers(0), SPREAD, now=90.0))

    def test_the_limit_is_the_containers_own_not_the_newest_policys(self) -> None:
        self.assertIsNone(chosen(containers(2, limit=2), SPREAD))

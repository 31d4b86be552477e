"""How many containers there should be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.core.scaling import wanted_open
from sticky.core.values import Policy


class WantedTests(TestCase):
    def test_nobody_plays_nothing_runs(self) -> None:
        self.assertEqual(wanted_open(Policy(buffer_containers=2), 0, 0), 0)

    def test_the_minimum_runs_without_demand_and_without_the_buffer(self) -> None:
        self.assertEqual(wanted_open(Policy(min_containers=1, buffer_containers=2), 0, 0), 1)

    def test_sessions_and_queued_starts_are_demand_alike(self) -> None:
        policy = Policy(max_concurrency=10)
        self.assertEqual(
            [wanted_open(policy, 10, 0), wanted_open(policy, 10, 1), wanted_open(policy, 0, 21)], [1, 2, 3]
        )

    def test_the_target_counts_not_the_maximum(self) -> None:
        self.assertEqual(wanted_open(Policy(max_concurrency=10, target_concurrency=4), 5, 0), 2)

    def test_any_demand_brings_the_buffer(self) -> None:
        self.assertEqual(wanted_open(Policy(max_concurrency=10, buffer_containers=2), 1, 0), 3)

    def test_never_more_than_the_maximum(self) -> None:
        self.assertEqual(wanted_open(Policy(max_concurrency=1, max_containers=3, buffer_containers=2), 50, 50), 3)

    @given(st.integers(1, 1000), st.integers(0, 10**9), st.integers(0, 10**6))
    def test_what_is_wanted_is_enough_and_one_less_would_not_be(self, target: int, sessions: int, queued: int) -> None:
        policy = Policy(target_concurrency=target, max_containers=10**12)
        wanted = wanted_open(policy, sessions, queued)
        self.assertGreaterEqual(wanted * target, sessions + queued)
        self.assertLess((wanted - 1) * target, max(sessions + queued, 1))

"""Failed container starts: when the next attempt may be made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.core.backoff import LONGEST, Backoff


class BackoffTests(TestCase):
    def test_delays_double_up_to_a_bound(self) -> None:
        backoff = Backoff(lambda: 0.5)
        delays = []
        for _ in range(9):
            backoff.failed(0.0, "exited")
            delays.append(backoff.next_attempt)
        self.assertEqual(delays, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0])

    def test_hopeless_after_three_failures_in_a_row(self) -> None:
        backoff = Backoff(lambda: 0.0)
        seen = []
        for _ in range(3):
            backoff.failed(0.0, "exited")
            seen.append(backoff.hopeless)
        self.assertEqual(seen, [False, False, True])

    def test_one_success_forgets_everything(self) -> None:
        backoff = Backoff(lambda: 0.0)
        for _ in range(5):
            backoff.failed(0.0, "exited")
        backoff.succeeded()
        self.assertEqual((backoff.failures, backoff.hopeless, backoff.next_attempt), (0, False, 0.0))

    @given(st.integers(1, 5000), st.floats(0, 1, exclude_max=True), st.floats(0, 1e9))
    def test_jitter_stays_within_half_and_one_and_a_half_of_the_delay(
        self, failures: int, jitter: float, now: float
    ) -> None:
        backoff = Backoff(lambda: jitter)
        backoff.failures = failures - 1
        backoff.failed(now, "exited")
        delay = min(2.0 ** min(failures - 1, 100), LONGEST)
        self.assertGreater(backoff.next_attempt, now)
        self.assertTrue(0.5 * delay - 1e-6 <= backoff.next_attempt - now <= 1.5 * delay + 1e-6)

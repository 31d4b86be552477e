"""Killing goes on until nobody new is found, and ends."""

from __future__ import annotations

import os
import signal

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import killing


class KillingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.patch(os, "kill", self.kill)

    def kill(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))
        if pid == 13:
            raise ProcessLookupError
        if pid == 17:
            raise PermissionError

    def test_who_was_forked_meanwhile_is_killed_too_and_nobody_twice(self) -> None:
        looks = iter([[1, 2], [2, 3], [2, 3]])
        self.assertEqual(killing.kill_all(lambda: next(looks)), {1, 2, 3})
        self.assertEqual(sorted(self.sent), [(1, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGKILL)])

    def test_who_is_gone_or_out_of_reach_does_not_stop_it(self) -> None:
        killing.kill([13, 17, 19], signal.SIGTERM)
        self.assertEqual(self.sent, [(13, signal.SIGTERM), (17, signal.SIGTERM), (19, signal.SIGTERM)])

    def test_a_source_that_never_dries_up_is_given_up(self) -> None:
        numbers = iter(range(1000, 2000))
        self.assertLess(len(killing.kill_all(lambda: [next(numbers)])), 100)

"""The figures of a load test, and its report."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.cli import load
from sticky.cli.load import Figures, Plan, summary
from tests.cli.daemon import CommandCase


class SummaryTests(SynchronousTestCase):
    def test_percentiles_are_times_that_were_seen(self) -> None:
        self.assertEqual(
            summary([float(number) for number in range(100)]),
            {"count": 100, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 99.0},
        )
        self.assertEqual(summary([]), {"count": 0, "p50": None, "p90": None, "p99": None, "max": None})

    @given(st.lists(st.floats(0, 1000), min_size=1))
    def test_they_are_in_order(self, times: list[float]) -> None:
        found = summary(times)
        values = [found[name] for name in ("p50", "p90", "p99", "max")]
        self.assertEqual(values, sorted(values))
        self.assertEqual(found["max"], round(max(times), 6))


class CommandTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        self.plans: list[Plan] = []
        self.figures = Figures()
        self.interrupted = False

        def play(plan: Plan, terminal: object) -> tuple[object, bool]:
            self.plans.append(plan)
            return self.figures.report(2.0), self.interrupted

        self.patch(load, "play", play)

    def test_a_report(self) -> None:
        self.figures.times["start"] += [0.001, 0.25]
        self.figures.most = 7
        said = self.sticky("loadtest", "game", "--sessions", "2", "--path", "/ws")
        self.assertRegex(said, r"start +2 +250.0 ms +250.0 ms +250.0 ms +250.0 ms\n")
        self.assertIn("connect        0  ", said)
        self.assertIn("2.0 s, 7 connections at once at most", said)
        (plan,) = self.plans
        self.assertEqual((plan.url, plan.path, plan.sessions), ("http://127.0.0.1:8080", "/ws", 2))
        self.assertNotIn("ws-secret", repr(plan))

    def test_failures_are_counted_and_are_its_status(self) -> None:
        self.figures.failures["start: 503 queue_full"] += 3
        self.sticky("loadtest", status=1)
        self.assertEqual(self.captured.err, "sticky: 3 times: start: 503 queue_full\n")
        self.assertEqual(
            json.loads(self.sticky("loadtest", "--json", status=1))["failures"], {"start: 503 queue_full": 3}
        )

    def test_ctrl_c_reports_and_is_130(self) -> None:
        self.interrupted = True
        self.assertIn("connections at once", self.sticky("loadtest", status=130))

    def test_no_proxy_token(self) -> None:
        self.give_bearer(None)
        self.assertIn("Set STICKY_PROXY_TOKEN", self.complaint("loadtest", status=2))

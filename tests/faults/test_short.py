"""The short form of fault injection: some minutes, with one process and with workers. The long one: `python -m tests.faults.run`."""

from __future__ import annotations

import asyncio
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.faults.run import Plan, run

SEED = int(os.environ.get("STICKY_FAULTS_SEED", "1"))
KILLS = int(os.environ.get("STICKY_FAULTS_KILLS", "8"))


class ShortTests(SynchronousTestCase):
    def survives(self, plan: Plan) -> None:
        report = asyncio.run(run(plan))
        text = "\n".join(report.lines())
        self.assertEqual(report.model.broken, [], text)
        self.assertEqual(report.orphans, 0, text)
        self.assertGreater(report.model.starts, 100, text)
        self.assertGreaterEqual(report.faults["daemon"], plan.daemon_kills, text)

    def test_one_process(self) -> None:
        self.survives(Plan(SEED, KILLS))

    def test_with_workers(self) -> None:
        self.survives(Plan(SEED + 1, KILLS, workers=2))

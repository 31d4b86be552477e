"""The short form of fault injection: a minute or two, with one process and with workers. The long one: `python -m tests.faults.run`."""

from __future__ import annotations

import asyncio
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.faults.report import Plan
from tests.faults.run import run

SEED = int(os.environ.get("STICKY_FAULTS_SEED", "1"))
KILLS = int(os.environ.get("STICKY_FAULTS_KILLS", "6"))  #: with which every kind of fault comes up
SECONDS = 45.0  #: for each test, after which a slow machine begins no further fault


class ShortTests(SynchronousTestCase):
    def survives(self, plan: Plan) -> None:
        report = asyncio.run(run(plan))
        text = "\n".join(report.lines())
        self.assertEqual(report.model.broken, [], text)
        self.assertEqual((report.strays, report.orphans), ([], 0), text)
        self.assertGreater(report.model.starts, 20, text)
        self.assertGreaterEqual(report.faults["daemon"], 1, text)

    def test_one_process(self) -> None:
        self.survives(Plan(SEED, KILLS, seconds=SECONDS))

    def test_with_workers(self) -> None:
        self.survives(Plan(SEED + 1, KILLS, workers=2, seconds=SECONDS))

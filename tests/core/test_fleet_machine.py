"""Runs the Hypothesis machine of a fleet, and shows that it is not vacuous: every effect and every table row occurs."""

from __future__ import annotations

import os
from collections import Counter
from typing import get_args

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from twisted.trial.unittest import TestCase

from sticky.core import effects
from tests.core.machine import FleetMachine, SlowMailMachine
from tests.core.recording import recorded_tables

LONG = bool(os.environ.get("STICKY_LONG_TESTS"))
# Derandomized in the short run: the coverage shown below is then a fact about the machine, not about luck.
SETTINGS = settings(
    max_examples=3000 if LONG else 400,
    stateful_step_count=80,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=list(HealthCheck),
)


class FleetInvariantTests(TestCase):
    """The ten invariants of semantics.md, with mail at once and with mail late and out of order."""

    timeout = 1800

    def _drive(self, machine: type[FleetMachine]) -> set[str]:
        machine.seen_effects = Counter()
        with recorded_tables() as tables:
            run_state_machine_as_test(machine, settings=SETTINGS)  # type: ignore[no-untyped-call]
        return {f"{name}: {row}" for name, table in tables.items() for row in table.missed()}

    def test_invariants_hold_when_mail_is_prompt_and_every_effect_and_row_occurs(self) -> None:
        missed = self._drive(FleetMachine)
        # A ledger that is asked at once never lets admission down: these rows are the slow machine's.
        self.assertEqual(missed - {"start: PLACED+JOIN", "start: PLACED+BOUNCE"}, set())
        unseen = {kind.__name__ for kind in get_args(effects.Effect)} - set(FleetMachine.seen_effects)
        self.assertEqual(unseen, set())

    def test_invariants_hold_when_mail_is_late_and_out_of_order_and_every_row_occurs(self) -> None:
        self.assertEqual(self._drive(SlowMailMachine), set())
        unseen = {kind.__name__ for kind in get_args(effects.Effect)} - set(SlowMailMachine.seen_effects)
        self.assertEqual(unseen, set())

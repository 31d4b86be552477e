"""Runs the Hypothesis machine of a fleet, and shows that it is not vacuous: every effect and every table row occurs."""

from __future__ import annotations

import os
from collections import Counter
from typing import get_args

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from twisted.trial.unittest import TestCase

from sticky.core import effects
from tests.core.machine import FleetMachine
from tests.core.plain_machine import PlainMachine
from tests.core.recording import recorded_tables
from tests.core.slow_machine import SlowMailMachine

LONG = bool(os.environ.get("STICKY_LONG_TESTS"))
# Whoever breaks the core on purpose wants to know that it shows, not the shortest way to show it.
SHRINK = not os.environ.get("STICKY_MUTATION")
# Derandomized in the short run: the coverage shown below is then a fact about the machine, not about luck.
#: Of a round.
EXAMPLES = 3000 if LONG else 50 if SHRINK else 300
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=80,
    deadline=None,
    derandomize=not LONG,
    phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
    suppress_health_check=list(HealthCheck),
)
#: Other examples are tried where the first ones have not met every situation: a new rule makes the others rarer.
ROUNDS = 9
#: Of a fleet with sessions.
EFFECTS = {kind.__name__ for kind in get_args(effects.Effect)} - {"CutRequests"}
#: What the books note besides effects and refusals: the hard cases that the checks are about.
SITUATIONS = {
    "joined",
    "joined a held start",
    "found by key",
    "found by name",
    "released a live name",
    "released an expired name",
    "refused a name whose session drains",
    "cut with a request in flight",
    "tried again",
    "a late timer had something to do",
    "kept sessions beyond a lowered limit",
    "was unhealthy",
    "waited too long for a turn",
    "a waiter was refused by the end",
    "too many waited for a turn",
    "left the line",
    "died young",
    "proved by living",
    "proved in the end",
    "stopped: startup_timeout",
    "stopped: scaled_down",
    "stopped: too_old",
    "stopped: replaced",
    "stopped: asked",
    "stopped: daemon_stops",
}
REFUSALS = {
    "BadIdleTimeout",
    "ContainersFailing",
    "KeyReused",
    "QueueFull",
    "QueueTimedOut",
    "SessionExpired",
    "ShuttingDown",
    "TooManySessions",
}
#: Seen only where mail is prompt: with slow mail the books do not foretell them.
EXACT = {
    "SPREAD had a choice",
    "PACK had a choice",
    "SPREAD let one run empty",
    "passed over",
    "scaled down",
    "waited for the scale-up window",
}

#: Of a plain Server.
PLAIN = {
    "CutRequests",
    "KillContainer",
    "NoContainerReady",
    "ServerBusy",
    "SpawnContainer",
    "TerminateContainer",
    "an old one served",
    "cut requests in flight",
    "died young",
    "proved by living",
    "proved in the end",
    "scaled down",
    "tried again",
    "waited for the scale-up window",
}


#: Letters that must have been delivered late, each of them.
LETTERS = {
    "Admit delivered",
    "Admitted delivered",
    "Full delivered",
    "Closed delivered for a session",
    "Close delivered",
    "Closed delivered",
    "HasSessions delivered",
    "SessionLeft delivered",
    "SessionDraining delivered",
}


class FleetInvariantTests(TestCase):
    """The ten invariants of semantics.md, with mail at once and with mail late and out of order."""

    timeout = 1800

    def _drive(self, machine: type[FleetMachine] | type[PlainMachine], expected: set[str]) -> set[str]:
        machine.seen = Counter()
        with recorded_tables() as tables:
            for number in range(ROUNDS):
                run_state_machine_as_test(seed(number)(machine), settings=SETTINGS)
                missing = expected - {name for name, times in machine.seen.items() if times}
                if not missing:
                    break
        self.assertEqual(missing, set())
        return {f"{name}: {row}" for name, table in tables.items() for row in table.missed()}

    def test_invariants_hold_when_mail_is_prompt_and_every_effect_and_row_occurs(self) -> None:
        missed = self._drive(FleetMachine, EFFECTS | SITUATIONS | REFUSALS | EXACT)
        # A ledger that is asked at once never lets admission down: these rows are the slow machine's.
        self.assertEqual(missed - {"start: PLACED+JOIN", "start: PLACED+BOUNCE"}, set())

    def test_invariants_hold_when_mail_is_late_and_out_of_order_and_every_row_occurs(self) -> None:
        self.assertEqual(self._drive(SlowMailMachine, EFFECTS | SITUATIONS | REFUSALS | LETTERS), set())

    def test_invariants_hold_without_sessions(self) -> None:
        self._drive(PlainMachine, PLAIN)

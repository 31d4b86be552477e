"""When a container counts as ready, on a clock of the test's own."""

from __future__ import annotations

import errno

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.readiness import LONGEST, SHORTEST, Readiness
from sticky.isticky import Address, TCPAddress

MINE = TCPAddress("127.0.0.1", 20_000)
FIXED = TCPAddress("127.0.0.1", 8000)


class ReadinessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.open: set[Address] = set()
        self.owned: set[Address] = set()
        self.knocks: list[float] = []
        self.looks_at_owner: list[float] = []
        self.probes: list[Deferred[int]] = []
        self.cancelled: list[Deferred[int]] = []
        self.found: list[Address] = []

    def knock(self, address: Address) -> bool:
        self.knocks.append(self.clock.seconds())
        return address in self.open

    def owns(self, address: Address) -> bool:
        self.looks_at_owner.append(self.clock.seconds())
        return address in self.owned

    def probe(self, address: Address) -> Deferred[int]:
        self.probes.append(Deferred(self.cancelled.append))
        return self.probes[-1]

    def watch(self, *candidates: Address, probe: bool = False) -> Readiness:
        readiness = Readiness(
            self.clock, candidates or (MINE,), self.knock, self.owns, self.probe if probe else None, self.found.append
        )
        readiness.start()
        return readiness

    def run_for(self, seconds: float) -> None:
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.clock.advance(0.001)

    def test_an_open_port_of_its_own_is_found_at_the_first_look(self) -> None:
        self.open, self.owned = {MINE}, {MINE}
        self.watch()
        self.assertEqual(self.found, [MINE])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_port_that_opens_early_is_seen_within_milliseconds(self) -> None:
        self.watch()
        self.run_for(0.1)
        self.open, self.owned = {MINE}, {MINE}
        self.run_for(0.005)
        self.assertEqual(self.found, [MINE])

    def test_while_no_descriptor_is_left_it_goes_on_looking(self) -> None:
        self.open, self.owned = {MINE}, {MINE}
        for step in ("knock", "owns"):
            works = getattr(self, step)

            def fails(address: Address) -> bool:
                raise OSError(errno.EMFILE, "Too many open files")

            setattr(self, step, fails)
            self.found.clear()
            readiness = self.watch()
            self.run_for(1)
            self.assertEqual(self.found, [], step)
            setattr(self, step, works)
            readiness._knock, readiness._owned = self.knock, self.owns
            self.run_for(0.02)
            self.assertEqual(self.found, [MINE], step)

    def test_looks_become_rarer_but_never_rarer_than_the_longest_pause(self) -> None:
        self.watch()
        self.run_for(10)
        pauses = [late - early for early, late in zip(self.knocks, self.knocks[1:], strict=False)]
        self.assertGreaterEqual(min(pauses), SHORTEST - 1e-9)
        self.assertLess(max(pauses), LONGEST + 0.002)
        self.assertLess(len(self.knocks), 1100)

    def test_nobody_looks_for_an_owner_while_nobody_listens(self) -> None:
        self.watch()
        self.run_for(1)
        self.assertEqual(self.looks_at_owner, [])

    def test_a_foreign_listener_never_counts_and_costs_little(self) -> None:
        self.open = {MINE}
        self.watch()
        self.run_for(30)
        self.assertEqual(self.found, [])
        self.assertLess(len(self.looks_at_owner), 40)

    def test_a_port_that_changes_hands_counts_then(self) -> None:
        self.open = {MINE}
        self.watch()
        self.run_for(1)
        self.owned = {MINE}
        self.run_for(1.1)
        self.assertEqual(self.found, [MINE])

    def test_a_foreign_listener_on_one_address_does_not_hide_another(self) -> None:
        self.open = {FIXED}
        self.watch(MINE, FIXED)
        self.run_for(0.1)
        self.open, self.owned = {FIXED, MINE}, {MINE}
        self.run_for(0.01)
        self.assertEqual(self.found, [MINE])

    def test_the_preferred_address_wins_when_both_are_its_own(self) -> None:
        self.open = self.owned = {FIXED, MINE}
        self.watch(MINE, FIXED)
        self.assertEqual(self.found, [MINE])

    def test_a_fixed_port_counts(self) -> None:
        self.open = self.owned = {FIXED}
        self.watch(MINE, FIXED)
        self.assertEqual(self.found, [FIXED])

    def test_with_a_probe_it_is_ready_when_the_answer_is_good(self) -> None:
        self.open = self.owned = {MINE}
        self.watch(probe=True)
        self.assertEqual(self.found, [])
        self.probes[0].callback(399)
        self.assertEqual(self.found, [MINE])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_bad_answers_and_failures_of_the_probe_mean_later(self) -> None:
        self.open = self.owned = {MINE}
        self.watch(probe=True)
        self.probes[0].callback(503)
        self.run_for(0.1)
        self.probes[1].errback(ConnectionDone())
        self.run_for(0.1)
        self.assertEqual(self.found, [])
        self.probes[2].callback(200)
        self.assertEqual(self.found, [MINE])

    def test_one_probe_at_a_time(self) -> None:
        self.open = self.owned = {MINE}
        self.watch(probe=True)
        self.run_for(5)
        self.assertEqual(len(self.probes), 1)

    def test_foreign_servers_are_not_probed(self) -> None:
        self.open = {MINE}
        self.watch(probe=True)
        self.run_for(2)
        self.assertEqual(self.probes, [])

    def test_after_stop_nothing_is_looked_at_or_found(self) -> None:
        readiness = self.watch()
        readiness.stop()
        readiness.stop()
        self.open = self.owned = {MINE}
        self.run_for(1)
        self.assertEqual((self.found, len(self.knocks)), ([], 1))

    def test_stop_gives_up_a_probe_that_is_under_way(self) -> None:
        self.open = self.owned = {MINE}
        readiness = self.watch(probe=True)
        readiness.stop()
        self.assertEqual(self.cancelled, self.probes)
        self.assertEqual(self.found, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""The edge's one timer: who is late is told, and nobody suffers from another's fault."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from sticky.edge.sweep import AFTER_A_FAULT, INTERVAL, NEVER, STANDSTILL, Sweep


@attrs.define(eq=False)
class Entry:
    """Notes when it was told, and fails if it is to."""

    deadline: float
    fails: bool = False
    takes_along: Callable[[], object] = bool
    told: list[float] = attrs.field(factory=list)

    def overdue(self, now: float) -> None:
        self.told.append(now)
        self.takes_along()
        if self.fails:
            raise ValueError("on purpose")
        self.deadline = NEVER

    def put_off(self, seconds: float) -> None:
        self.deadline += seconds


class SweepTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.sweep = Sweep(self.clock)

    def add(self, deadline: float, fails: bool = False) -> Entry:
        entry = Entry(deadline, fails)
        self.sweep.add(entry)
        return entry

    def test_a_deadline_is_told_at_most_half_a_second_late_and_never_early(self) -> None:
        entries = [self.add(tenths / 10) for tenths in range(1, 40)]
        for _ in range(50):
            self.clock.advance(0.1)
        for entry in entries:
            (told,) = entry.told
            self.assertTrue(entry.deadline is NEVER and told <= 4.5)
        self.assertLessEqual(max(entry.told[0] for entry in entries), 3.9 + INTERVAL)

    def test_the_timer_runs_only_while_there_are_entries(self) -> None:
        entry = self.add(NEVER)
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.sweep.discard(entry)
        self.sweep.discard(entry)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_an_entry_that_raises_is_logged_and_the_others_and_the_timer_go_on(self) -> None:
        broken = [self.add(0.1, fails=True) for _ in range(3)]
        good = [self.add(0.1), self.add(2.0)]
        for _ in range(6):
            self.clock.advance(INTERVAL)
        self.assertEqual([len(entry.told) for entry in good], [1, 1])
        self.assertEqual([len(entry.told) for entry in broken], [1, 1, 1])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 3)
        for _ in range(int(AFTER_A_FAULT / INTERVAL)):
            self.clock.advance(INTERVAL)  # it is not forgotten, nor does it fill the log
        self.assertEqual([len(entry.told) for entry in broken], [2, 2, 2])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 3)

    def test_an_entry_that_another_ones_end_took_along_is_not_told(self) -> None:
        def end() -> None:
            self.sweep.discard(first)
            self.sweep.discard(second)

        first, second = Entry(0.1, takes_along=end), Entry(0.1, takes_along=end)
        self.sweep.add(first)
        self.sweep.add(second)
        self.clock.advance(INTERVAL)
        self.assertEqual(len(first.told + second.told), 1)
        self.assertEqual((len(self.sweep), self.clock.getDelayedCalls()), (0, []))

    def test_time_in_which_the_process_stood_still_counts_for_nobody(self) -> None:
        entries = [self.add(seconds) for seconds in (0.2, 1.0, 30.0, NEVER)]
        self.clock.advance(INTERVAL + 600.0)  # its timers are late by 600 s
        self.assertEqual([entry.told for entry in entries], [[], [], [], []])
        self.clock.advance(INTERVAL)
        self.assertEqual([len(entry.told) for entry in entries], [1, 1, 0, 0])
        for _ in range(57):
            self.clock.advance(INTERVAL)
        self.assertEqual([len(entry.told) for entry in entries], [1, 1, 0, 0])
        self.clock.advance(INTERVAL)
        self.assertEqual([len(entry.told) for entry in entries], [1, 1, 1, 0])
        self.assertEqual(entries[2].told, [630.0])

    def test_one_that_is_only_a_little_late_puts_nothing_off(self) -> None:
        entry = self.add(1.0)
        self.clock.advance(INTERVAL + STANDSTILL * 0.9)
        self.assertEqual(entry.told, [INTERVAL + STANDSTILL * 0.9])

    def test_a_fault_of_one_that_is_put_off_is_not_another_ones(self) -> None:
        class Broken(Entry):
            def put_off(self, seconds: float) -> None:
                raise ValueError("on purpose")

        self.sweep.add(Broken(1.0))
        entry = self.add(1.0)
        self.clock.advance(600.0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual((entry.told, entry.deadline), ([], 600.5))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

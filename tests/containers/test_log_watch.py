"""How often logs are looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky.containers.log_watch import CLOSELY, EVERY, SAY_EVERY, LogWatch
from sticky.core.values import ContainerId

ONE, TWO = ContainerId("ct-1"), ContainerId("ct-2")
LIMIT = 80_000


@implementer(ILogObserver)
class Warnings:
    """Whose logs were said to be too long."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def __call__(self, event: dict[str, Any]) -> None:
        if event.get("log_namespace") == "sticky.containers":
            self.of.append(str(event["container"]))


class LogWatchTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.watch = LogWatch(self.clock, LIMIT)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.warnings = Warnings()
        globalLogPublisher.addObserver(self.warnings)
        self.addCleanup(globalLogPublisher.removeObserver, self.warnings)

    def path(self, container: ContainerId) -> Path:
        return self.folder / container

    def write(self, container: ContainerId, size: int) -> None:
        with self.path(container).open("ab") as log:
            log.write(b"a line\n" * (size // 7))

    def size(self, container: ContainerId) -> int:
        return os.stat(self.path(container)).st_size

    def next_look(self) -> float:
        (timer,) = self.clock.getDelayedCalls()
        return timer.getTime() - self.clock.seconds()

    def test_what_is_beyond_the_bound_is_dropped_at_the_next_look(self) -> None:
        self.watch.add(ONE, self.path(ONE))
        self.write(ONE, 2 * LIMIT)
        self.clock.advance(EVERY)
        self.assertLess(self.size(ONE), LIMIT)
        self.assertEqual(self.warnings.of, [ONE])

    def test_one_that_grows_fast_is_looked_at_closely_until_it_rests(self) -> None:
        for one in (ONE, TWO):
            self.watch.add(one, self.path(one))
        self.clock.advance(EVERY)
        self.assertEqual(self.next_look(), EVERY)
        self.write(ONE, LIMIT // 4)
        self.clock.advance(EVERY)
        self.assertAlmostEqual(self.next_look(), CLOSELY)
        for _ in range(10):
            self.write(ONE, LIMIT // 4)
            self.clock.advance(CLOSELY)
            self.assertLessEqual(self.size(ONE), LIMIT)
            self.assertAlmostEqual(self.next_look(), CLOSELY)
        self.clock.advance(CLOSELY)
        self.assertAlmostEqual(self.next_look(), EVERY)

    def test_a_flood_is_said_once_a_minute(self) -> None:
        self.watch.add(ONE, self.path(ONE))
        for _ in range(5):
            self.write(ONE, 2 * LIMIT)
            self.clock.advance(EVERY)
        self.assertEqual(self.warnings.of, [ONE])
        self.clock.advance(SAY_EVERY)
        self.write(ONE, 2 * LIMIT)
        self.clock.advance(EVERY)
        self.assertEqual(self.warnings.of, [ONE, ONE])

    def test_the_end_of_a_container_bounds_its_log_and_the_last_ones_stops_the_timer(self) -> None:
        for one in (ONE, TWO):
            self.watch.add(one, self.path(one))
        self.write(ONE, 2 * LIMIT)
        self.watch.remove(ONE)
        self.assertLess(self.size(ONE), LIMIT)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.watch.remove(TWO)
        self.watch.remove(TWO)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_log_that_somebody_removed_is_no_trouble(self) -> None:
        self.watch.add(ONE, self.path(ONE))
        self.clock.advance(EVERY)
        self.write(ONE, LIMIT // 2)
        self.clock.advance(EVERY)
        self.path(ONE).unlink()
        self.clock.advance(EVERY)
        self.write(ONE, 2 * LIMIT)
        self.clock.advance(EVERY)
        self.assertLess(self.size(ONE), LIMIT)

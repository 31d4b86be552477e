"""The watch over a limited container's memory, on counters that are plain files."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.memory_ends import MemoryEnds
from sticky.containers.memory_limit import MemoryKills
from sticky.containers.memory_watch import MemoryWatch
from sticky.core.values import ContainerId

ONE = ContainerId("ct-one")


class WatchCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.exceeded: list[float] = []
        folder = Path(self.mktemp())
        folder.mkdir()
        self.counter = folder / "memory.events"  # version 2: its own end tells, so nothing is asked of the kernel
        self.write(0)

    def write(self, kills: int) -> None:
        self.counter.write_text(f"oom 3\noom_kill {kills}\n")

    def exceed(self) -> None:
        self.exceeded.append(self.clock.seconds())


class WatchTests(WatchCase):
    def watch(self) -> MemoryWatch:
        watch = MemoryWatch(self.clock, self.counter, self.exceed)  # type: ignore[arg-type]  # no descriptor, no reactor
        watch.start()
        return watch

    def test_what_was_counted_before_is_heard_of_once_and_never_from_within(self) -> None:
        self.write(1)
        self.watch()
        self.assertEqual(self.exceeded, [])
        self.clock.advance(0)
        self.clock.advance(10)
        self.assertEqual(self.exceeded, [0.0])

    def test_nothing_counted_is_nothing_said(self) -> None:
        self.watch()
        self.clock.advance(10)
        self.assertEqual(self.exceeded, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_after_its_end_it_says_nothing_and_ending_it_again_is_no_matter(self) -> None:
        self.write(1)
        watch = self.watch()
        watch.stop()
        watch.stop()
        self.clock.advance(10)
        self.assertEqual(self.exceeded, [])

    def test_a_kernel_that_does_not_tell_is_an_error_of_the_start(self) -> None:
        counter = self.counter.with_name("memory.oom_control")
        counter.write_text("oom_kill 0\n")
        watch = MemoryWatch(self.clock, counter, self.exceed)  # type: ignore[arg-type]
        self.assertRaises(OSError, watch.start)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class EndsTests(WatchCase):
    def setUp(self) -> None:
        super().setUp()
        self.ends = MemoryEnds(self.clock, MemoryKills())  # type: ignore[arg-type]

    def test_in_a_group_of_its_own_every_kill_was_its(self) -> None:
        self.write(1)
        self.ends.own(ONE, self.counter, self.exceed)
        self.assertTrue(self.ends.explain(ONE))

    def test_whoever_is_forgotten_is_not_explained(self) -> None:
        self.write(1)
        self.ends.own(ONE, self.counter, self.exceed)
        self.ends.forget(ONE)
        self.ends.forget(ONE)
        self.clock.advance(10)
        self.assertFalse(self.ends.explain(ONE))
        self.assertEqual(self.exceeded, [])

    def test_a_watch_that_the_kernel_refuses_is_a_warning_and_the_end_still_explains(self) -> None:
        counter = self.counter.with_name("memory.oom_control")
        counter.write_text("oom_kill 1\n")
        self.ends.own(ONE, counter, self.exceed)
        self.assertTrue(self.ends.explain(ONE))

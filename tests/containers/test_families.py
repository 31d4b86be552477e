"""When it is looked whom containers have started."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.families import Families


class Looking:
    def __init__(self) -> None:
        self.looks = 0

    def look_around(self) -> None:
        self.looks += 1


class FamiliesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.families = Families(self.clock, 5.0)

    def test_each_is_looked_at_every_so_often_until_it_has_gone(self) -> None:
        one: Any = Looking()
        other: Any = Looking()
        self.families.add(one)
        self.clock.pump([5.0])
        self.families.add(other)
        self.clock.pump([5.0, 5.0])
        self.assertEqual((one.looks, other.looks), (3, 2))
        self.families.remove(one)
        self.clock.pump([5.0])
        self.assertEqual((one.looks, other.looks), (3, 3))

    def test_where_there_are_none_there_is_no_timer(self) -> None:
        one: Any = Looking()
        self.families.add(one)
        self.families.remove(one)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.families.remove(one)  # again: nothing happens

"""How many clients may be in, and what listeners do meanwhile."""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger
from twisted.trial.unittest import TestCase

from sticky.edge.doors import Doors, connections_possible
from sticky.edge.limits import EdgeLimits


class Listener:
    """A listening port that can pause."""

    reading = True

    def stopReading(self) -> None:
        self.reading = False

    def startReading(self) -> None:
        self.reading = True


class DoorsTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.events: list[LogEvent] = []
        limits = EdgeLimits(connections=3, connections_per_client=2)
        self.doors = Doors(limits, self.clock, Logger(observer=cast(ILogObserver, self.events.append)))
        self.listener = Listener()
        self.doors.add_listener(self.listener)

    def test_accepting_pauses_at_the_limit_and_resumes_below_it(self) -> None:
        for address in ("a", "b", "c"):
            self.assertTrue(self.listener.reading)
            self.assertTrue(self.doors.enter(address))
        self.assertFalse(self.listener.reading)
        late = Listener()
        self.doors.add_listener(late)
        self.assertFalse(late.reading)
        self.doors.left("b")
        self.assertTrue(self.listener.reading and late.reading)

    def test_shut_doors_stay_shut_whoever_leaves_and_full_ones_full_whoever_opens(self) -> None:
        for address in ("a", "b", "c"):
            self.doors.enter(address)
        self.doors.shut()
        late = Listener()
        self.doors.add_listener(late)
        self.doors.left("c")
        self.assertFalse(self.listener.reading or late.reading, "there is room, but they are shut")
        self.doors.enter("c")
        self.doors.open()
        self.assertFalse(self.listener.reading or late.reading, "they are open, but there is no room")
        self.doors.left("c")
        self.assertTrue(self.listener.reading and late.reading)

    def test_one_address_has_a_limit_of_its_own_but_a_unix_socket_has_none(self) -> None:
        self.assertEqual([self.doors.enter("a") for _ in range(3)], [True, True, False])
        self.doors.left("a")
        self.assertTrue(self.doors.enter("a"))
        for _ in range(2):
            self.doors.left("a")
        self.assertEqual([self.doors.enter("") for _ in range(3)], [True, True, True])

    def test_full_doors_are_logged_once_a_minute_at_most(self) -> None:
        for _ in range(6):
            for address in ("a", "b", "c"):
                self.doors.enter(address)
            for address in ("a", "b", "c"):
                self.doors.left(address)
            self.clock.advance(13)
        self.assertEqual(len(self.events), 2)

    def test_the_default_keeps_clear_of_the_limit_of_open_files(self) -> None:
        doors = Doors(EdgeLimits(), self.clock)
        self.assertEqual(doors.limit, connections_possible())
        self.assertEqual(doors.limit_per_client, max(1, doors.limit // 2))

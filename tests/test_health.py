"""Who looks after ready containers, with a clock that a test turns and containers that it plays."""

from __future__ import annotations

import errno
from functools import partial
from itertools import pairwise

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectBindError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import ContainerId
from sticky.health import EVERY, PATIENCE, Health, Patient
from sticky.isticky import Address, TCPAddress


def address(number: int) -> TCPAddress:
    return TCPAddress("127.0.0.1", 20_000 + number)


class HealthCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.ready: dict[int, str | None] = {}  #: number -> path of its probe
        self.deaf: set[Address] = set()
        self.halted: set[int] = set()
        self.asked: list[tuple[float, Address]] = []
        self.probes: list[tuple[Address, str, Deferred[int]]] = []
        self.ended: list[int] = []
        self.out_of_descriptors = False
        self.health = Health(self.clock, self.patients, self.knock, self.probe)
        self.health.startService()
        self.addCleanup(self.stop)

    def stop(self) -> None:
        self.health.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def patients(self) -> list[Patient]:
        def end(number: int) -> None:
            self.ended.append(number)
            self.ready.pop(number)

        return [
            Patient(
                ContainerId(f"ct-{number}"),
                address(number),
                path,
                partial(end, number),
                partial(self.halted.__contains__, number),
            )
            for number, path in self.ready.items()
        ]

    def knock(self, where: Address) -> bool:
        if self.out_of_descriptors:
            raise OSError(24, "Too many open files")
        self.asked.append((self.clock.seconds(), where))
        return where not in self.deaf

    def probe(self, where: Address, path: str) -> Deferred[int]:
        answer: Deferred[int] = Deferred()
        self.probes.append((where, path, answer))
        return answer

    def wait(self, seconds: int) -> None:
        self.clock.pump([1.0] * seconds)

    def times(self, number: int) -> list[float]:
        return [at for at, where in self.asked if where == address(number)]


class PortTests(HealthCase):
    def test_one_that_answers_is_asked_every_ten_seconds(self) -> None:
        self.ready[1] = None
        self.wait(60)
        times = self.times(1)
        self.assertEqual({b - a for a, b in pairwise(times)}, {EVERY})
        self.assertGreaterEqual(len(times), 5)
        self.assertEqual(self.ended, [])

    def test_more_than_ten_failures_in_a_row_a_second_apart_are_unhealthy(self) -> None:
        self.ready[1] = None
        self.wait(20)
        asked = len(self.asked)
        self.deaf.add(address(1))
        self.health.doubt(address(1))
        self.wait(PATIENCE)
        self.assertEqual((len(self.asked) - asked, self.ended), (10, []))
        self.wait(1)
        self.assertEqual((len(self.asked) - asked, self.ended), (11, [1]))
        self.wait(30)
        self.assertEqual((len(self.asked) - asked, self.ended), (11, [1]), "it is not asked again, nor ended again")

    def test_rounds_that_are_a_little_late_now_and_then_still_ask_every_second(self) -> None:
        self.ready[1] = None
        self.deaf.add(address(1))
        self.clock.pump([1.004, 1.0, 0.998, 1.001, 0.999] * 6)
        self.assertEqual(self.ended, [1])
        times = self.times(1)
        self.assertLess(times[-1] - times[0], PATIENCE + 0.1)

    def test_one_answer_in_between_begins_the_count_anew(self) -> None:
        self.ready[1] = None
        self.deaf.add(address(1))
        self.wait(3)
        self.health.doubt(address(1))
        self.wait(8)
        self.deaf.clear()
        self.wait(1)
        self.deaf.add(address(1))
        self.wait(15)
        self.assertEqual(self.ended, [])
        self.wait(6)
        self.assertEqual(self.ended, [1])

    def test_one_that_is_stopped_does_not_answer_though_its_port_is_open(self) -> None:
        self.ready.update({1: None, 2: None})
        self.wait(20)
        self.halted.update(self.ready)
        self.wait(PATIENCE)
        self.assertEqual(self.ended, [])
        self.halted.discard(1)
        self.wait(20)
        self.assertEqual(self.ended, [2])

    def test_a_thousand_failed_connects_are_one_question_a_second(self) -> None:
        self.ready[1] = None
        self.wait(12)
        asked = len(self.asked)
        for _ in range(1000):
            self.health.doubt(address(1))
        self.assertEqual(len(self.asked), asked)
        self.wait(1)
        self.assertEqual(len(self.asked), asked + 1)
        self.health.doubt(address(77))  # of nobody here

    def test_a_failed_connect_to_one_that_has_only_just_become_ready_is_not_forgotten(self) -> None:
        self.ready[1] = None
        self.deaf.add(address(1))
        self.health.doubt(address(1))
        self.wait(PATIENCE + 1)
        self.assertEqual(self.ended, [1])

    def test_one_that_drains_or_stops_is_left_alone(self) -> None:
        self.ready[1] = None
        self.deaf.add(address(1))
        self.wait(8)
        del self.ready[1]
        asked = len(self.asked)
        self.health.doubt(address(1))
        self.wait(60)
        self.assertEqual((len(self.asked), self.ended), (asked, []))

    def test_a_hundred_that_came_together_have_turns_spread_over_ten_seconds(self) -> None:
        self.ready.update(dict.fromkeys(range(100)))
        self.wait(31)
        last = [at for at, _ in self.asked if at > 21]
        self.assertEqual(len(last), 100)
        self.assertLessEqual(max(last.count(at) for at in last), 20)

    def test_our_own_want_of_descriptors_is_nobodys_illness(self) -> None:
        self.ready[1] = None
        self.out_of_descriptors = True
        self.wait(100)
        self.assertEqual(self.ended, [])

    def test_an_error_of_ours_does_not_end_the_rounds(self) -> None:
        self.ready[1] = None
        patients = self.health._patients
        self.patch(self.health, "_patients", lambda: int("nobody"))
        self.wait(1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.patch(self.health, "_patients", patients)
        self.wait(20)
        self.assertTrue(self.asked)


class ProbeTests(HealthCase):
    def setUp(self) -> None:
        super().setUp()
        self.ready[1] = "/up"
        self.wait(12)

    def test_a_status_under_400_is_good_and_others_are_not(self) -> None:
        (where, path, answer), *_ = self.probes
        self.assertEqual((where, path), (address(1), "/up"))
        answer.callback(204)
        for _ in range(PATIENCE + 1):
            self.assertEqual(self.ended, [])
            self.health.doubt(address(1))
            self.wait(1)
            self.probes[-1][2].callback(503)
        self.assertEqual(self.ended, [1])

    def test_a_question_that_could_not_be_asked_tells_nothing(self) -> None:
        for number in range(PATIENCE + 5):
            self.health.doubt(address(1))
            self.wait(1)
            self.probes[-1][2].errback(ConnectBindError(errno.EMFILE, "Too many open files"))
            self.assertEqual(len(self.probes), number + 1)
        self.assertEqual(self.ended, [])
        for _ in range(PATIENCE + 1):
            self.health.doubt(address(1))
            self.wait(1)
            self.probes[-1][2].errback(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
        self.assertEqual(self.ended, [1])

    def test_one_question_at_a_time(self) -> None:
        self.health.doubt(address(1))
        self.wait(30)
        self.assertEqual(len(self.probes), 1)
        self.probes[0][2].errback(TimeoutError())
        self.wait(1)
        self.assertEqual(len(self.probes), 2)

    def test_a_question_is_dropped_with_its_container_and_at_the_end(self) -> None:
        self.ready.clear()
        self.wait(1)
        self.assertTrue(self.probes[0][2].called)
        self.ready[2] = "/up"
        self.wait(12)
        self.health.stopService()
        self.assertTrue(self.probes[-1][2].called)
        self.health.startService()
        self.assertEqual(self.ended, [])

"""Worker processes: started, replaced with growing patience, killed when silent, and each with sockets of its own."""

from __future__ import annotations

import json
import socket
from typing import Any

from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from sticky.workers import pool
from sticky.workers.pool import Seat, Worker, Workers, share_out
from tests.fakes.descriptors import no_descriptors_left


class Process:
    """Notes the signals that it gets."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.signals: list[str] = []

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)


class Spawning(Clock):
    """A reactor as far as the pool knows it."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[tuple[Process, Any, list[str], dict[int, int]]] = []
        self.fails = False

    def spawnProcess(
        self, protocol: Any, executable: str, args: list[str], env: Any, childFDs: dict[int, int]
    ) -> Process:
        if self.fails:
            raise OSError(24, "Too many open files")
        process = Process(1000 + len(self.spawned))
        self.spawned.append((process, protocol, args, childFDs))
        return process


class FakeLink:
    """Hears what a worker is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, what: str, **fields: Any) -> None:
        self.told.append(what)


class FakeMember:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.link = FakeLink()


class FakeProxies:
    socket = "\0somewhere"
    arrived: Any = None
    left: Any = None


class PoolTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Spawning()
        self.sockets = [socket.socket() for _ in range(2)]
        for one in self.sockets:
            self.addCleanup(one.close)
        self.proxies = FakeProxies()
        self.workers = Workers(self.reactor, 2, self.proxies, lambda: {"tcp:1": self.sockets})  # type: ignore[arg-type]
        self.workers.startService()

    def worker(self, number: int) -> Worker:
        return self.workers.workers[number]

    def ends(self, worker: Worker) -> None:
        worker.processExited(Failure(ProcessTerminated(signal=9)))

    def hello(self, worker: Worker) -> FakeMember:
        assert worker.pid is not None
        member = FakeMember(worker.pid)
        self.proxies.arrived(member)
        return member

    def test_those_that_were_begun_before_the_start_are_not_begun_again(self) -> None:
        other = Workers(self.reactor, 2, self.proxies, lambda: {"tcp:1": self.sockets})  # type: ignore[arg-type]
        other.begin()
        begun = [worker.pid for worker in other.workers]
        self.assertTrue(all(other.came_up(pid) for pid in begun if pid is not None))
        self.assertFalse(other.came_up(0))
        other.startService()
        self.assertEqual([worker.pid for worker in other.workers], begun)

    def test_one_that_has_come_up_and_is_not_heard_yet_is_not_killed_for_that(self) -> None:
        worker = self.worker(0)
        assert worker.pid is not None
        self.workers.came_up(worker.pid)
        self.reactor.advance(pool.HELLO_WITHIN)
        self.assertEqual([process.signals for process, *_ in self.reactor.spawned], [[], ["KILL"]])

    def test_each_has_a_socket_of_its_own(self) -> None:
        for number, (_, _, args, descriptors) in enumerate(self.reactor.spawned):
            told = json.loads(args[-1])
            self.assertEqual(told["listeners"], [["tcp:1", 3]])
            self.assertEqual(descriptors[3], self.sockets[number].fileno())
            self.assertEqual(told["daemon"], "somewhere")

    def test_one_that_served_for_a_while_is_replaced_at_once(self) -> None:
        worker = self.worker(0)
        self.hello(worker)
        self.assertIs(worker.state, Seat.SERVING)
        self.reactor.advance(pool.HEALTHY_AFTER)
        self.ends(worker)
        self.reactor.advance(0)
        self.assertEqual(len(self.reactor.spawned), 3)
        self.assertEqual(self.reactor.spawned[2][3][3], self.sockets[0].fileno(), "it has the same socket")

    def test_one_that_dies_again_and_again_is_replaced_ever_more_slowly(self) -> None:
        worker = self.worker(0)
        waits = []
        for _ in range(12):
            self.ends(worker)
            before = self.reactor.seconds()
            (call,) = [call for call in self.reactor.getDelayedCalls() if call.func == worker.start]  # type: ignore[attr-defined]
            waits.append(call.getTime() - before)
            self.reactor.advance(waits[-1])
        self.assertEqual(waits[0], pool.SOONEST)
        self.assertEqual(waits[-1], pool.LATEST)
        self.assertEqual(waits, sorted(waits))

    def test_one_that_cannot_be_started_is_tried_again(self) -> None:
        self.reactor.fails = True
        self.ends(self.worker(0))
        self.reactor.advance(pool.SOONEST)
        self.assertIs(self.worker(0).state, Seat.EMPTY)
        self.reactor.fails = False
        self.reactor.advance(pool.SOONEST * 2)
        self.assertIs(self.worker(0).state, Seat.STARTING)

    def test_one_for_which_not_even_the_null_device_can_be_opened_is_started_later(self) -> None:
        self.ends(self.worker(0))
        with no_descriptors_left():
            self.reactor.advance(pool.SOONEST)
            self.assertIs(self.worker(0).state, Seat.EMPTY)
        self.reactor.advance(pool.SOONEST * 2)
        self.assertIs(self.worker(0).state, Seat.STARTING)

    def test_one_that_never_says_hello_is_killed(self) -> None:
        self.hello(self.worker(1))
        self.reactor.advance(pool.HELLO_WITHIN)
        self.assertEqual([process.signals for process, *_ in self.reactor.spawned], [["KILL"], []])

    def test_one_that_needs_longer_gets_longer_until_one_has_come_up(self) -> None:
        self.hello(self.worker(1))
        worker = self.worker(0)
        process = self.reactor.spawned[0][0]
        for patience in (30.0, 60.0, 120.0, 240.0, 480.0, 480.0):
            self.reactor.advance(patience - 0.1)
            self.assertEqual(process.signals, [], patience)
            self.reactor.advance(0.1)
            self.assertEqual(process.signals, ["KILL"], patience)
            self.ends(worker)
            self.reactor.advance(0)
            process = self.reactor.spawned[-1][0]
            self.assertEqual(process.pid, worker.pid)
        # The next one gets twice what this one needed, and at least 30 s.
        for needed, patience in ((400.0, 480.0), (50.0, 100.0), (1.0, 30.0)):
            self.reactor.advance(needed)
            self.hello(worker)
            self.ends(worker)
            self.reactor.advance(pool.SOONEST)
            process = self.reactor.spawned[-1][0]
            self.assertIs(worker.state, Seat.STARTING)
            self.reactor.advance(patience - 0.1 - pool.SOONEST)
            self.assertEqual(process.signals, [], needed)
            self.reactor.advance(0.1 + pool.SOONEST)
            self.assertEqual(process.signals, ["KILL"], needed)
            self.ends(worker)
            self.reactor.advance(0)

    def test_one_whose_link_is_lost_is_killed(self) -> None:
        member = self.hello(self.worker(0))
        self.proxies.left(member)
        self.assertEqual(self.reactor.spawned[0][0].signals, ["KILL"])

    def test_a_stranger_takes_nobodys_place(self) -> None:
        self.proxies.arrived(FakeMember(1))
        self.assertEqual([worker.state for worker in self.workers.workers], [Seat.STARTING] * 2)

    def test_the_stop_asks_then_kills_and_starts_no_other(self) -> None:
        asked = self.hello(self.worker(0))
        stopped = self.workers.stopService()
        self.assertEqual(asked.link.told, ["stop"])
        self.assertEqual(self.reactor.spawned[1][0].signals, ["KILL"], "one without a link hears of nothing else")
        self.reactor.advance(pool.STOPS_WITHIN)
        self.assertEqual(self.reactor.spawned[0][0].signals, ["KILL"])
        self.assertNoResult(stopped)
        for worker in self.workers.workers:
            self.ends(worker)
        self.successResultOf(stopped)
        self.reactor.advance(60)
        self.assertEqual(len(self.reactor.spawned), 2)

    def test_the_stop_while_one_waits_to_be_replaced(self) -> None:
        self.ends(self.worker(0))
        stopped = self.workers.stopService()
        self.ends(self.worker(1))
        self.successResultOf(stopped)
        self.reactor.advance(60)
        self.assertEqual(len(self.reactor.spawned), 2)

    def test_sockets_are_shared_out_so_that_none_is_left_alone(self) -> None:
        one, two = self.sockets
        self.assertEqual(share_out({"a": [one, two]}, 1), [[("a", one), ("a", two)]])
        self.assertEqual(share_out({"a": [one]}, 2), [[("a", one)], [("a", one)]])
        self.assertEqual(
            share_out({"a": [one, two], "b": [two]}, 2), [[("a", one), ("b", two)], [("a", two), ("b", two)]]
        )

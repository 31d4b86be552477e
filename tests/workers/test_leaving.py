"""A proxy that takes no more clients: who is cut, who is served to the end, and when it is done."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.workers.leaving import CUT_AFTER, IDLE_FOR, LOOK, Leave, Leaving
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.transport import FakeTransport

WITHIN = 60.0


class Relays:
    """No WebSockets but those that the test says."""

    def __init__(self) -> None:
        self.open = 0
        self.told: list[tuple[int, str]] = []

    def close_all(self, code: int, reason: str) -> None:
        self.told.append((code, reason))


class LeavingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.edge = FakeEdge()
        self.relays = Relays()
        self.ends: list[Leave] = []

    def leave(self) -> None:
        relays: Any = self.relays
        self.leaving = Leaving(
            self.edge.reactor, self.edge.context, relays, WITHIN, lambda: self.ends.append(self.leaving.state)
        )
        self.addCleanup(self.leaving.stop)

    def wait(self, seconds: float) -> None:
        self.edge.reactor.pump([LOOK] * int(seconds / LOOK))

    def served(self) -> FakeTransport:
        """A client that has had an answer, and keeps its connection."""
        client = self.edge.client()
        client.receive(get())
        container = self.edge.container()
        container.drain()
        container.receive(ANSWER)
        client.drain()
        return client

    def test_one_between_two_requests_is_cut_after_a_moment_and_then_it_is_done(self) -> None:
        client = self.served()
        self.leave()
        self.wait(IDLE_FOR - LOOK)
        self.assertFalse(client.lost)
        self.wait(2 * LOOK)
        self.assertTrue(client.lost)
        self.assertEqual(self.ends, [Leave.DONE])

    def test_one_that_came_a_moment_ago_is_served(self) -> None:
        """Its first request is on its way: it was accepted, so nobody else will serve it."""
        client = self.edge.client()
        self.leave()
        self.wait(IDLE_FOR + 1)
        self.assertFalse(client.lost)
        client.receive(get())
        container = self.edge.container()
        container.drain()
        self.wait(IDLE_FOR + 1)
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)
        self.wait(IDLE_FOR + LOOK)
        self.assertTrue(client.lost)
        self.assertEqual(self.ends, [Leave.DONE])

    def test_when_the_time_is_up_all_are_cut_that_wait_and_websockets_are_closed(self) -> None:
        self.relays.open = 1
        self.leave()
        self.wait(WITHIN)
        fresh = self.edge.client()
        self.wait(2 * LOOK)
        self.assertEqual(self.relays.told, [(1012, "daemon_restarted")])
        self.assertTrue(fresh.lost)
        self.assertEqual(self.ends, [])
        self.wait(CUT_AFTER)
        self.assertEqual(self.ends, [Leave.DONE])

"""After a standstill of this process nobody is cut for the time that it did not read; who is late by their own time still is."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.edge.client import FLOOR_WINDOW
from sticky.edge.limits import EdgeLimits
from sticky.edge.site import Site
from tests.edge.test_frontend import status
from tests.fakes.edge import ANSWER, FakeEdge, get
from tests.fakes.routing import SERVER
from tests.fakes.transport import FakeTransport

STANDSTILL = 600.0  #: seconds, in one step of the clock: what has come meanwhile is read after the timers


class StandstillTests(TestCase):
    def begin(self, site: Site | None = None, limits: EdgeLimits | None = None) -> tuple[FakeEdge, FakeTransport]:
        self.edge = FakeEdge(site, limits)
        return self.edge, self.edge.client()

    def advance(self, seconds: float) -> None:
        self.edge.reactor.pump([0.5] * int(seconds * 2))

    def test_a_kept_connection_lives_on_and_its_next_request_is_served(self) -> None:
        edge, client = self.begin(limits=EdgeLimits(keep_alive_timeout=75.0))
        client.receive(get())
        edge.container().receive(ANSWER)
        client.drain()
        self.advance(74)
        edge.reactor.advance(STANDSTILL)
        self.assertFalse(client.disconnecting)
        client.receive(get())
        edge.container().receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER * 2)
        self.advance(74)
        self.assertFalse(client.disconnecting)
        self.advance(2)
        self.assertTrue(client.disconnecting)

    def test_a_head_has_the_time_that_it_had_before(self) -> None:
        edge, client = self.begin(limits=EdgeLimits(head_timeout=20.0))
        client.receive(get()[:30])
        self.advance(15)
        edge.reactor.advance(STANDSTILL)
        self.advance(4)
        self.assertEqual(client.buffer, b"")
        late = edge.client()
        client.receive(get()[30:])
        edge.container().receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)
        late.receive(b"GET / HT")
        self.advance(21)
        late.drain()
        self.assertEqual(status(late), b"HTTP/1.1 408 Request Timeout")

    def test_an_answer_that_came_in_time_is_no_504_and_one_that_does_not_come_is(self) -> None:
        edge, client = self.begin(Site(name=SERVER, response_timeout=5.0))
        other = edge.client()
        client.receive(get())
        container = edge.container()
        other.receive(get())
        edge.container()
        self.advance(2)
        edge.reactor.advance(STANDSTILL)
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)
        self.advance(2)
        self.assertEqual(other.buffer, b"")
        self.advance(2)
        other.drain()
        self.assertEqual(status(other), b"HTTP/1.1 504 Gateway Timeout")

    def test_a_body_is_not_too_slow_for_time_in_which_nobody_took_it(self) -> None:
        edge, client = self.begin(limits=EdgeLimits(min_body_rate=10_000))
        client.receive(get(method=b"POST", extra=b"Content-Length: 1000000\r\n"))
        edge.container().drain()
        self.advance(FLOOR_WINDOW - 2)
        edge.reactor.advance(STANDSTILL)
        self.advance(3)
        self.assertEqual(client.buffer, b"")  # the window with the standstill in it is over
        self.advance(FLOOR_WINDOW + 1)  # and one without
        client.drain()
        self.assertEqual(status(client), b"HTTP/1.1 408 Request Timeout")

    def test_a_half_closed_client_has_its_time_to_take_the_answer(self) -> None:
        edge, client = self.begin(Site(name=SERVER, half_close_timeout=10.0))
        client.receive(get())
        container = edge.container()
        client.receive_fin()
        self.advance(8)
        edge.reactor.advance(STANDSTILL)
        self.assertEqual(len(edge.routing.held), 1)
        container.receive(ANSWER)
        client.drain()
        client.drain()
        self.assertEqual((client.taken, client.lost), (ANSWER, True))

    def test_idle_connections_to_containers_are_closed_as_containers_count_on_by_themselves(self) -> None:
        edge, client = self.begin(limits=EdgeLimits(upstream_idle=4.0))
        client.receive(get())
        container = edge.container()
        container.receive(ANSWER)
        client.drain()
        edge.reactor.advance(STANDSTILL)
        client.receive(get())
        self.assertEqual(len(edge.reactor.undecided), 1)  # not the one that its container may have closed
        self.advance(1)
        self.assertTrue(container.disconnecting)

    def test_what_cannot_be_closed_in_order_is_cut_all_the_same(self) -> None:
        edge, client = self.begin(limits=EdgeLimits(keep_alive_timeout=75.0, close_timeout=10.0))
        client.receive(get())
        edge.container().receive(ANSWER)
        client.drain()
        self.advance(76)
        self.assertTrue(client.disconnecting)
        edge.reactor.advance(STANDSTILL)
        self.assertFalse(client.aborted)
        self.advance(11)
        self.assertTrue(client.aborted or client.lost)

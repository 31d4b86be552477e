"""One client's connection: order, leases, ends and time-outs, without sockets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.limits import EdgeLimits
from sticky.edge.serving import STEPS, ClientState
from sticky.edge.site import Site
from tests.fakes.edge import ANSWER, AUTHORIZED, FakeEdge, PeerAddress, get
from tests.fakes.routing import SERVER
from tests.fakes.transport import EagerTransport, FakeTransport


def status(client: FakeTransport) -> bytes:
    """The status line of what a client was sent."""
    return client.taken.partition(b"\r\n")[0]


class LeaseTests(TestCase):
    def test_a_request_is_in_flight_until_the_client_has_the_last_byte(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        container = edge.container()
        container.drain()
        self.assertEqual(len(edge.routing.held), 1)
        container.receive(ANSWER)
        self.assertEqual(len(edge.routing.held), 1)
        client.drain(len(ANSWER) - 1)
        self.assertEqual(len(edge.routing.held), 1)
        client.drain()
        self.assertEqual(edge.routing.held, set())
        self.assertEqual(client.taken, ANSWER)
        (record,) = edge.records
        self.assertEqual((record.status, record.bytes_out), (200, len(ANSWER)))

    def test_a_small_answer_is_one_write_of_what_was_received(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        edge.container().receive(ANSWER)
        self.assertEqual((client.writes, client.buffer), (1, ANSWER))

    def test_a_client_that_leaves_while_the_lease_is_late_takes_it_back(self) -> None:
        edge = FakeEdge()
        edge.routing.late = True
        client = edge.client()
        client.receive(get())
        client.receive_reset()
        self.assertEqual(edge.routing.cancelled, 1)
        self.assertEqual(edge.reactor.dials, [])
        self.assertEqual([record.status for record in edge.records], [499])

    def test_a_fin_while_the_lease_is_late_frees_the_place(self) -> None:
        edge = FakeEdge()
        edge.routing.late = True
        client = edge.client()
        client.receive(get())
        client.receive_fin()
        self.assertEqual((edge.routing.cancelled, edge.reactor.dials), (1, []))

    def test_a_late_lease_is_used_and_a_late_refusal_answered(self) -> None:
        edge = FakeEdge()
        edge.routing.late = True
        client = edge.client()
        client.receive(get())
        edge.reactor.advance(3)
        edge.routing.grant_all()
        edge.container().receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)
        self.assertEqual(edge.records[0].queue, 3.0)
        client.receive(get())
        edge.routing.refuse_all(errors.SessionEnded("idle_timeout"))
        client.drain()
        self.assertIn(b" 410 ", client.taken[len(ANSWER) :])

    def test_a_fin_after_a_late_lease_is_a_half_close_again(self) -> None:
        edge = FakeEdge()
        edge.routing.late = True
        client = edge.client()
        client.receive(get())
        edge.routing.grant_all()
        container = edge.container()
        client.receive_fin()
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)

    def test_a_fault_of_ours_after_a_late_lease_ends_the_connection_and_the_lease(self) -> None:
        edge = FakeEdge()
        edge.routing.late = True
        client = edge.client()
        client.receive(get())

        def broken(*_: object, **__: object) -> None:
            raise LookupError("a fault of this reactor")

        self.patch(edge.reactor, "connectTCP", broken)
        edge.routing.grant_all()
        edge.reactor.advance(0)
        self.assertTrue(client.lost)
        self.assertEqual((edge.routing.held, [record.status for record in edge.records]), (set(), [499]))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)

    def test_a_client_that_leaves_while_dialling_gives_up_the_dial(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        self.assertEqual(len(edge.reactor.undecided), 1)
        client.receive_reset()
        self.assertEqual(edge.reactor.undecided, [])
        self.assertEqual(edge.routing.held, set())
        self.assertEqual(len(edge.context.upstreams), 0)

    def test_a_client_that_leaves_aborts_the_container_in_the_same_step(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        container = edge.container()
        client.receive_reset()
        self.assertTrue(container.aborted)
        self.assertEqual(edge.routing.held, set())

    def test_a_session_that_ends_while_an_answer_is_flushed_lets_it_through(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        edge.container().receive(ANSWER)
        edge.routing.end_all(EndReason.TERMINATED)
        client.drain()
        self.assertEqual(client.taken, ANSWER)


class PipelineTests(TestCase):
    def test_the_next_request_begins_when_the_last_answer_is_out(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get(b"/1") + get(b"/2"))
        container = edge.container()
        container.receive(ANSWER)
        container.drain()
        self.assertEqual(container.taken.count(b"GET /"), 1)
        client.drain()
        container.drain()
        self.assertEqual(container.taken.count(b"GET /"), 2)
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER * 2)

    def test_a_flood_of_pipelined_requests_pauses_the_client(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        client.receive(b"x" * 65_537)
        self.assertFalse(client.reading)
        container = edge.container()
        self.assertFalse(client.reading)
        container.receive(ANSWER)
        client.drain()
        self.assertTrue(client.reading)

    def test_where_answers_go_out_at_once_it_is_read_again_too(self) -> None:
        edge = FakeEdge()
        client = EagerTransport(edge.reactor)
        client.connect(edge.factory.buildProtocol(None))
        client.receive(get())
        client.receive(get(b"/" + b"x" * 10_000) * 8)
        self.assertFalse(client.reading)
        container = edge.container()
        for number in range(2):
            container.receive(ANSWER)
            self.assertEqual((client.taken.count(ANSWER), client.reading), (number + 1, True))

    def test_a_flood_while_a_control_call_waits_ends_the_client(self) -> None:
        edge = FakeEdge()
        edge.control.wait()
        client = edge.client()
        client.receive(b"POST /_modal/sessions/start HTTP/1.1\r\nHost: game.example\r\n\r\n")
        client.receive(b"x" * 65_537)
        self.assertEqual(edge.control.cancelled, 1)
        self.assertTrue(client.aborted)

    @given(st.data())
    def test_any_cut_of_the_bytes_gives_the_same_requests(self, data: st.DataObject) -> None:
        body = (
            b"POST /2 HTTP/1.1\r\n" + AUTHORIZED + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
        )
        stream = get(b"/1") + body + get(b"/3", b"Content-Length: 4\r\n", b"PUT") + b"body" + get(b"/4")
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
        edge = FakeEdge()
        client = edge.client()
        got = b""
        last = 0
        container: FakeTransport | None = None
        answered = 0
        for cut in [*cuts, len(stream)]:
            client.receive(stream[last:cut])
            last = cut
            for _ in range(8):
                if edge.reactor.undecided:
                    container = edge.container()
                if container is None:
                    break
                got += container.drain()
                ends = got.count(b" HTTP/1.1\r\n")
                complete = edge.front(client).request_complete and ends > answered
                if complete:
                    container.receive(ANSWER)
                    answered += 1
                client.drain()
        self.assertEqual(client.taken, ANSWER * 4)
        self.assertEqual([got.count(b" /%d HTTP" % number) for number in (1, 2, 3, 4)], [1, 1, 1, 1])
        self.assertIn(b"\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", got)
        self.assertEqual(edge.routing.held, set())


class HalfCloseTests(TestCase):
    def test_a_fin_between_requests_closes(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive_fin()
        client.drain()
        self.assertTrue(client.lost)
        self.assertEqual(edge.context.doors.inside, 0)

    def test_a_fin_after_a_request_waits_at_most_the_half_close_timeout(self) -> None:
        edge = FakeEdge(Site(name=SERVER, half_close_timeout=10.0))
        client = edge.client()
        client.receive(get())
        container = edge.container()
        client.receive_fin()
        for _ in range(19):
            edge.reactor.advance(0.5)
        self.assertEqual(len(edge.routing.held), 1)
        for _ in range(4):
            edge.reactor.advance(0.5)
        self.assertEqual(edge.routing.held, set())
        self.assertTrue(container.aborted and client.lost)
        self.assertEqual([record.status for record in edge.records], [499])

    def test_a_fin_inside_a_body_is_the_end_in_the_same_step(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get(method=b"POST", extra=b"Content-Length: 10\r\n") + b"hello")
        container = edge.container()
        client.receive_fin()
        self.assertEqual(edge.routing.held, set())
        self.assertTrue(container.aborted)

    def cut_short(self) -> tuple[FakeEdge, FakeTransport]:
        """A client that has had one answer, and left in the middle of its next request's body."""
        edge = FakeEdge()
        client = edge.client()
        client.receive(get() + get(method=b"POST", extra=b"Content-Length: 10\r\n") + b"hello")
        container = edge.container()
        client.receive_fin()
        container.drain()
        container.receive(ANSWER)
        client.drain()
        return edge, client

    def test_a_pipelined_body_that_a_fin_cut_short_is_the_end_when_its_turn_comes(self) -> None:
        edge, client = self.cut_short()
        self.assertEqual(edge.routing.held, set())
        client.drain()
        self.assertTrue(client.lost and not client.aborted)  # a reset could take the first answer with it
        self.assertEqual(client.taken, ANSWER)
        self.assertEqual([record.status for record in edge.records], [200, 499])

    def test_one_that_cannot_be_closed_in_order_is_cut_after_its_time(self) -> None:
        edge, client = self.cut_short()
        self.assertFalse(client.lost)  # its transport has not taken the close yet, and never will
        edge.reactor.pump([0.5] * 22)
        self.assertTrue(client.lost and client.aborted)
        self.assertEqual(edge.context.doors.inside, 0)

    def test_a_pipelined_request_behind_a_fin_waits_at_most_the_half_close_timeout(self) -> None:
        edge = FakeEdge(Site(name=SERVER, half_close_timeout=10.0))
        client = edge.client()
        client.receive(get() + get())
        container = edge.container()
        client.receive_fin()
        container.drain()
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(len(edge.routing.held), 1)
        for _ in range(23):
            edge.reactor.advance(0.5)
        self.assertEqual(edge.routing.held, set())
        self.assertTrue(client.lost)
        self.assertEqual([record.status for record in edge.records], [200, 499])

    def test_a_pipelined_request_that_would_wait_behind_a_fin_frees_its_place(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get() + get())
        container = edge.container()
        client.receive_fin()
        container.drain()
        edge.routing.late = True
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(edge.routing.cancelled, 1)
        self.assertEqual([record.status for record in edge.records], [200, 499])

    def test_inside_a_head_it_closes_without_a_word_or_a_reset(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get()[:30])
        client.receive_fin()
        client.drain()
        self.assertEqual((client.taken, client.lost, client.aborted), (b"", True, False))

    def test_the_time_for_an_answer_behind_it_begins_with_it(self) -> None:
        edge = FakeEdge(Site(name=SERVER, half_close_timeout=10.0), EdgeLimits(keep_alive_timeout=1000.0))
        client = edge.client()
        client.receive(get())
        container = edge.container()
        container.receive(ANSWER)
        client.drain()
        edge.reactor.pump([1.0] * 100)
        client.receive(get())
        client.receive_fin()
        edge.reactor.pump([0.5] * 19)
        edge.container().receive(ANSWER)
        for _ in range(2):
            client.drain()
        self.assertEqual((client.taken, client.lost), (ANSWER * 2, True))


class EagerTests(TestCase):
    """The same on a transport like ours, on which answers are out as soon as they are written."""

    def setUp(self) -> None:
        self.edge = FakeEdge(limits=EdgeLimits(keep_alive_timeout=75.0))
        self.edge.reactor.advance(100)
        self.client = EagerTransport(self.edge.reactor)
        self.client.connect(self.edge.factory.buildProtocol(PeerAddress()))  # type: ignore[arg-type]

    def serve(self, request: bytes = get(), answer: bytes = ANSWER) -> None:
        self.client.receive(request)
        self.edge.container().receive(answer)

    def test_a_kept_connection_is_closed_after_its_time_and_not_before(self) -> None:
        self.serve()
        self.edge.reactor.pump([0.5] * 149)
        self.assertFalse(self.client.disconnecting)
        self.edge.reactor.pump([0.5] * 3)
        self.assertTrue(self.client.disconnecting)

    def test_a_client_that_leaves_when_it_is_served_is_logged_once(self) -> None:
        self.serve()
        self.client.receive_reset()
        self.assertEqual([record.status for record in self.edge.records], [200])
        self.assertEqual((self.edge.routing.held, self.edge.context.doors.inside), (set(), 0))

    def test_after_the_answer_behind_a_fin_it_closes(self) -> None:
        self.client.receive(get())
        self.client.receive_fin()
        self.edge.container().receive(ANSWER)
        self.client.drain()
        self.assertEqual((self.client.taken, self.client.lost), (ANSWER, True))

    def test_after_an_early_answer_of_chunks_it_does_not_stay_open(self) -> None:
        self.serve(
            get(method=b"POST", extra=b"Content-Length: 9\r\n") + b"x",
            b"HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        )
        self.client.drain()
        self.assertTrue(self.client.fin_sent)
        self.client.receive(b"x" * 8 + get())
        self.assertEqual(self.edge.routing.granted, 1)


class TimeTests(TestCase):
    def advance(self, edge: FakeEdge, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            edge.reactor.advance(0.5)

    def test_a_slow_head_is_408_and_closes(self) -> None:
        edge = FakeEdge(limits=EdgeLimits(head_timeout=20.0, linger_timeout=3.0))
        client = edge.client()
        client.receive(b"GET / HT")
        self.advance(edge, 19)
        client.drain()
        self.assertEqual(client.taken, b"")
        self.advance(edge, 2)
        client.drain()
        self.assertEqual(status(client), b"HTTP/1.1 408 Request Timeout")
        client.drain()
        self.advance(edge, 5)
        self.assertTrue(client.lost)

    def test_a_client_that_says_nothing_is_closed_without_a_word(self) -> None:
        edge = FakeEdge(limits=EdgeLimits(head_timeout=20.0))
        client = edge.client()
        self.advance(edge, 21)
        client.drain()
        self.assertTrue(client.lost)
        self.assertEqual(client.taken, b"")

    def test_an_idle_kept_connection_is_closed_after_its_time(self) -> None:
        edge = FakeEdge(limits=EdgeLimits(keep_alive_timeout=75.0))
        client = edge.client()
        client.receive(get())
        edge.container().receive(ANSWER)
        client.drain()
        self.advance(edge, 74)
        client.drain()
        self.assertFalse(client.lost)
        self.advance(edge, 2)
        client.drain()
        self.assertTrue(client.lost)

    def test_a_silent_container_is_504_where_a_limit_is_set(self) -> None:
        edge = FakeEdge(Site(name=SERVER, response_timeout=5.0))
        client = edge.client()
        client.receive(get())
        container = edge.container()
        self.advance(edge, 4.5)
        self.assertEqual(client.buffer, b"")
        self.advance(edge, 1.5)
        client.drain()
        self.assertEqual(status(client), b"HTTP/1.1 504 Gateway Timeout")
        self.assertTrue(container.aborted)

    def test_an_upload_that_goes_on_is_not_held_against_its_container(self) -> None:
        edge = FakeEdge(Site(name=SERVER, response_timeout=5.0))
        client = edge.client()
        client.receive(get(method=b"POST", extra=b"Content-Length: 8\r\n"))
        container = edge.container()
        for _ in range(8):
            edge.reactor.pump([0.5] * 6)
            client.receive(b"x")
        edge.reactor.pump([0.5] * 8)
        container.receive(ANSWER)
        client.drain()
        self.assertEqual(client.taken, ANSWER)

    def test_no_timer_is_left_when_everybody_is_gone(self) -> None:
        edge = FakeEdge()
        client = edge.client()
        client.receive(get())
        container = edge.container()
        container.receive(ANSWER)
        client.drain()
        client.receive_reset()
        self.advance(edge, 6)
        container.drain()
        self.advance(edge, 1)
        self.assertEqual(len(edge.context.upstreams), 0)
        self.assertEqual(edge.reactor.getDelayedCalls(), [])


class FloorTests(TestCase):
    """A body has to come at a rate of its own, but nobody is blamed for time in which we did not read."""

    def setUp(self) -> None:
        self.edge = FakeEdge(limits=EdgeLimits(min_body_rate=10_000))
        self.client = self.edge.client()
        self.client.receive(get(method=b"POST", extra=b"Content-Length: 1000000\r\n"))
        self.container = self.edge.container()
        self.container.drain()

    def wait(self, seconds: int) -> None:
        self.edge.reactor.pump([0.5] * (2 * seconds))

    def test_one_that_comes_too_slowly_is_408(self) -> None:
        for _ in range(11):
            self.client.receive(b"x" * 9_000)
            self.container.drain()
            self.wait(1)
        self.client.drain()
        self.assertIn(b" 408 ", self.client.taken)
        self.assertTrue(self.container.aborted)

    def test_one_that_comes_at_the_floor_passes(self) -> None:
        for _ in range(31):
            self.client.receive(b"x" * 10_000)
            self.container.drain()
            self.wait(1)
        self.assertEqual((self.client.taken, self.container.aborted), (b"", False))

    def test_once_an_answer_has_begun_it_is_broken_off(self) -> None:
        self.container.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        self.wait(11)
        self.client.drain()
        self.assertTrue(self.container.aborted and self.client.taken.endswith(b"2\r\nok\r\n"))
        self.assertEqual([record.reason for record in self.edge.records], ["slow_body"])

    def test_time_in_which_the_container_does_not_take_it_does_not_count(self) -> None:
        for _ in range(2):
            self.client.receive(b"x" * 40_000)
        self.assertFalse(self.client.reading)
        self.wait(35)
        self.assertFalse(self.container.aborted)
        self.container.drain()
        self.assertTrue(self.client.reading)
        self.wait(21)
        self.assertTrue(self.container.aborted)


class EndTests(TestCase):
    def test_stopping_the_edge_cuts_everybody(self) -> None:
        edge = FakeEdge()
        clients = [edge.client() for _ in range(3)]
        clients[0].receive(get())
        container = edge.container()
        edge.context.stop()
        edge.reactor.advance(0)
        self.assertTrue(all(client.lost for client in clients) and container.aborted)
        self.assertEqual(edge.reactor.getDelayedCalls(), [])

    def test_stopping_the_edge_cuts_the_others_where_one_fails(self) -> None:
        edge = FakeEdge()
        clients = [edge.client() for _ in range(5)]

        def broken() -> None:
            raise LookupError("a fault of this transport")

        for client in clients[1::2]:
            client.abortConnection = broken  # type: ignore[method-assign]
        edge.context.stop()
        edge.reactor.advance(0)
        self.assertTrue(all(client.lost for client in clients[::2]))
        self.assertEqual(edge.reactor.getDelayedCalls(), [])
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 2)

    def test_states_only_go_where_the_table_says(self) -> None:
        edge = FakeEdge()
        front = edge.front(edge.client())
        for state in ClientState:
            if state not in STEPS[ClientState.IDLE]:
                self.assertRaises(errors.IllegalEvent, front._become, state)
        self.assertIs(front.state, ClientState.IDLE)

    def test_one_that_turns_out_to_be_of_such_an_address_is_cut_and_all_are_counted_right(self) -> None:
        edge = FakeEdge(limits=EdgeLimits(connections=10, connections_per_client=1))
        edge.client("192.0.2.7")
        proxied = [edge.client("10.0.0.1")]
        edge.front(proxied[0]).known_as("192.0.2.8")
        proxied.append(edge.client("10.0.0.1"))
        edge.front(proxied[1]).known_as("192.0.2.7")
        edge.reactor.advance(0)
        self.assertEqual([client.lost for client in proxied], [False, True])
        self.assertEqual(edge.context.doors.inside, 2)
        self.assertFalse(edge.client("10.0.0.1").aborted)

    def test_too_many_from_one_address_are_turned_away_and_others_are_not(self) -> None:
        edge = FakeEdge(limits=EdgeLimits(connections=10, connections_per_client=2))
        inside = [edge.client() for _ in range(2)]
        third = edge.client()
        edge.reactor.advance(0)
        self.assertTrue(third.lost)
        self.assertFalse(edge.client("192.0.2.8").lost)
        inside[0].receive_reset()
        self.assertFalse(edge.client().aborted)

"""Requests of plain Servers through proxies: asked for one by one, counted by the daemon, and told when their container stops."""

from __future__ import annotations

from collections import Counter

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.values import ContainerId, EndReason, ServerName
from sticky.isticky import ControlRequest, ILease, ILeaseHolder, TCPAddress, Visit
from sticky.visits import VisitBook, VisitLease
from sticky.workers import messages
from sticky.workers.holder import Proxy
from sticky.workers.visits import FarVisits, NearVisits
from tests.fakes.links import Wire
from tests.fakes.routing import FakeControl
from tests.test_service import Holder

BOX = ContainerId("ct-1")
SERVER = ServerName("one")
ADDRESS = TCPAddress("127.0.0.1", 20001)
SHOWN = ControlRequest(SERVER, False, False, b"GET", b"/", b"", ((b"authorization", b"Bearer wk-a.ws-b"),), "::1", True)


class Counting:
    """A fleet with one container."""

    def __init__(self) -> None:
        self.here = Counter({BOX: 0})
        self.keys: list[bytes] = []
        self.refusal: errors.Refusal | None = None

    def enter(self, now: float, key: bytes) -> ContainerId:
        if self.refusal is not None:
            raise self.refusal
        self.keys.append(key)
        self.here[BOX] += 1
        return BOX

    def enter_again(self, now: float, identity: ContainerId) -> None:
        if identity in self.here:
            self.here[identity] += 1

    def leave(self, now: float, identity: ContainerId) -> None:
        if identity in self.here:
            self.here[identity] -= 1


class Daemon:
    """A daemon's side, as far as one plain Server goes."""

    def __init__(self, clock: Clock) -> None:
        self.wire = Wire(clock)
        self.fleet = Counting()
        self.control = FakeControl()
        self.book = VisitBook(self.fleet, {BOX: ADDRESS}, clock, lambda: None)
        self.proxy = Proxy("p", self.wire.near, self, clock, self.gone)  # type: ignore[arg-type]
        self.visits = NearVisits(self.proxy, self, self.control)  # type: ignore[arg-type]
        self.wire.near.serves = self.visits.calls()

    def begin(self, asked: Visit, holder: ILeaseHolder, websocket: bool = False) -> ILease:
        return self.book.begin(asked.key, holder, asked.container)

    def gone(self, proxy: Proxy) -> None:
        self.visits.stop()


class VisitCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.far = FarVisits()
        self.daemon = Daemon(self.clock)
        self.connect(self.daemon)

    def connect(self, daemon: Daemon) -> None:
        daemon.wire.far.serves = self.far.calls()
        self.far.connect(daemon.wire.far, daemon.visits.take_over(self.far.held()))

    def ask(self, visit: Visit = Visit(SERVER), holder: Holder | None = None) -> Deferred[ILease]:  # noqa: B008
        return self.far.take(visit, Holder() if holder is None else holder)

    def enter(self, holder: Holder | None = None) -> VisitLease:
        asked = self.ask(holder=holder)
        self.daemon.wire.run()
        lease = self.successResultOf(asked)
        assert isinstance(lease, VisitLease)
        return lease

    def counts(self, daemon: Daemon | None = None) -> int:
        daemon = self.daemon if daemon is None else daemon
        daemon.wire.run()
        return daemon.fleet.here[BOX]


class AskingTests(VisitCase):
    def test_each_request_is_asked_for_and_counts_until_it_is_over(self) -> None:
        first, second = self.enter(), self.enter()
        self.assertEqual((first.container, first.address, self.counts()), (BOX, ADDRESS, 2))
        first.release()
        first.release()
        self.assertEqual(self.counts(), 1)
        second.release()
        self.assertEqual(self.counts(), 0)

    def test_its_key_leads_it(self) -> None:
        self.ask(Visit(SERVER, b"r\xf6\xf6m"))
        self.daemon.wire.run()
        self.assertEqual(self.daemon.fleet.keys, [b"r\xf6\xf6m"])

    def test_what_it_shows_is_judged_by_the_daemon(self) -> None:
        self.ask(Visit(SERVER, b"", SHOWN))
        self.daemon.wire.run()
        self.assertEqual(self.daemon.control.visitors, [SHOWN])
        self.daemon.control.let_in_with = errors.BadCredential("no")
        refused = self.ask(Visit(SERVER, b"", SHOWN))
        self.daemon.wire.run()
        self.assertEqual(self.failureResultOf(refused, errors.BadCredential).value.message, "no")
        self.assertEqual(self.counts(), 1)

    def test_what_was_shown_to_another_server_ends_the_link(self) -> None:
        self.ask(Visit(SERVER, b"", attrs.evolve(SHOWN, server=ServerName("other"))))
        self.daemon.wire.run()
        self.assertEqual(self.daemon.wire.near.state.value, "closed")
        self.assertEqual((self.daemon.control.visitors, self.counts()), ([], 0))

    def test_a_refusal_is_the_daemons(self) -> None:
        self.daemon.fleet.refusal = errors.ServerBusy(retry_after=7.0)
        asked = self.ask()
        self.daemon.wire.run()
        self.assertEqual(self.failureResultOf(asked, errors.ServerBusy).value.retry_after, 7.0)
        self.daemon.fleet.refusal = None
        self.enter()

    def test_a_client_that_leaves_before_the_answer_counts_no_longer(self) -> None:
        asked = self.ask()
        asked.cancel()
        self.failureResultOf(asked)
        self.assertEqual(self.counts(), 0)

    def test_one_that_is_silent_does_not_count_and_may_count_again(self) -> None:
        lease = self.enter()
        lease.suspend()
        self.assertEqual(self.counts(), 0)
        lease.resume()
        self.assertEqual(self.counts(), 1)
        lease.suspend()
        lease.release()
        self.assertEqual(self.counts(), 0)


class EndingTests(VisitCase):
    def test_whoever_is_on_a_container_that_stops_is_told_and_the_daemon_knows_when(self) -> None:
        holder, quiet = Holder(), Holder()
        self.enter(holder)
        self.enter(quiet).suspend()
        self.daemon.wire.run()
        asked: list[str] = []
        self.daemon.book.end(BOX, EndReason.DEPLOYMENT_ENDED, None)
        self.daemon.book.when_told(BOX, lambda: asked.append("to go"))
        self.assertEqual(asked, [], "both sides are told before it is asked to go")
        self.daemon.wire.run()
        self.assertEqual(asked, ["to go"])
        self.assertEqual([holder.told, quiet.told], [[(EndReason.DEPLOYMENT_ENDED, None)]] * 2)
        self.daemon.book.when_told(BOX, lambda: asked.append("at once"))
        self.assertEqual(asked, ["to go", "at once"])

    def test_an_end_and_a_release_may_cross(self) -> None:
        holder = Holder()
        lease = self.enter(holder)
        self.daemon.book.end(BOX, EndReason.CONTAINER_LOST, "killed")
        lease.release()
        self.daemon.wire.run()
        self.assertEqual(holder.told, [])
        self.assertEqual(self.daemon.wire.near.state.value, "open")

    def test_a_proxy_that_is_gone_has_nothing_in_flight(self) -> None:
        self.enter()
        self.enter()
        self.daemon.wire.lose()
        self.assertEqual(self.daemon.fleet.here[BOX], 0)


class TakeOverTests(VisitCase):
    """Another daemon takes over while requests are in flight."""

    def setUp(self) -> None:
        super().setUp()
        self.holders = [Holder(), Holder(), Holder()]
        self.leases = [self.enter(holder) for holder in self.holders]
        self.next = Daemon(self.clock)

    def test_they_count_there_where_they_are(self) -> None:
        self.leases[0].suspend()
        self.daemon.wire.run()
        self.far.disconnect()
        self.connect(self.next)
        self.assertEqual((self.counts(self.next), self.next.fleet.keys), (2, []))
        self.leases[0].resume()
        self.leases[1].release()
        self.assertEqual(self.counts(self.next), 2)

    def test_what_changes_before_the_answer_to_the_hello_is_told_then(self) -> None:
        self.far.disconnect()
        held = self.far.held()
        self.leases[0].release()
        self.leases[1].suspend()
        over = self.next.visits.take_over(held)
        self.far.connect(self.next.wire.far, over)
        self.assertEqual(self.counts(self.next), 1)

    def test_what_waits_is_asked_for_there(self) -> None:
        self.far.disconnect()
        asked = self.ask()
        self.connect(self.next)
        self.next.wire.run()
        self.assertIsInstance(self.successResultOf(asked), VisitLease)
        self.assertEqual(self.counts(self.next), 4)

    def test_those_whose_container_is_gone_are_cut(self) -> None:
        self.far.disconnect()
        self.next.book = VisitBook(self.next.fleet, {}, self.clock, lambda: None)
        self.connect(self.next)
        self.next.wire.run()
        self.assertEqual([holder.told for holder in self.holders], [[(EndReason.CONTAINER_LOST, None)]] * 3)
        self.assertEqual(self.counts(self.next), 0)

    def test_a_daemon_becomes_a_proxy_of_the_next_one(self) -> None:
        holder = Holder()
        near = self.daemon.book.begin(b"", holder)
        far = FarVisits()
        far.adopt(SERVER, near)
        over = self.next.visits.take_over(far.held())
        self.next.wire.far.serves = far.calls()
        far.connect(self.next.wire.far, over)
        self.assertEqual(self.counts(self.next), 1)
        self.next.book.end(BOX, EndReason.SERVER_STOPPED, None)
        self.next.wire.run()
        self.assertEqual(holder.told, [(EndReason.SERVER_STOPPED, None)])


class WordsTests(SynchronousTestCase):
    def test_the_page_has_every_word(self) -> None:
        from pathlib import Path

        page = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
        words = [value for name, value in vars(messages).items() if name.isupper() and isinstance(value, str)]
        self.assertEqual([word for word in words if f"`{word}`" not in page], [])

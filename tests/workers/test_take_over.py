"""A proxy moves to another daemon: what it gives back between its hello and the answer to it is not held there for ever."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import DeploymentId, ServerName, SessionId
from sticky.isticky import ILease, ILeaseHolder, TCPAddress
from sticky.lease import Lease, LeaseBook
from sticky.workers import messages
from sticky.workers.holder import Proxy
from sticky.workers.holds import HoldState
from sticky.workers.routing import FarRouting
from sticky.workers.turns import FarTurns, NearTurns
from tests.fakes.links import Wire
from tests.fakes.routing import at_once
from tests.test_service import Holder
from tests.workers.test_leases_machine import BOX, IDLE, SESSIONS, Core

ADDRESS = TCPAddress("127.0.0.1", 1)


class NearDaemon:
    """A daemon's side, as far as leases and turns go."""

    def __init__(self, clock: Clock) -> None:
        self.wire = Wire(clock)
        self.core = Core(clock)
        self.book = LeaseBook(self.core, {BOX: ADDRESS}, clock, self.follow_up)
        self.gone: list[Proxy] = []
        self.proxy = Proxy("p", self.wire.near, self, clock, self.gone.append)  # type: ignore[arg-type]
        self.turns = NearTurns(self.proxy, self, self.begin)  # type: ignore[arg-type]
        self.wire.near.serves = {**self.proxy.calls(), **self.turns.calls(), messages.REPORTED: self.reported}

    def begin(self, asked: Claims, holder: ILeaseHolder, websocket: bool = False) -> ILease | Deferred[ILease]:
        return self.book.begin(asked, holder)

    def follow_up(self) -> None:
        while self.core.ended:
            effect = self.core.ended.pop(0)
            self.book.end(effect.session, effect.reason, effect.detail)

    def reported(self, message: dict[str, list[object]]) -> None:
        self.proxy.counted(message["counts"])

    def in_flight(self) -> dict[SessionId, int]:
        return {session.id: session.in_flight for session in self.core.ledger if session.in_flight}


def of(session: SessionId) -> Claims:
    return Claims(session, ServerName("s"), DeploymentId(""), BOX, 0, 0)


class TakeOverTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = FarTurns()
        self.far = FarRouting(self.clock, self.turns)
        self.addCleanup(self.far.stop)
        first = NearDaemon(self.clock)
        self.connect(first)
        self.leases = [self.let_in(first, session) for session in SESSIONS]
        self.far.disconnect()
        self.turns.disconnect()
        self.next = NearDaemon(self.clock)

    def connect(self, daemon: NearDaemon) -> None:
        self.turns.connect(daemon.wire.far, [])
        self.far.connect(daemon.wire.far, [])

    def let_in(self, daemon: NearDaemon, session: SessionId) -> Lease:
        found = self.far.begin(of(session), Holder())
        assert isinstance(found, Deferred)
        daemon.wire.run()
        return at_once(self.successResultOf(found))

    def test_a_lease_that_went_unused_before_the_answer_is_given_back_with_it(self) -> None:
        self.assertEqual(self.next.proxy.take_over(self.far.held()), [])
        self.leases[0].release()
        for _ in range(15):
            self.clock.advance(0.1)
        self.assertNotIn(SESSIONS[0], self.far.holds)
        self.connect(self.next)
        self.next.wire.run()
        self.assertEqual(self.next.in_flight(), dict.fromkeys(SESSIONS[1:], 1))
        self.let_in(self.next, SESSIONS[0])  # asked anew, which is an error of something that is held

    def test_one_that_fell_silent_before_the_answer_is_set_aside_with_it(self) -> None:
        self.next.proxy.take_over(self.far.held())
        self.leases[0].suspend()
        for _ in range(15):
            self.clock.advance(0.1)
        self.connect(self.next)
        self.next.wire.run()
        self.assertEqual(self.next.in_flight(), dict.fromkeys(SESSIONS[1:], 1))

    def test_what_was_given_back_before_the_hello_is_not_told_twice(self) -> None:
        self.leases[0].suspend()
        for _ in range(15):
            self.clock.advance(0.1)
        self.next.proxy.take_over(self.far.held())
        self.connect(self.next)
        self.next.wire.run()
        self.assertFalse(self.next.gone)
        self.assertEqual(self.next.in_flight(), dict.fromkeys(SESSIONS[1:], 1))

    def test_counts_are_told_from_those_of_the_hello(self) -> None:
        more = [at_once(self.far.begin(of(SESSIONS[0]), Holder())) for _ in range(2)]
        self.next.proxy.take_over(self.far.held())
        self.connect(self.next)
        for lease in more:
            lease.release()
        self.next.wire.far.tell(messages.REPORTED, counts=self.far.counts())
        self.next.wire.run()
        self.assertEqual(self.next.proxy.held[SESSIONS[0]].in_flight, 1)


class AdoptedTests(SynchronousTestCase):
    """Leases of a daemon that becomes a proxy."""

    def setUp(self) -> None:
        clock = Clock()
        self.daemon, self.far = NearDaemon(clock), FarRouting(clock, FarTurns())
        self.addCleanup(self.far.stop)

    def adopt(self, *, silent: bool) -> None:
        lease = at_once(self.daemon.begin(of(SESSIONS[0]), Holder()))
        if silent:
            lease.suspend()
        self.far.adopt(ServerName("s"), [lease])

    def held(self) -> tuple[HoldState, int, bool]:
        (told,) = self.far.held()
        return self.far.holds[SESSIONS[0]].state, told["in_flight"], told["counts"]

    def test_a_session_counts_with_the_first_of_them_that_does(self) -> None:
        self.adopt(silent=True)
        self.assertEqual(self.held(), (HoldState.ASIDE, 0, False))
        self.adopt(silent=False)
        self.assertEqual(self.held(), (HoldState.HELD, 1, True))
        self.adopt(silent=False)
        self.adopt(silent=True)
        self.assertEqual(self.held(), (HoldState.HELD, 2, True))

    def test_a_session_that_drains_is_not_made_to_count(self) -> None:
        self.adopt(silent=True)
        self.far._drain({"session": SESSIONS[0], "reason": "terminated"})
        self.assertRaises(errors.IllegalEvent, self.adopt, silent=False)
        self.assertIs(self.far.holds[SESSIONS[0]].state, HoldState.DRAINING)


class ReportTests(SynchronousTestCase):
    def test_counts_that_do_not_fit_into_one_report_are_told_with_the_next(self) -> None:
        self.patch(messages, "AT_ONCE", 2)
        clock = Clock()
        far, daemon = FarRouting(clock, FarTurns()), NearDaemon(clock)
        self.addCleanup(far.stop)
        far.connect(daemon.wire.far, [])
        for session in SESSIONS[:3]:
            far.begin(of(session), Holder())
            daemon.wire.run()
            far.begin(of(session), Holder())
        reports = [far.counts() for _ in range(3)]
        self.assertEqual([len(report) for report in reports], [2, 1, 0])
        self.assertEqual({session for session, _, _ in reports[0] + reports[1]}, set(SESSIONS[:3]))


class TurnTakeOverTests(SynchronousTestCase):
    def test_a_turn_that_was_over_before_the_answer_is_given_back_with_it(self) -> None:
        clock = Clock()
        turns, first, following = FarTurns(), NearDaemon(clock), NearDaemon(clock)
        turns.connect(first.wire.far, [])
        asked = turns.take(of(SESSIONS[0]), Holder())
        first.wire.run()
        lease = self.successResultOf(asked)
        turns.disconnect()
        self.assertEqual(following.turns.take_over(turns.held()), [])
        self.assertEqual(following.in_flight(), {SESSIONS[0]: 1})
        lease.release()
        turns.connect(following.wire.far, [])
        following.wire.run()
        self.assertEqual(following.in_flight(), {})


class WaitingTurnTests(SynchronousTestCase):
    """A turn of an earlier daemon that cannot go on at once: what becomes of it later is heard where its request is."""

    def setUp(self) -> None:
        self.daemon = NearDaemon(Clock())
        self.waiting: Deferred[ILease] = Deferred()
        self.turns = NearTurns(self.daemon.proxy, self.daemon, lambda claims, holder: self.waiting)  # type: ignore[arg-type]
        self.told: list[tuple[str, str, str | None]] = []
        self.daemon.wire.far.serves = {messages.END: self.end}
        turn = {"request": 1, "session": SESSIONS[0], "server": "s", "container": BOX}
        self.assertEqual(self.turns.take_over([turn]), [])

    def end(self, message: dict[str, str]) -> None:
        self.told.append((message["session"], message["reason"], message["detail"]))

    def test_one_that_is_refused_is_ended_with_the_reason(self) -> None:
        self.waiting.errback(errors.SessionEnded("terminated", "by hand"))
        self.daemon.wire.run()
        self.assertEqual((self.told, self.turns.in_flight), ([(SESSIONS[0], "terminated", "by hand")], 0))

    def test_one_whose_session_is_busy_is_ended_too(self) -> None:
        self.waiting.errback(errors.SessionBusy())
        self.daemon.wire.run()
        self.assertEqual(self.told, [(SESSIONS[0], "session_busy", None)])

    def test_one_that_fails_for_a_fault_of_ours_is_ended_and_logged(self) -> None:
        self.waiting.errback(ZeroDivisionError("inside"))
        self.daemon.wire.run()
        self.assertEqual(self.told, [(SESSIONS[0], "unavailable", None)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_one_whose_proxy_is_gone_is_over_without_a_word(self) -> None:
        self.turns.stop()
        self.daemon.wire.run()
        self.assertEqual((self.told, self.turns.in_flight), ([], 0))


class LostProxyTests(SynchronousTestCase):
    def test_all_its_leases_are_free_though_the_idle_time_of_one_runs_out_in_that_moment(self) -> None:
        clock = Clock()
        daemon = NearDaemon(clock)
        far = FarRouting(clock, FarTurns())
        self.addCleanup(far.stop)
        far.connect(daemon.wire.far, [])
        leases = []
        for session in SESSIONS:
            found = far.begin(of(session), Holder())
            daemon.wire.run()
            leases.append(at_once(self.successResultOf(found)))  # type: ignore[arg-type]
        leases[1].suspend()
        for _ in range(15):
            clock.advance(0.1)
        daemon.wire.run()
        clock.advance(IDLE)  # the daemon is late: it has not looked yet
        daemon.wire.lose()
        self.assertEqual((daemon.in_flight(), daemon.gone), ({}, [daemon.proxy]))

"""Turns at a Server at work: who waits gets a lease later, or is refused; a client that leaves frees its place."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import EndReason
from sticky.isticky import ILease
from sticky.turn_leases import TurnLease
from tests.fakes.routing import at_once
from tests.test_service import Holder, ServiceCase


class TurnLeaseTests(ServiceCase):
    def setUp(self) -> None:
        super().setUp()
        self.build(serial=True, session_wait_timeout=5.0, idle_timeout=20.0)
        self.claimed = self.session()

    def wait(self, claims: Claims | None = None, holder: Holder | None = None) -> Deferred[ILease]:
        answer = self.service.begin(claims or self.claimed, holder or Holder())
        assert isinstance(answer, Deferred), "it has a turn"
        return answer

    def test_the_second_request_gets_its_lease_when_the_first_is_through(self) -> None:
        first = at_once(self.service.begin(self.claimed, Holder()))
        second = self.wait()
        self.assertNoResult(second)
        first.release()
        lease = at_once(self.successResultOf(second))
        self.assertEqual((lease.session, lease.container), (first.session, first.container))
        third = self.wait()
        lease.release()
        lease.release()
        self.successResultOf(third)

    def test_one_that_waits_too_long_is_busy(self) -> None:
        at_once(self.service.begin(self.claimed, Holder()))
        second = self.wait()
        self.clock.advance(5.0)
        error = self.failureResultOf(second, errors.SessionBusy).value
        self.assertEqual((error.status, error.code), (429, "session_busy"))

    def test_a_client_that_leaves_the_line_frees_its_place(self) -> None:
        first = at_once(self.service.begin(self.claimed, Holder()))
        second, third = self.wait(), self.wait()
        second.cancel()
        self.failureResultOf(second, CancelledError)
        first.release()
        at_once(self.successResultOf(third))

    def test_a_websocket_takes_no_turn_and_is_told_of_the_end_as_all_are(self) -> None:
        served, socket = Holder(), Holder()
        at_once(self.service.begin(self.claimed, served))
        at_once(self.service.begin(self.claimed, socket, websocket=True))
        waiting = self.wait()
        self.service.terminate(self.claimed, 3.0)
        self.failureResultOf(waiting, errors.SessionEnded)
        self.clock.advance(3.0)
        ended = [(EndReason.TERMINATED, None)]
        self.assertEqual((served.told, socket.told), (ended, ended))

    def test_the_deployment_that_is_not_serial_any_more_gives_leases_at_once(self) -> None:
        at_once(self.service.begin(self.claimed, Holder()))
        self.build(serial=False)
        claims = self.session()
        for _ in range(3):
            at_once(self.service.begin(claims, Holder()))

    def test_a_lost_container_refuses_who_waits(self) -> None:
        at_once(self.service.begin(self.claimed, Holder()))
        waiting = self.wait()
        self.backend.spawned[0].kill()
        self.clock.advance(1.0)
        self.assertEqual(self.failureResultOf(waiting, errors.SessionEnded).value.code, "container_lost")

    def test_nobody_gets_a_turn_before_it_is_known_who_has_one_of_an_earlier_daemon(self) -> None:
        everybody: list[Deferred[None]] = []

        def expected() -> Deferred[None]:
            everybody.append(Deferred())
            return everybody[-1]

        self.service.everybody = expected
        eager, leaving = self.wait(), self.wait()
        earlier = at_once(self.service.resume(self.claimed, Holder()))
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        self.service.everybody = lambda: None
        everybody[0].callback(None)
        self.assertNoResult(eager)
        later = self.wait()
        earlier.release()
        at_once(self.successResultOf(eager)).release()
        at_once(self.successResultOf(later))

    def test_a_session_that_is_over_when_it_is_known_is_refused(self) -> None:
        everybody: Deferred[None] = Deferred()
        self.service.everybody = lambda: everybody
        eager = self.wait()
        self.service.everybody = lambda: None
        self.service.terminate(self.claimed, 0.0)
        everybody.callback(None)
        self.failureResultOf(eager, errors.SessionEnded)

    def test_those_who_wait_when_another_daemon_takes_over_get_their_turns_there_in_order(self) -> None:
        at_once(self.service.begin(self.claimed, Holder()))
        holders = Holder(), Holder(), Holder()
        waiting = [self.wait(holder=holder) for holder in holders]
        self.service.rest()
        asked: list[tuple[object, Deferred[ILease]]] = []
        left: list[Deferred[ILease]] = []

        def ask(lease: TurnLease) -> Deferred[ILease]:
            asked.append((lease.holder, Deferred(left.append)))
            return asked[-1][1]

        self.service.turns.move(ask)
        self.assertEqual([holder for holder, _ in asked], list(holders))
        lease = at_once(self.service.begin(self.claimed, Holder(), websocket=True))
        asked[0][1].callback(lease)
        self.assertIs(self.successResultOf(waiting[0]), lease)
        waiting[1].cancel()
        self.failureResultOf(waiting[1], CancelledError)
        self.assertEqual(left, [asked[1][1]])
        asked[2][1].errback(errors.SessionEnded("idle_timeout"))
        self.failureResultOf(waiting[2], errors.SessionEnded)

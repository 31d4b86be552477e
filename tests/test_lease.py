"""A lease counts until it is released or suspended, and its holder hears of the session's end for as long as it is held."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.core.session import Session
from sticky.core.values import ContainerId, EndReason, SessionId
from sticky.isticky import ILease, ILeaseHolder, TCPAddress
from sticky.lease import LeaseBook
from tests.fakes.routing import CONTAINER, SESSION, claims


class FakeFleet:
    """Counts, until the session has ended."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = False
        self.idle_for = 0.0
        self.session = Session.__new__(Session)
        self.session.id = SESSION
        self.effects = ["that were due"]

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """One more."""
        if self.ended:
            raise errors.SessionEnded("idle_timeout")
        self.count += 1
        return self.session

    def finish(self, now: float, container: ContainerId, session: Session, idle_for: float = 0.0) -> bool:
        """One less."""
        self.count -= 1
        self.idle_for = idle_for
        return True


@implementer(ILeaseHolder)
class Holder:
    """Remembers."""

    def __init__(self) -> None:
        self.told: list[EndReason] = []

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        """Once."""
        self.told.append(reason)


class LeaseTests(TestCase):
    def setUp(self) -> None:
        self.fleet = FakeFleet()
        self.followed: list[int] = []
        address = {CONTAINER: TCPAddress("127.0.0.1", 1)}
        self.book = LeaseBook(self.fleet, address, Clock(), lambda: self.followed.append(self.fleet.count))
        self.holder = Holder()

    def test_it_is_a_lease_and_counts_until_released(self) -> None:
        lease = self.book.begin(claims(), self.holder)
        verifyObject(ILease, lease)
        self.assertEqual(self.fleet.count, 1)
        lease.release()
        lease.release()
        self.assertEqual((self.fleet.count, self.followed), (0, [1, 0]))
        self.book.end(SESSION, EndReason.TERMINATED, None)
        self.assertEqual(self.holder.told, [])

    def test_where_nothing_was_due_nothing_follows_from_its_beginning(self) -> None:
        self.fleet.effects.clear()
        self.book.begin(claims(), self.holder).release()
        self.assertEqual(self.followed, [0])

    def test_suspended_it_does_not_count_and_its_holder_is_still_told(self) -> None:
        lease = self.book.begin(claims(), self.holder)
        lease.suspend()
        lease.suspend()
        self.assertEqual(self.fleet.count, 0)
        self.book.end(SESSION, EndReason.IDLE_TIMEOUT, None)
        self.assertEqual(self.holder.told, [EndReason.IDLE_TIMEOUT])
        lease.release()
        lease.resume()
        self.assertEqual(self.fleet.count, 0)

    def test_released_while_suspended_it_is_not_counted_twice(self) -> None:
        lease = self.book.begin(claims(), self.holder)
        lease.suspend()
        lease.release()
        self.assertEqual(self.fleet.count, 0)
        self.book.end(SESSION, EndReason.IDLE_TIMEOUT, None)
        self.assertEqual(self.holder.told, [])

    def test_resumed_it_counts_again(self) -> None:
        lease = self.book.begin(claims(), self.holder)
        lease.suspend()
        lease.resume()
        lease.resume()
        self.assertEqual(self.fleet.count, 1)
        lease.release()
        self.assertEqual(self.fleet.count, 0)

    def test_resumed_too_late_it_is_over_and_the_error_says_why(self) -> None:
        lease = self.book.begin(claims(), self.holder)
        lease.suspend()
        self.fleet.ended = True
        self.assertEqual(self.assertRaises(errors.SessionEnded, lease.resume).code, "idle_timeout")
        lease.release()
        self.assertEqual((self.book.held(), lease.counts), ([], False))
        self.book.end(SESSION, EndReason.IDLE_TIMEOUT, None)
        self.assertEqual((self.fleet.count, self.holder.told), (0, []))

    def test_what_follows_from_the_end_of_one_that_could_not_be_had_is_looked_at(self) -> None:
        book = LeaseBook(self.fleet, {}, Clock(), lambda: self.followed.append(self.fleet.count))
        self.assertRaises(errors.ContainerUnavailable, book.begin, claims(), self.holder)
        self.assertEqual(self.followed, [1, 0])

    def test_the_end_comes_to_each_holder_once(self) -> None:
        leases = [self.book.begin(claims(), self.holder) for _ in range(3)]
        self.book.end(SESSION, EndReason.TERMINATED, None)
        self.book.end(SESSION, EndReason.TERMINATED, None)
        self.assertEqual(self.holder.told, [EndReason.TERMINATED] * 3)
        for lease in leases:
            lease.release()
        self.assertEqual(self.fleet.count, 3)  # the fleet has ended them itself

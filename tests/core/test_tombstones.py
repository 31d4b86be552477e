"""Why sessions ended, remembered for a while and in bounded number."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core.tombstones import Tombstone, Tombstones
from sticky.core.values import EndReason, SessionId


def stone(forget_at: float) -> Tombstone:
    """One of a session that was idle."""
    return Tombstone(EndReason.IDLE_TIMEOUT, None, forget_at)


class TombstoneTests(TestCase):
    def test_they_stand_until_no_token_can_come_any_more(self) -> None:
        stones = Tombstones()
        stones.add(SessionId("a"), stone(10.0))
        stones.forget(9.9)
        self.assertEqual(stones.get(SessionId("a")), stone(10.0))
        stones.forget(10.0)
        self.assertIsNone(stones.get(SessionId("a")))

    def test_beyond_the_capacity_the_oldest_go(self) -> None:
        stones = Tombstones(capacity=2)
        for name in "abc":
            stones.add(SessionId(name), stone(10.0))
        self.assertEqual([session for session, _ in stones.items()], ["b", "c"])
        self.assertEqual(len(stones), 2)

"""Ports are free, outside the ephemeral range, and never handed out twice."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.ports import NoFreePort, Ports, ephemeral_range


def ports(first: int, last: int, *, taken: frozenset[int] = frozenset(), ephemeral: range = range(0)) -> Ports:
    return Ports(first, last, ephemeral=ephemeral, bindable=lambda port: port not in taken, start=first)


class PortsTests(SynchronousTestCase):
    def test_a_port_that_somebody_else_has_is_passed_over(self) -> None:
        self.assertEqual(ports(20_000, 20_002, taken=frozenset({20_000, 20_001})).acquire(), 20_002)

    def test_when_none_is_left_it_says_so(self) -> None:
        mine = ports(20_000, 20_001)
        mine.acquire()
        mine.acquire()
        error = self.assertRaises(NoFreePort, mine.acquire)
        self.assertIn("20000", str(error))

    def test_a_reserved_port_is_passed_over_until_it_is_released(self) -> None:
        mine = ports(20_000, 20_001)
        mine.reserve(20_000)
        mine.reserve(65_000)  # from another range, of an earlier configuration
        self.assertEqual(mine.acquire(), 20_001)
        mine.release(20_000)
        self.assertEqual(mine.acquire(), 20_000)

    def test_a_released_port_comes_back_last(self) -> None:
        mine = ports(20_000, 20_002)
        first = mine.acquire()
        mine.release(first)
        self.assertEqual([mine.acquire() for _ in range(3)], [20_001, 20_002, 20_000])

    def test_the_ephemeral_range_is_left_to_outgoing_connections(self) -> None:
        mine = Ports(20_000, 20_003, ephemeral=range(20_001, 20_003), bindable=lambda _: True)
        self.assertEqual({mine.acquire(), mine.acquire()}, {20_000, 20_003})
        self.assertRaises(NoFreePort, mine.acquire)

    def test_an_ephemeral_range_over_all_of_ours_is_used_all_the_same(self) -> None:
        self.assertEqual(ports(20_000, 20_000, ephemeral=range(1024, 65_536)).acquire(), 20_000)

    @given(st.lists(st.booleans(), max_size=60))
    def test_no_port_is_ever_out_twice(self, steps: list[bool]) -> None:
        mine = ports(20_000, 20_004)
        out: list[int] = []
        for take in steps:
            if take and len(out) < 5:
                port = mine.acquire()
                self.assertNotIn(port, out)
                out.append(port)
            elif not take and out:
                mine.release(out.pop(0))
            self.assertEqual(mine.in_use, frozenset(out))


class EphemeralRangeTests(SynchronousTestCase):
    def test_it_is_read_as_the_kernel_writes_it(self) -> None:
        source = Path(self.mktemp())
        source.write_text("32768\t60999\n")
        self.assertEqual(ephemeral_range(source), range(32_768, 61_000))

    def test_without_one_nothing_is_avoided(self) -> None:
        self.assertEqual(len(ephemeral_range(Path("/nowhere/at/all"))), 0)

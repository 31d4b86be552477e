"""The formats of an Engine's streams, whole, in pieces and torn."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.docker.frames import LONGEST_LINE, Lines, Output, Torn
from sticky.containers.docker.output import last_lines
from tests.fakes.engine import framed


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


class OutputTests(SynchronousTestCase):
    @given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=50))), st.lists(st.integers(0, 1000)))
    def test_payloads_come_in_order_however_they_are_cut(
        self, frames: list[tuple[int, bytes]], places: list[int]
    ) -> None:
        output = Output()
        data = b"".join(framed(stream, payload) for stream, payload in frames)
        found = b"".join(output.feed(piece) for piece in cut(data, places))
        self.assertEqual(found, b"".join(payload for _, payload in frames))

    def test_what_is_no_frame_is_torn(self) -> None:
        for data in (b"hello world", b"\x03\0\0\0\0\0\0\1x", b"\1\0\0\1\0\0\0\1x", b"\1\0\0\0\xff\0\0\0"):
            self.assertRaises(Torn, Output().feed, data)

    @given(st.binary(max_size=100))
    def test_no_bytes_make_it_fail_in_another_way(self, data: bytes) -> None:
        try:
            Output().feed(data)
        except Torn:
            pass
        self.assertIsInstance(last_lines(data), tuple)

    def test_last_lines_are_bounded(self) -> None:
        text = b"".join(b"%d\n" % number for number in range(100)) + b"x" * 1000
        lines = last_lines(framed(1, text))
        self.assertEqual((len(lines), lines[0], len(lines[-1])), (20, "81", 500))


class LinesTests(SynchronousTestCase):
    @given(st.lists(st.dictionaries(st.text(), st.integers(), max_size=3)), st.lists(st.integers(0, 1000)))
    def test_objects_come_whole_however_they_are_cut(self, objects: list[dict[str, int]], places: list[int]) -> None:
        lines = Lines()
        data = b"".join(json.dumps(one).encode() + b"\r\n" for one in objects)
        self.assertEqual([one for piece in cut(data, places) for one in lines.feed(piece)], objects)

    def test_what_is_not_a_json_object_is_torn(self) -> None:
        for data in (b"{\n", b"[]\n", b"\xff\n", b"x" * (LONGEST_LINE + 1)):
            self.assertRaises(Torn, Lines().feed, data)

"""Frames: what goes in comes out, and what is torn is an error."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox import frames
from sticky.sandbox.frames import (
    Assembly,
    Kind,
    TornFrame,
    announced,
    document,
    frame,
    pieces,
    read_document,
    read_frame,
    read_head,
)


class FrameTests(SynchronousTestCase):
    @given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=300))))
    def test_what_was_written_is_read(self, written: list[tuple[Kind, bytes]]) -> None:
        stream = io.BytesIO(b"".join(frame(kind, payload) for kind, payload in written))
        read = []
        while (found := read_frame(stream.read)) is not None:
            read.append(found)
        self.assertEqual(read, written)

    @given(st.sampled_from(Kind), st.binary(min_size=1, max_size=50), st.data())
    def test_one_that_breaks_off_is_torn(self, kind: Kind, payload: bytes, data: st.DataObject) -> None:
        whole = frame(kind, payload)
        cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
        self.assertRaises(TornFrame, read_frame, io.BytesIO(cut).read)

    def test_what_is_no_frame_is_torn(self) -> None:
        for junk in (
            b"HTTP/1.1 200 OK\r\n",
            b"\0\0\0\0\0",
            b"C\xff\xff\xff\xff",
            b"C\x00\x10\x00\x01" + bytes(1 << 20),
        ):
            self.assertRaises(TornFrame, read_frame, io.BytesIO(junk).read)

    def test_what_is_long_goes_in_pieces(self) -> None:
        blob = bytes(range(256)) * (9 << 10)
        parts = list(pieces(Kind.VALUE, blob))
        self.assertEqual(
            [len(part) for _, part in parts], [frames.LONGEST, frames.LONGEST, len(blob) - 2 * frames.LONGEST]
        )
        whole = Assembly(len(blob))
        for parts_of_one in parts:
            stream = io.BytesIO(b"".join(parts_of_one))
            head = read_head(stream.read)
            assert head is not None
            whole.take(head[1], stream.readinto)
        self.assertTrue(whole.complete)
        self.assertEqual(whole.data, blob)
        self.assertRaises(TornFrame, whole.take, 1, io.BytesIO(b"x").readinto)

    def test_a_piece_that_breaks_off_is_torn(self) -> None:
        whole = Assembly(10)
        self.assertRaises(TornFrame, whole.take, 10, io.BytesIO(b"nine byte").readinto)

    def test_json_that_is_none_is_torn(self) -> None:
        self.assertEqual(read_document(document(Kind.CALL, {"a": 1})[5:]), {"a": 1})
        for junk in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
            self.assertRaises(TornFrame, read_document, junk)

    def test_sizes(self) -> None:
        self.assertEqual(announced(frames.LARGEST), frames.LARGEST)
        for junk in (-1, frames.LARGEST + 1, 1.0, True, None, "1"):
            self.assertRaises(TornFrame, announced, junk)

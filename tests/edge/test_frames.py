"""The frame tracker: boundaries wherever the reads are cut, control frames whole, nothing lost."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.edge import frames
from tests.strategies_frames import Frame, chop, chops, encode, frame_lists


def track(reads: list[bytes]) -> tuple[bytes, list[frames.Control], list[int]]:
    """Everything passed on, the control frames, and the places of the boundaries in what was passed on."""
    passed, controls, boundaries = b"", [], []
    part, left = b"", 0
    for read in reads:
        data, at = part + read, 0
        part = b""
        while at < len(data):
            found = frames.cut(data, at, left)
            passed += data[at : found.end]
            left = found.left
            if left == 0:
                boundaries.append(len(passed))
            if found.control is not None:
                controls.append(found.control)
                passed += found.control.raw
                boundaries.append(len(passed))
            at = found.next
            if found.held:
                part = data[at:]
                break
    return passed + part, controls, boundaries


class CutTests(TestCase):
    @given(frame_lists(), chops())
    def test_frames_cut_anywhere_come_out_whole_and_in_order(self, sent: list[Frame], places: list[int]) -> None:
        wire = b"".join(encode(frame) for frame in sent)
        passed, controls, boundaries = track(chop(wire, places))
        self.assertEqual(passed, wire)
        expected = [frame for frame in sent if frame.opcode & 8 and len(frame.payload) <= 125]
        self.assertEqual(
            [(control.opcode, control.payload) for control in controls],
            [(frame.opcode, frame.payload) for frame in expected],
        )
        ends = {0}
        for frame in sent:
            ends.add(max(ends) + len(encode(frame)))
        self.assertLessEqual(set(boundaries), ends)

    @given(frame_lists(), chops())
    def test_the_fast_path_agrees_with_the_careful_one(self, sent: list[Frame], places: list[int]) -> None:
        data_only = [frame for frame in sent if not frame.opcode & 8]
        wire = b"".join(encode(frame) for frame in data_only)
        passed, part, left = b"", b"", 0
        for read in chop(wire, places):
            data = part + read
            end, left = frames.walk(data, left)
            passed, part = passed + data[:end], data[end:]
            self.assertLess(len(part), 10)
        self.assertEqual((passed + part, left, part), (wire, 0, b""))

    def test_every_length_at_a_border_is_understood(self) -> None:
        for size in (0, 1, 125, 126, 127, 65535, 65536, 65537):
            for masked in (False, True):
                wire = encode(Frame(frames.BINARY, os.urandom(size), masked=masked))
                self.assertEqual(frames.walk(wire, 0), (len(wire), 0))
                self.assertEqual(frames.walk(wire + wire[:2], 0)[0], len(wire) + (2 if size < 126 else 0))
                if size:
                    self.assertEqual(frames.walk(wire[:-1], 0), (len(wire) - 1, 1))

    def test_lengths_that_are_not_minimal_are_followed_as_they_stand(self) -> None:
        wire = bytes((0x82, 126, 0, 3)) + b"abc" + bytes((0x82, 127, 0, 0, 0, 0, 0, 0, 0, 2)) + b"de"
        self.assertEqual(frames.walk(wire, 0), (len(wire), 0))

    def test_a_control_frame_is_held_until_it_is_whole(self) -> None:
        ping = encode(Frame(frames.PING, b"hello", masked=True))
        for size in range(1, len(ping)):
            found = frames.cut(ping[:size], 0, 0)
            self.assertEqual((found.end, found.next, found.control, found.held), (0, 0, None, True))
        found = frames.cut(ping, 0, 0)
        assert found.control is not None
        self.assertEqual((found.control.opcode, found.control.payload), (frames.PING, b"hello"))

    def test_a_control_frame_that_is_too_long_is_streamed_and_not_held(self) -> None:
        wire = encode(Frame(frames.PING, bytes(70_000), masked=True))
        found = frames.cut(wire[:100], 0, 0)
        self.assertEqual((found.end, found.left, found.control, found.held), (100, len(wire) - 100, None, False))

    def test_the_largest_length_on_the_wire_costs_no_memory(self) -> None:
        found = frames.cut(bytes((0x82, 127)) + b"\xff" * 8, 0, 0)
        self.assertEqual((found.end, found.left), (10, 2**64 - 1))

    @given(st.binary(max_size=125))
    def test_a_masked_payload_is_unmasked(self, payload: bytes) -> None:
        raw = encode(Frame(frames.PONG, payload, masked=True))
        self.assertEqual(frames.Control(frames.PONG, raw).payload, payload)

    @given(st.binary(max_size=400), st.integers(min_value=0, max_value=500))
    def test_any_bytes_at_all_are_followed_without_an_error(self, data: bytes, left: int) -> None:
        at, rounds = 0, 0
        while at < len(data):
            found = frames.cut(data, at, left)
            self.assertGreaterEqual(found.next, at)
            left, rounds = found.left, rounds + 1
            self.assertLessEqual(rounds, len(data))
            at = found.next
            if found.held:
                self.assertLess(len(data) - at, frames.MAX_CONTROL)
                break

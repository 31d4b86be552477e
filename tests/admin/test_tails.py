"""A growing file, line by line."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.admin.tails import LONGEST_LINE, Tail


class TailTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        self.path = folder / "log"

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def test_the_last_lines_first_then_what_is_added(self) -> None:
        self.write(b"a\nb\nc\n")
        tail = Tail(self.path, 2)
        self.assertEqual(tail.lines(), ["b", "c"])
        self.assertEqual(tail.lines(), [])
        self.write(b"d\n")
        self.assertEqual(tail.lines(), ["d"])

    def test_a_line_is_given_when_it_is_whole(self) -> None:
        tail = Tail(self.path, 10)
        self.assertEqual(tail.lines(), [])
        self.write(b"hel")
        self.assertEqual(tail.lines(), [])
        self.write("lo wörld\r\nne".encode())
        self.assertEqual(tail.lines(), ["hello wörld"])
        self.assertEqual((tail.rest(), tail.rest()), (["ne"], []))

    def test_none_of_what_is_there_if_none_is_wanted(self) -> None:
        self.write(b"a\nb\n")
        tail = Tail(self.path, 0)
        self.assertEqual(tail.lines(), [])
        self.write(b"c\n")
        self.assertEqual(tail.lines(), ["c"])

    def test_a_file_that_was_cut_goes_on_at_its_new_end(self) -> None:
        self.write(b"a" * 1000 + b"\n")
        tail = Tail(self.path, 1)
        tail.lines()
        self.path.write_bytes(b"[dropped]\n")
        self.assertEqual(tail.lines(), [])
        self.write(b"next\n")
        self.assertEqual(tail.lines(), ["next"])

    def test_only_the_end_of_a_large_file_is_read(self) -> None:
        self.write(b"".join(b"%06d\n" % number for number in range(100_000)))
        lines = Tail(self.path, 1_000_000).lines()
        self.assertEqual(lines[-1], "099999")
        self.assertLess(len(lines), 50_000)
        self.assertEqual({len(line) for line in lines}, {6})

    def test_an_endless_line_is_cut(self) -> None:
        tail = Tail(self.path, 10)
        tail.lines()
        self.write(b"x" * (3 * LONGEST_LINE))
        self.assertEqual([len(line) for line in tail.lines()], [LONGEST_LINE] * 3)

    def test_bytes_that_are_no_text_are_marked(self) -> None:
        self.write(b"\xff\n")
        self.assertEqual(Tail(self.path, 1).lines(), ["\N{REPLACEMENT CHARACTER}"])

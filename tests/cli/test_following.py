"""What containers write, printed while something runs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.cli.following import Following, following
from tests.cli.capture import Captured


class FollowingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.captured = Captured(self)

    def write(self, text: str, container: str = "ct-0123456789") -> None:
        with (self.folder / f"My%2FServer.{container}.log").open("a") as file:
            file.write(text)

    def said(self) -> list[str]:
        lines = self.captured.err.splitlines()
        self.captured.clear()
        return lines

    def test_whole_lines_as_they_come_and_what_is_left_at_the_end(self) -> None:
        files = Following(self.folder)
        files.look()
        self.write("one\ntw")
        files.look()
        self.assertEqual(["My/Server ct-012345 | one"], self.said())
        self.write("o\n\x1b[31mred\nlast")
        files.look()
        self.assertEqual(
            ["My/Server ct-012345 | two", "My/Server ct-012345 | \N{REPLACEMENT CHARACTER}[31mred"], self.said()
        )
        files.look(last=True)
        self.assertEqual(["My/Server ct-012345 | last"], self.said())
        self.assertEqual("", self.captured.out)

    def test_a_container_that_comes_later(self) -> None:
        files = Following(self.folder)
        self.write("a\n", "ct-a")
        files.look()
        self.write("b\n", "ct-b")
        files.look()
        self.assertEqual(["My/Server ct-a | a", "My/Server ct-b | b"], self.said())

    def test_around_a_block_also_where_that_fails(self) -> None:
        def block() -> None:
            with following(self.folder):
                self.write("Traceback\nValueError")
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, block)
        self.assertEqual(["My/Server ct-012345 | Traceback", "My/Server ct-012345 | ValueError"], self.said())

    def test_without_what_was_there_before(self) -> None:
        self.write("yesterday\n", "ct-a")
        with following(self.folder, earlier=False):
            self.write("today\n", "ct-a")
            self.write("new\n", "ct-b")
        self.assertEqual(["My/Server ct-a | today", "My/Server ct-b | new"], self.said())

    def test_a_folder_that_is_not_there_yet(self) -> None:
        with following(self.folder / "logs"):
            pass
        self.assertEqual([], self.said())

"""How commands speak."""

from __future__ import annotations

import io
import os
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from sticky.cli.output import console, duration, printable, show, state, table
from tests.cli.capture import Captured


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class DurationTests(SynchronousTestCase):
    def test_two_units_at_most(self) -> None:
        for seconds, text in (
            (None, "-"),
            (-1, "0s"),
            (0, "0.0s"),
            (9.94, "9.9s"),
            (59.4, "59s"),
            (60, "1m"),
            (61.2, "1m 1s"),
            (3600, "1h"),
            (86_399, "23h 59m"),
            (86_400, "1d"),
            (90_000, "1d 1h"),
            (8_640_000, "100d"),
        ):
            self.assertEqual(duration(seconds), text)

    @given(st.floats(0, 1e9))
    def test_every_duration_is_short(self, seconds: float) -> None:
        self.assertLessEqual(len(duration(seconds)), 12)


class TableTests(SynchronousTestCase):
    def test_no_terminal_no_colours_no_width_no_blanks_at_the_end(self) -> None:
        captured = Captured(self)
        show(table(["ID", "STATE", "N"], [["x" * 300, state("ready"), "1"]], right=["N"]))
        self.assertEqual(captured.out, f"ID{'':298}  STATE  N\n{'x' * 300}  ready  1\n")

    def test_colours_on_a_terminal_unless_they_are_not_wanted(self) -> None:
        # rich keeps the environment of the moment when it was imported, which may have been some other test's own.
        self.patch(Console, "_environ", os.environ)
        for value, wanted in (("", True), ("1", False)):
            with patch.dict(os.environ, {"NO_COLOR": value, "TERM": "xterm"}):
                terminal = Terminal()
                console(terminal).print(state("ready"))
                self.assertEqual("\x1b[32m" in terminal.getvalue(), wanted, value)


class PrintableTests(SynchronousTestCase):
    @given(st.text())
    def test_nothing_can_play_with_the_terminal(self, text: str) -> None:
        shown = printable(text)
        self.assertEqual(len(shown), len(text))
        self.assertTrue(all(character.isprintable() or character == "\t" for character in shown))
        self.assertNotIn("\x1b", shown)


class NarrowTests(SynchronousTestCase):
    def test_ids_are_whole_where_a_terminal_is_narrow(self) -> None:
        terminal = Terminal()
        target = console(terminal)
        target.width = 30
        target.print(table(["ID", "WHERE", "N"], [["sd-0123456789", "a-rather-long-address", "12"]], right=["N"]))
        head, row = terminal.getvalue().splitlines()
        self.assertIn("sd-0123456789", row)
        self.assertRegex(row, "a-rather.*…")
        self.assertIn("ID", head)

"""How commands speak."""

from __future__ import annotations

import io
import os
import re
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from sticky.cli.output import console, duration, printable, printable_lines, show, state, table, telling
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


class TellingTests(SynchronousTestCase):
    def test_what_says_most_about_an_end(self) -> None:
        for lines, said in (
            ([], ""),
            (["", " "], ""),
            (["up", "Traceback (most recent call last):", '  File "a"', "RuntimeError: no database"], "RuntimeError: no database"),
            (["throw e;", "Error: no module 'x'", "  at f (a.js:1)", "}", "", "Node.js v20.20.2"], "Error: no module 'x'"),
            (['Exception in thread "main" java.lang.Nope: x', "\tat A.main(A.java)"], 'Exception in thread "main" java.lang.Nope: x'),
            (["panic: gone", "goroutine 1 [running]:"], "panic: gone"),
            (["listening", "bye"], "bye"),
            (["Errors: 0", "done"], "done"),
        ):  # fmt: skip
            self.assertEqual(telling(lines), said)


class PrintableTests(SynchronousTestCase):
    @given(st.text())
    def test_nothing_can_play_with_the_terminal(self, text: str) -> None:
        shown = printable(text)
        self.assertEqual(len(shown), len(text))
        self.assertTrue(all(character.isprintable() or character == "\t" for character in shown))
        self.assertNotIn("\x1b", shown)

    @given(st.text())
    def test_lines_begin_where_there_are_line_feeds_and_nowhere_else(self, text: str) -> None:
        first, *more = printable_lines(text).split("\n")
        self.assertTrue(all(line.startswith("    ") for line in more))
        self.assertEqual(
            [first, *(line[4:] for line in more)], [printable(line) for line in text.rstrip("\n").split("\n")]
        )


class NarrowTests(SynchronousTestCase):
    IDS = ("ct-aaaaaa1bbbbbbbbbbb", "ct-aaaaaa2bbbbbbbbbbb")

    def lines(self, width: int, rows: int = 2) -> list[str]:
        terminal = Terminal()
        target = console(terminal)
        target.width = width
        cells = [[one, "127.0.0.1:20000", "12"] for one in self.IDS[:rows]]
        target.print(table(["ID", "ADDRESS", "N"], cells, right=["N"], spare=["ADDRESS"]))
        return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]

    def test_all_of_it_where_there_is_room(self) -> None:
        self.assertEqual(self.lines(42)[1], "ct-aaaaaa1bbbbbbbbbbb  127.0.0.1:20000  12")

    def test_first_ids_become_short_and_stay_different(self) -> None:
        self.assertEqual(self.lines(41)[1:], [f"{one[:10]}  127.0.0.1:20000  12" for one in self.IDS])
        self.assertEqual(self.lines(41, rows=1)[1], "ct-aaaaaa  127.0.0.1:20000  12")

    def test_then_what_is_spare_is_left_out(self) -> None:
        self.assertEqual(self.lines(30), ["ID           N", "ct-aaaaaa1  12", "ct-aaaaaa2  12"])

    def test_then_cells_are_below_each_other_and_whole(self) -> None:
        block = ["  ADDRESS  127.0.0.1:20000", "  N        12"]
        self.assertEqual(self.lines(13)[:1], ["ID"])
        self.assertEqual(self.lines(26, rows=0), ["ID  ADDRESS  N"])
        target = table(["ID", "ADDRESS", "N"], [[one, "127.0.0.1:20000", "12"] for one in self.IDS])
        terminal = Terminal()
        narrow = console(terminal)
        narrow.width = 28
        narrow.print(target)
        shown = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
        self.assertEqual(shown, [f"ID  {self.IDS[0]}", *block, f"ID  {self.IDS[1]}", *block])

"""Logs of containers are bounded in size and number, and their last lines can be read."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.logs import bound, last_lines, log_path, open_log, prune
from sticky.core.values import ContainerId, ServerName

ECHO = ServerName("echo")


class LogTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.path = log_path(self.folder, ECHO, ContainerId("ct-1"))
        self.log = open_log(self.path)
        self.addCleanup(os.close, self.log)

    def write(self, data: bytes) -> None:
        os.write(self.log, data)

    def test_only_the_owner_can_read_it(self) -> None:
        self.assertEqual(self.path.stat().st_mode & 0o077, 0)
        self.assertEqual(self.folder.stat().st_mode & 0o077, 0)

    def test_a_descriptor_of_a_log_does_not_pass_to_other_children(self) -> None:
        self.assertFalse(os.get_inheritable(self.log))

    def test_names_stay_in_the_folder_whatever_the_server_is_called(self) -> None:
        self.assertEqual(log_path(self.folder, ServerName("../x"), ContainerId("ct-1")).parent, self.folder)

    def test_last_lines_are_at_most_twenty_of_five_hundred_characters(self) -> None:
        self.write(b"".join(b"line %d\n" % number for number in range(30)) + "ü".encode() * 900 + b"\n")
        lines = last_lines(self.path)
        self.assertEqual(len(lines), 20)
        self.assertEqual(lines[0], "line 11")
        self.assertEqual(lines[-1], "ü" * 500)

    def test_what_would_steer_a_terminal_or_forge_a_line_is_replaced(self) -> None:
        self.write(b"\x1b[2J\x1b]0;owned\x07\tgone\rforged\x0b\xc2\x9b31m\xe2\x80\xae \xc3\xbc\n")
        other = "\N{REPLACEMENT CHARACTER}"
        lines = last_lines(self.path)
        self.assertEqual(
            lines,
            (
                f"{other}[2J{other}]0;owned{other}\tgone",
                "forged",
                f"{other}31m{other} \N{LATIN SMALL LETTER U WITH DIAERESIS}",
            ),
        )

    def test_reading_last_lines_is_bounded_however_large_the_log(self) -> None:
        os.truncate(self.path, 10**12)  # sparse
        self.write(b"\nend\n")
        self.assertEqual(last_lines(self.path)[-1], "end")

    def test_bytes_that_are_no_text_and_a_log_that_is_not_there_do_no_harm(self) -> None:
        self.write(b"\xff\xfe\n")
        self.assertEqual(last_lines(self.path), ("\ufffd\ufffd",))
        self.assertEqual(last_lines(self.folder / "none"), ())

    def test_what_is_no_file_holds_nobody_up_and_is_not_written_to(self) -> None:
        other = self.folder / "other"
        other.write_bytes(b"x" * 1000)
        for make in (os.mkfifo, lambda path: path.symlink_to(other), Path.mkdir):
            self.path.unlink()
            make(self.path)
            self.assertEqual(last_lines(self.path), ())
            self.assertFalse(bound(self.path, 1))
            self.assertRaises(OSError, open_log, self.path)
            self.assertEqual(other.stat().st_size, 1000)
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()
                self.path.touch()

    def test_a_log_within_its_limit_is_left_alone(self) -> None:
        self.write(b"x" * 100)
        self.assertFalse(bound(self.path, 100))
        self.assertEqual(self.path.read_bytes(), b"x" * 100)

    def test_a_log_over_its_limit_keeps_its_tail_and_its_writer(self) -> None:
        self.write(b"".join(b"%08d\n" % number for number in range(2000)))
        self.assertTrue(bound(self.path, 10_000))
        self.write(b"after\n")
        lines = self.path.read_text().splitlines()
        self.assertLess(self.path.stat().st_size, 10_000)
        self.assertIn("dropped", lines[0])
        self.assertEqual(lines[-2:], ["00001999", "after"])
        self.assertTrue(all(len(line) == 8 for line in lines[1:-1]))

    def test_the_newest_ended_logs_of_a_server_are_kept(self) -> None:
        for number in range(2, 7):
            path = log_path(self.folder, ECHO, ContainerId(f"ct-{number}"))
            path.write_text("x")
            os.utime(path, (number, number))
        os.utime(self.path, (0, 0))
        others = [
            log_path(self.folder, ServerName("echo.two"), ContainerId("ct-1")),
            self.folder / "echo.notes.log",
            self.folder / "sticky.log",
        ]
        for path in others:
            path.write_text("x")
        prune(self.folder, ECHO, {self.path}, kept=2)
        self.assertEqual(
            {path.name for path in self.folder.iterdir()},
            {"echo.ct-1.log", "echo.ct-5.log", "echo.ct-6.log", *(path.name for path in others)},
        )

    def test_pruning_a_folder_that_is_not_there_does_nothing(self) -> None:
        prune(self.folder / "none", ECHO, (), kept=1)
        self.assertTrue(self.path.exists())

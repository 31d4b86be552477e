"""What an operator reads about the end of a container."""

from __future__ import annotations

import errno
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.endings import cannot_start, ended, out_of_memory


class EndingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def test_each_way_to_fail_has_its_own_words(self) -> None:
        (self.folder / "script").write_text("#!/nowhere/python\n")
        cases = [
            ("exec", errno.ENOENT, "nothing", "command not found: nothing"),
            ("exec", errno.ENOENT, "./script", "interpreter"),
            ("exec", errno.ENOENT, "./other", "command not found: ./other"),
            ("exec", errno.EACCES, "./data", "not executable: ./data"),
            ("exec", errno.ENOEXEC, "./data", "#!"),
            ("exec", errno.E2BIG, "x", "Argument list too long"),
            ("chdir", errno.ENOENT, "x", str(self.folder)),
            ("session", errno.EPERM, "x", "session"),
        ]
        for step, number, command, expected in cases:
            self.assertIn(expected, cannot_start(step, number, command, self.folder))

    def test_an_end_says_how_and_whether_it_was_early(self) -> None:
        self.assertEqual(ended(3, None, was_ready=True), "exited with status 3")
        self.assertEqual(ended(0, None, was_ready=False), "exited with status 0 before it was ready")
        self.assertEqual(ended(None, 11, was_ready=True), "ended by SIGSEGV")
        self.assertEqual(ended(None, 44, was_ready=True), "ended by signal 44")

    def test_an_end_that_nobody_saw_says_that_its_status_is_not_known(self) -> None:
        self.assertIn("not known", ended(None, None, was_ready=True))

    def test_want_of_memory_is_the_kernels_doing(self) -> None:
        self.assertEqual(out_of_memory(was_ready=False), "killed by the kernel before it was ready: out of memory")

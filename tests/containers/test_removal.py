"""Folders that a program has filled as badly as it could."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.removal import remove_tree


class RemovalTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def nested(self, depth: int) -> None:
        """So many folders, one in the other, with a file in each: deeper than a path can be long."""
        at = os.open(self.folder, os.O_RDONLY)
        for _ in range(depth):
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
            os.mkdir("down", dir_fd=at)
            below = os.open("down", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)

    def test_a_thousand_levels_take_a_few_descriptors_and_no_recursion(self) -> None:
        self.nested(3 * sys.getrecursionlimit())
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, before[1]))
        try:
            remove_tree(self.folder)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        self.assertFalse(self.folder.exists())

    def test_links_are_not_followed(self) -> None:
        other = Path(self.mktemp()).absolute()
        (other / "inside").mkdir(parents=True)
        (other / "inside" / "file").write_text("kept")
        (self.folder / "wide").mkdir()
        for place in (self.folder, self.folder / "wide"):
            (place / "folder").symlink_to(other)
            (place / "file").symlink_to(other / "inside" / "file")
            (place / "nowhere").symlink_to("/no/such/thing")
        remove_tree(self.folder)
        self.assertFalse(self.folder.exists())
        self.assertEqual((other / "inside" / "file").read_text(), "kept")
        linked = self.folder.parent / "linked"
        linked.symlink_to(other)
        self.addCleanup(linked.unlink)
        self.assertRaises(OSError, remove_tree, linked)
        self.assertTrue((other / "inside").exists())

    def test_pipes_closed_folders_and_many_of_a_name(self) -> None:
        os.mkfifo(self.folder / "pipe")
        for name in ("one", "two"):
            (self.folder / name / "same" / "same").mkdir(parents=True)
            (self.folder / name / "same" / "file").touch()
            (self.folder / name).chmod(0)
        remove_tree(self.folder)
        self.assertFalse(self.folder.exists())

    def test_another_users_closed_folders_as_that_user(self) -> None:
        if os.geteuid():
            self.skipTest("takes root to become another one")  # the test before says the same then
        (self.folder / "one" / "two" / "three").mkdir(parents=True)
        (self.folder / "one" / "file").touch()
        for place in (self.folder / "one" / "two" / "three", self.folder / "one" / "two", self.folder / "one"):
            place.chmod(0)
            os.chown(place, 65534, 65534)
        os.chown(self.folder, 65534, 65534)
        top = os.open(self.folder, os.O_RDONLY)  # its parents are not for that user
        pid = os.fork()
        if not pid:
            try:
                os.setgroups([])
                os.setresuid(65534, 65534, 65534)
                try:
                    os.fchdir(top)
                    remove_tree(Path("."))
                except OSError:
                    pass  # the folder itself is in one of ours
                os._exit(len(os.listdir(top)))
            finally:
                os._exit(99)
        os.close(top)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_what_stays_is_an_error_and_the_rest_has_gone(self) -> None:
        self.assertRaises(FileNotFoundError, remove_tree, self.folder / "missing")
        for name in ("one", "two"):
            (self.folder / name / "below").mkdir(parents=True)
        unlink = os.rename

        def rename(source: str, *arguments: object, **named: int) -> None:
            if "one" in os.readlink(f"/proc/self/fd/{named['src_dir_fd']}"):
                raise OSError(16, "busy")
            unlink(source, *arguments, **named)  # type: ignore[arg-type]

        self.patch(os, "rename", rename)
        self.assertRaises(OSError, remove_tree, self.folder)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["one"])

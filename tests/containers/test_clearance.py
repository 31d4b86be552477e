"""Cgroups that do not go at once, and scratch folders that nobody stands for."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.cgroups import Group
from sticky.containers.clearance import Clearance, clear_scratch
from sticky.core.values import ContainerId


class ClearanceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clearance = Clearance(self.clock)
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def busy(self, name: str) -> Group:
        """A group with something in it, as a folder may be."""
        (self.folder / name / "process").mkdir(parents=True)
        return Group((self.folder / name,))

    def empty(self, name: str) -> None:
        (self.folder / name / "process").rmdir()

    def test_an_empty_group_goes_at_once_and_nothing_is_scheduled(self) -> None:
        group = self.busy("one")
        self.empty("one")
        self.clearance.remove(group)
        self.assertFalse((self.folder / "one").exists())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_is_still_busy_goes_later(self) -> None:
        self.clearance.remove(self.busy("one"))
        self.clearance.remove(self.busy("two"))
        self.empty("two")
        self.clock.advance(0.05)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["one"])
        self.empty("one")
        self.clock.advance(0.05)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_never_goes_is_left_to_a_later_daemon(self) -> None:
        self.clearance.remove(self.busy("one"))
        self.clock.pump([0.05] * 200)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertTrue((self.folder / "one").exists())

    def test_the_end_is_the_last_try(self) -> None:
        self.clearance.remove(self.busy("one"))
        self.empty("one")
        self.clearance.stop()
        self.assertFalse((self.folder / "one").exists())
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ScratchTests(SynchronousTestCase):
    def test_folders_of_unknown_containers_go_and_nothing_else_does(self) -> None:
        root = Path(self.mktemp())
        for name in ("ct-known", "ct-unknown", "else"):
            (root / name).mkdir(parents=True)
        (root / "ct-file").touch()
        (root / "ct-link").symlink_to(root / "else")
        (root / "ct-unknown" / "http.sock").touch()
        self.assertEqual(clear_scratch(root, [ContainerId("ct-known")]), {"ct-unknown"})
        self.assertEqual(sorted(path.name for path in root.iterdir()), ["ct-file", "ct-known", "ct-link", "else"])

    def test_where_there_is_no_folder_there_is_nothing_to_clear(self) -> None:
        self.assertEqual(clear_scratch(Path(self.mktemp()), []), frozenset())

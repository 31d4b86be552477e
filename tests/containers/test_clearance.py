"""Cgroups that do not go at once, and scratch folders that nobody stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.cgroups import Group
from sticky.containers.clearance import Clearance
from sticky.core.values import ContainerId


def no_thread(*what: object, **named: object) -> Deferred[None]:
    raise AssertionError("no folder is to be removed")


class ClearanceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clearance = Clearance(self.clock, no_thread)
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


class FolderTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.threads: list[tuple[Deferred[None], Callable[[], object]]] = []
        self.clearance = Clearance(Clock(), self.in_thread)

    def in_thread(self, function: Callable[..., object], *arguments: object, **named: object) -> Deferred[None]:
        self.threads.append((Deferred(), partial(function, *arguments, **named)))
        return self.threads[-1][0]

    def work(self) -> None:
        """What the threads are there for."""
        while self.threads:
            done, call = self.threads.pop(0)
            call()
            done.callback(None)

    def test_folders_of_unknown_containers_go_and_nothing_else_does(self) -> None:
        root = Path(self.mktemp())
        for name in ("ct-known", "ct-unknown", "else"):
            (root / name).mkdir(parents=True)
        (root / "ct-file").touch()
        (root / "ct-link").symlink_to(root / "else")
        (root / "ct-unknown" / "http.sock").touch()
        self.assertEqual(self.clearance.clear_scratch(root, [ContainerId("ct-known")]), {"ct-unknown"})
        (root / "ct-new").mkdir()  # of a container that came before the thread did
        self.work()
        self.assertEqual(
            sorted(path.name for path in root.iterdir()), ["ct-file", "ct-known", "ct-link", "ct-new", "else"]
        )

    def test_where_there_is_no_folder_there_is_nothing_to_clear(self) -> None:
        self.assertEqual(self.clearance.clear_scratch(Path(self.mktemp()), []), frozenset())

    def test_a_folder_goes_in_a_thread_and_the_end_waits_for_that(self) -> None:
        folder = Path(self.mktemp())
        (folder / "deep").mkdir(parents=True)
        self.clearance.remove_folder(folder)
        self.assertTrue(folder.exists())
        stopped = self.clearance.stop()
        self.assertNoResult(stopped)
        self.work()
        self.assertFalse(folder.exists())
        self.assertIsNone(self.successResultOf(stopped))

    def test_what_stays_is_said_in_a_line(self) -> None:
        said: list[str] = []
        self.patch(
            self.clearance, "_log", SimpleNamespace(warn=lambda text, **fields: said.append(text.format(**fields)))
        )
        for error in (FileNotFoundError(2, "nothing"), PermissionError(1, "not ours")):
            self.clearance.remove_folder(Path("ct-one"))
            self.threads.pop()[0].errback(error)
        self.assertEqual(said, ["the scratch folder ct-one stays behind: [Errno 1] not ours"])

    def test_one_that_cannot_be_removed_is_said_and_holds_up_nothing(self) -> None:
        self.clearance.remove_folder(Path(self.mktemp()))
        self.threads.pop()[0].errback(RuntimeError("no thread"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIsNone(self.successResultOf(self.clearance.stop()))

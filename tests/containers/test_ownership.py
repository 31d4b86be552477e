"""Whose process is it: by marks, sessions and descent, in a process table of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import ownership
from sticky.containers.census import Census, Process, boot_id, look
from sticky.containers.ownership import carriers, group_members, members, orphans, realm_of
from sticky.core.values import ContainerId

ONE, TWO = ContainerId("ct-1"), ContainerId("ct-2")
US = os.getpid()


class OwnershipTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.table: dict[int, Process] = {}
        self.environs: dict[int, frozenset[bytes]] = {}
        self.patch(Census, "take", lambda: Census(self.table))
        self.patch(ownership, "environ", lambda pid: self.environs.get(pid, frozenset()))

    def add(self, pid: int, parent: int = 1, session: int = 0, container: str = "", realm: str = "") -> None:
        self.table[pid] = Process(pid, "S", parent, session or pid, session or pid, 1)
        marks = [b"STICKY_CONTAINER_ID=%s" % container.encode()] if container else []
        marks += [b"STICKY_STATE=%s" % realm.encode()] if realm else []
        self.environs[pid] = frozenset(marks)

    def test_members_are_the_session_the_descendants_and_the_marked(self) -> None:
        self.add(2_000_001)
        self.add(2_000_002, session=2_000_001)
        self.add(2_000_003, parent=2_000_002)
        self.add(2_000_004, container=ONE)
        self.add(2_000_005, container=TWO)
        self.assertEqual(members(ONE, 2_000_001), [2_000_001, 2_000_002, 2_000_003, 2_000_004])

    def test_after_its_exit_the_leaders_number_is_a_strangers(self) -> None:
        self.add(2_000_001)
        self.add(2_000_002, parent=2_000_001)
        self.add(2_000_003, session=2_000_001)
        self.assertEqual(members(ONE, 2_000_001, leader_exited=True), [2_000_003])

    def test_the_same_container_in_another_realm_is_another_one(self) -> None:
        self.add(2_000_001, container=ONE, realm="a")
        self.add(2_000_002, container=ONE, realm="b")
        self.add(2_000_003, parent=2_000_001)
        self.assertEqual(carriers(ONE, "a"), {2_000_001, 2_000_003})
        self.assertEqual(members(ONE, 2_000_009, "b"), [2_000_002])

    def test_orphans_are_the_unknown_of_the_realm_with_what_they_lead_and_started(self) -> None:
        self.add(2_000_001, container=ONE, realm="a")
        self.add(2_000_002, session=2_000_001)
        self.add(2_000_003, parent=2_000_002)
        self.add(2_000_004, container=TWO, realm="a")
        self.add(2_000_005, container="ct-3", realm="b")
        self.add(2_000_006)
        self.assertEqual(orphans("a", [TWO]), {ONE: {2_000_001, 2_000_002, 2_000_003}})
        self.assertEqual(orphans("c", []), {})
        self.assertEqual(orphans("", []), {})

    def test_what_an_orphan_started_and_is_a_known_container_is_left(self) -> None:
        self.add(2_000_001, container=ONE, realm="a")
        self.add(2_000_002, parent=2_000_001, container=TWO, realm="a")
        self.assertEqual(orphans("a", [TWO]), {ONE: {2_000_001}})

    def test_never_ourselves_who_started_us_nor_what_we_started(self) -> None:
        self.add(2_000_001, container=ONE, realm="a")
        self.add(US, parent=2_000_001, container=ONE, realm="a")
        self.add(2_000_002, parent=US, container=ONE, realm="a")
        self.assertEqual(orphans("a", []), {})
        self.assertEqual(carriers(ONE, "a"), set())


class RealmTests(SynchronousTestCase):
    def test_a_state_directory_is_one_realm_by_whatever_name(self) -> None:
        one, other = Path(self.mktemp()), Path(self.mktemp())
        one.mkdir()
        other.mkdir()
        link = Path(self.mktemp())
        link.symlink_to(one.resolve())
        self.assertEqual(realm_of(one), realm_of(link))
        self.assertNotEqual(realm_of(one), realm_of(other))
        self.assertRegex(realm_of(one), "^[0-9a-f]{16}$")


class CensusTests(SynchronousTestCase):
    def test_we_are_in_it(self) -> None:
        process = look(US)
        assert process is not None
        self.assertEqual((process.parent, process.session), (os.getppid(), os.getsid(0)))
        self.assertEqual(Census.take().processes[US].started, process.started)
        self.assertTrue(boot_id())

    def test_a_look_at_some_finds_those_of_them_that_live(self) -> None:
        self.assertEqual(set(Census.take({US, 2**22 + 1}).processes), {US})
        self.assertEqual(group_members(os.getpgrp(), {US, 2**22 + 1}), {US})
        self.assertEqual(group_members(os.getpgrp(), ()), set())
        self.assertEqual(group_members(2**22 + 1, {US}), set())
        self.assertIn(US, group_members(os.getpgrp()))

    def test_who_is_not_there_is_none(self) -> None:
        self.assertIsNone(look(2**22 + 1))

    def test_a_circle_of_parents_ends(self) -> None:
        table = {pid: Process(pid, "S", parent, pid, pid, 1) for pid, parent in ((5, 6), (6, 5))}
        self.assertEqual(Census(table).ancestors(5), {5, 6})
        self.assertEqual(Census(table).descendants({5}), {6})

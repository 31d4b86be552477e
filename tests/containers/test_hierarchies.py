"""Which trees of control groups there are, and where ours may be, on folders that stand for the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import hierarchies as subject
from sticky.containers.hierarchies import Hierarchy, hierarchies


def second(mount: Path, shown: str = "/") -> str:
    return f"30 24 0:26 {shown} {mount} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"


class MountTests(SynchronousTestCase):
    FIRST = "".join(
        f"30 24 0:26 / /sys/fs/cgroup/{names} rw,nosuid shared:9 - cgroup cgroup rw,{names}\n"
        for names in ("cpu,cpuacct", "memory", "pids", "freezer")
    )

    def test_each_controller_has_its_own_in_version_1(self) -> None:
        found = hierarchies(self.FIRST, "")
        self.assertEqual(found["cpuacct"].mount, Path("/sys/fs/cgroup/cpu,cpuacct"))
        self.assertEqual({found[name].version for name in ("cpu", "memory", "pids", "freezer")}, {1})
        self.assertNotIn("", found)

    def test_a_machine_may_mix_the_two(self) -> None:
        top = Path(self.mktemp()).absolute()
        top.mkdir()
        (top / "cgroup.controllers").write_text("pids\n")
        found = hierarchies(self.FIRST.replace(",pids", ",misc") + second(top), "")
        self.assertEqual((found["memory"].version, found["pids"].version, found[""].version), (1, 2, 2))

    def test_spaces_in_a_mount_point_are_escaped_and_other_file_systems_are_none(self) -> None:
        found = hierarchies(
            "1 1 0:1 / /a\\040b rw - cgroup2 none rw\n1 1 0:1 / /proc rw - proc proc rw\nnonsense\n", ""
        )
        self.assertEqual(found[""].mount, Path("/a b"))
        self.assertEqual(list(found), [""])


class DelegationTests(SynchronousTestCase):
    """systemd marks what it has given to a unit (CGROUP_DELEGATION), and gives the files to the unit's user."""

    UNIT = "system.slice/sticky.service"

    def setUp(self) -> None:
        self.top = Path(self.mktemp()).absolute()
        self.marked: set[Path] = set()
        self.closed: set[Path] = {self.top}  # an ordinary user's view: not even the top's files
        self.patch(subject, "_attribute", lambda group, name: b"1" if group in self.marked else b"")
        self.patch(os, "access", lambda path, mode: Path(path) not in self.closed)
        self.group("", controllers="cpu memory pids")

    def group(self, path: str, controllers: str = "memory pids", processes: str = "") -> Path:
        folder = self.top / path
        folder.mkdir(parents=True)
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.procs").write_text(processes)
        return folder

    def unit(self, processes: str = "") -> Path:
        folder = self.group(self.UNIT, processes=processes)
        self.marked.add(folder)
        return folder

    def base(self, own: str, shown: str = "/") -> Path:
        return hierarchies(second(self.top, shown), f"9:pids:/elsewhere\n0::{own}\n")[""].base

    def test_the_top_where_nothing_is_delegated(self) -> None:
        self.group(self.UNIT)
        self.assertEqual(self.base(f"/{self.UNIT}"), self.top)
        self.assertEqual(self.base("/"), self.top)
        self.assertEqual(hierarchies(second(self.top), "")[""].base, self.top)
        self.assertFalse(Hierarchy(self.top, 2).delegated)

    def test_our_unit_and_the_controllers_that_it_was_given(self) -> None:
        unit = self.unit("77\n")
        found = hierarchies(second(self.top), f"0::/{self.UNIT}\n")
        self.assertEqual((found[""].base, found[""].delegated), (unit, True))
        self.assertEqual(sorted(found), ["", "memory", "pids"])
        self.assertEqual(found[""].folder("realm"), unit / "sticky/realm")

    def test_of_the_subgroup_that_systemd_puts_a_daemon_into_the_unit(self) -> None:
        unit = self.unit()
        self.group(f"{self.UNIT}/daemon", processes="77\n")
        self.assertEqual(self.base(f"/{self.UNIT}/daemon"), unit)

    def test_who_may_use_the_top_takes_that_where_nothing_could_be_limited_in_the_unit(self) -> None:
        unit = self.unit("77\n")
        self.closed = set()
        self.assertEqual(self.base(f"/{self.UNIT}"), self.top)
        (unit / "cgroup.procs").write_text("")
        self.group(f"{self.UNIT}/daemon", processes="77\n")
        self.assertEqual(self.base(f"/{self.UNIT}/daemon"), unit)

    def test_what_was_given_to_the_users_service_manager_is_not_ours(self) -> None:
        manager = self.group("user.slice/user@1000.service")
        self.marked.add(manager)
        self.group("user.slice/user@1000.service/init.scope")
        self.assertEqual(self.base("/user.slice/user@1000.service/init.scope"), self.top)

    def test_a_mark_on_what_we_may_not_write_to_is_none(self) -> None:
        unit = self.unit()
        self.closed.add(unit / "cgroup.procs")
        self.assertEqual(self.base(f"/{self.UNIT}"), self.top)

    def test_where_only_a_part_of_the_tree_is_mounted_paths_are_below_that(self) -> None:
        unit = self.group("sticky.service")
        self.marked.add(unit)
        self.assertEqual(self.base("/outer/sticky.service", shown="/outer"), unit)
        self.assertEqual(self.base("/sticky.service", shown="/outer"), self.top)
        self.assertEqual(self.base("/../sticky.service", shown="/"), self.top)

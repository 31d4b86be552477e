"""Control groups in hierarchies that are plain folders: which files are written with what. The kernel's are in integration."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import cgroups, hierarchies
from sticky.containers.cgroups import Cgroups, Group
from sticky.containers.isolation import Isolation
from sticky.containers.memory_limit import MemoryKills
from sticky.core.values import ContainerId

ONE, TWO = ContainerId("ct-one"), ContainerId("ct-two")
EVERYTHING = Isolation(memory=1 << 26, cpu=1.5, pids=100)
GIVEN = ("cgroup.procs", "cgroup.kill", "freezer.state", "memory.memsw.limit_in_bytes", "memory.swap.max")


class CgroupCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.top = Path(self.mktemp()).absolute()

    def first(self) -> str:
        """A machine with version 1 alone, as mountinfo shows it."""
        names = ("cpu,cpuacct", "memory", "pids", "freezer")
        return "".join(
            f"30 24 0:26 / {self.top}/{name} rw,nosuid shared:9 - cgroup cgroup rw,{name}\n" for name in names
        )

    def second(self, controllers: str = "cpu memory pids") -> str:
        self.top.mkdir(parents=True, exist_ok=True)
        (self.top / "cgroup.controllers").write_text(controllers + "\n")
        (self.top / "cgroup.subtree_control").write_text("\n")
        return f"30 24 0:26 / {self.top} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"

    def kernel(self, *folders: str, names: tuple[str, ...] = GIVEN) -> None:
        """What the kernel puts into a new group."""
        files = ("cgroup.procs", "cgroup.subtree_control", "memory.limit_in_bytes", "memory.max", "memory.oom.group",
                 "pids.max", "cpu.max", "cpu.cfs_period_us", "cpu.cfs_quota_us", *names)  # fmt: skip
        for folder in folders:
            (self.top / folder).mkdir(parents=True, exist_ok=True)
            for name in files:
                (self.top / folder / name).write_text("")

    def content(self, *names: str) -> list[str]:
        return [(self.top / name).read_text() for name in names]


class LimitTests(CgroupCase):
    def test_version_1_has_a_folder_in_each_hierarchy_that_limits(self) -> None:
        inside = [f"{name}/sticky/realm/ct-one" for name in ("freezer", "memory", "cpu,cpuacct", "pids")]
        self.kernel(*inside, *[str(Path(name).parent) for name in inside])
        group = Cgroups("realm", self.first()).make(ONE, EVERYTHING)
        assert group is not None
        self.assertEqual(group.folders, tuple(self.top / name for name in inside))
        self.assertEqual(
            self.content(*(f"{inside[1]}/memory.{name}limit_in_bytes" for name in ("", "memsw."))), ["67108864"] * 2
        )
        self.assertEqual(
            self.content(f"{inside[2]}/cpu.cfs_period_us", f"{inside[2]}/cpu.cfs_quota_us", f"{inside[3]}/pids.max"),
            ["100000", "150000", "100"],
        )
        self.assertEqual(group.entrances[0], self.top / inside[0] / "cgroup.procs")

    def test_a_launcher_enters_by_the_file_for_threads_where_there_is_one(self) -> None:
        self.kernel("freezer/sticky/realm", "freezer/sticky/realm/ct-one", names=("tasks",))
        group = Cgroups("realm", self.first()).make(ONE, Isolation())
        assert group is not None
        self.assertEqual(group.entrances, (self.top / "freezer/sticky/realm/ct-one/tasks",))

    def test_version_2_has_one_folder_and_kills_all_of_it(self) -> None:
        mounts = self.second()
        self.kernel("sticky", "sticky/realm", "sticky/realm/ct-one")
        group = Cgroups("realm", mounts).make(ONE, EVERYTHING)
        assert group is not None
        self.assertEqual(group.folders, (self.top / "sticky/realm/ct-one",))
        names = ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max")
        found = self.content(*(f"sticky/realm/ct-one/{name}" for name in names))
        self.assertEqual(found, ["67108864", "0", "1", "150000 100000", "100"])
        # The kernel's own file adds them up; here what is written last lies on top.
        levels = [f"{level}cgroup.subtree_control" for level in ("", "sticky/", "sticky/realm/")]
        self.assertEqual([text[:5] for text in self.content(*levels)], ["+pids"] * 3)

    def test_a_controller_that_is_on_already_is_not_switched_on_again(self) -> None:
        mounts = self.second()
        self.kernel("sticky", "sticky/realm", "sticky/realm/ct-one")
        for folder in ("", "sticky", "sticky/realm"):
            (self.top / folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
        Cgroups("realm", mounts).make(ONE, EVERYTHING)
        self.assertEqual(self.content("cgroup.subtree_control"), ["cpu memory pids\n"])

    def test_a_file_that_this_kernel_has_not_got_is_left_out_where_it_may_be(self) -> None:
        inside = ["freezer/sticky/realm/ct-one", "memory/sticky/realm/ct-one"]
        self.kernel(*inside, "freezer/sticky/realm", "memory/sticky/realm", names=("cgroup.procs",))
        group = Cgroups("realm", self.first()).make(ONE, Isolation(memory=1 << 26))
        assert group is not None
        self.assertFalse((self.top / inside[1] / "memory.memsw.limit_in_bytes").exists())

    def test_a_tiny_share_of_a_processor_is_the_kernels_least(self) -> None:
        mounts = self.second()
        self.kernel("sticky", "sticky/realm", "sticky/realm/ct-one")
        Cgroups("realm", mounts).make(ONE, Isolation(cpu=0.001))
        self.assertEqual(self.content("sticky/realm/ct-one/cpu.max"), ["1000 100000"])

    def test_without_limits_one_hierarchy_keeps_track_the_freezer_first(self) -> None:
        mounts = self.first() + self.second("")
        self.kernel("sticky/realm", "freezer/sticky/realm", "freezer/sticky/realm/ct-one")
        group = Cgroups("realm", mounts).make(ONE, Isolation())
        assert group is not None
        self.assertEqual(group.folders, (self.top / "freezer/sticky/realm/ct-one",))

    def test_without_a_freezer_version_2_keeps_track(self) -> None:
        mounts = self.first().replace("freezer", "misc") + self.second("")
        self.kernel("sticky/realm", "sticky/realm/ct-one", "pids/sticky/realm")
        group = Cgroups("realm", mounts).make(ONE, Isolation())
        assert group is not None
        self.assertEqual(group.folders, (self.top / "sticky/realm/ct-one",))

    def test_below_what_was_delegated_the_top_is_left_alone(self) -> None:
        mounts = self.second()
        unit = self.top / "sticky.service"
        inside = ("sticky.service/sticky", "sticky.service/sticky/realm", "sticky.service/sticky/realm/ct-one")
        self.kernel("sticky.service", *inside)
        (unit / "cgroup.controllers").write_text("memory pids\n")
        self.patch(hierarchies, "_attribute", lambda group, name: b"1" if group == unit else b"")
        group = Cgroups("realm", mounts, "0::/sticky.service/daemon\n").make(ONE, Isolation(pids=7))
        assert group is not None
        self.assertEqual(group.folders, (self.top / inside[-1],))
        self.assertEqual(self.content(f"{inside[-1]}/pids.max"), ["7"])
        levels = [f"{level}/cgroup.subtree_control" for level in ("sticky.service", *inside[:2])]
        self.assertEqual(self.content(*levels, "cgroup.subtree_control"), ["+pids", "+pids", "+pids", "\n"])

    def test_a_group_with_processes_cannot_be_divided_and_that_is_said(self) -> None:
        mounts = self.second()
        self.kernel("sticky", "sticky/realm")

        def write(file: Path, value: str) -> None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

        self.patch(cgroups, "_write", write)
        found = Cgroups("realm", mounts).problem(Isolation(memory=1 << 26))
        assert found is not None
        self.assertEqual(found[0], "memory")
        self.assertIn(f"Device or resource busy; there are processes in {self.top} itself", found[1])
        self.assertIn("DelegateSubgroup=", found[1])

    def test_a_version_2_that_cannot_kill_keeps_track_if_it_can_stop(self) -> None:
        mounts = self.second("")
        self.kernel("sticky/realm", names=("cgroup.freeze",))
        self.assertIsNotNone(Cgroups("realm", mounts).tracker())

    def test_a_version_2_that_cannot_kill_does_not_keep_track(self) -> None:
        mounts = self.first() + self.second("")
        self.kernel("sticky/realm", names=("cgroup.procs",))
        self.kernel("pids/sticky/realm")
        tracker = Cgroups("realm", mounts.replace("freezer", "misc")).tracker()
        assert tracker is not None
        self.assertEqual(tracker.mount, self.top / "pids")

    def test_without_a_realm_there_are_none_and_limits_are_refused(self) -> None:
        cgroups = Cgroups("", self.first())
        self.assertIsNone(cgroups.tracker())
        self.assertIsNone(cgroups.make(ONE, Isolation()))
        self.assertRaises(OSError, cgroups.make, ONE, EVERYTHING)
        self.assertEqual(
            cgroups.problem(EVERYTHING),
            ("memory", "this machine has no cgroup controller 'memory' (neither version 1 nor 2)"),
        )

    def test_a_hierarchy_that_nobody_may_write_to_is_a_problem_with_a_way_out(self) -> None:
        self.top.parent.mkdir(parents=True, exist_ok=True)
        self.top.write_text("a file, where a folder should be")
        found = Cgroups("realm", self.first()).problem(Isolation(pids=1))
        assert found is not None
        self.assertEqual(found[0], "pids")
        self.assertIn("cannot be used: Not a directory; it takes root and a writable", found[1])

    def test_a_group_that_cannot_be_limited_is_not_left_behind(self) -> None:
        self.kernel("freezer/sticky/realm", "pids/sticky/realm")  # no kernel, so no files in a new folder
        self.assertRaises(OSError, Cgroups("realm", self.first()).make, ONE, Isolation(pids=1))
        self.assertEqual(list(self.top.glob("*/sticky/realm/ct-one")), [])


class GroupTests(CgroupCase):
    def group(self, *folders: str) -> Group:
        self.kernel(*folders)
        return Group(tuple(self.top / folder for folder in folders))

    def test_its_members_are_those_of_all_its_folders(self) -> None:
        group = self.group("one", "two")
        (self.top / "one/cgroup.procs").write_text("3\n5\n0\n")
        (self.top / "two/cgroup.procs").write_text("5\n7\n")
        self.assertEqual(group.members(), {3, 5, 7})

    def test_one_write_kills_it_where_the_kernel_can(self) -> None:
        group = self.group("one")
        (self.top / "one/cgroup.procs").write_text(f"{os.getpid()}\n")  # had we been asked, we were dead
        group.kill()
        self.assertEqual(self.content("one/cgroup.kill", "one/freezer.state"), ["1", ""])

    def test_elsewhere_it_is_frozen_while_its_members_are_killed(self) -> None:
        group = self.group("one")
        (self.top / "one/cgroup.kill").unlink()
        group.kill()
        self.assertEqual(self.content("one/freezer.state"), ["THAWED"])

    def test_or_stopped_where_version_2_can_only_do_that(self) -> None:
        group = self.group("one")
        for name in ("cgroup.kill", "freezer.state"):
            (self.top / "one" / name).unlink()
        (self.top / "one/cgroup.freeze").write_text("")
        group.kill()
        self.assertEqual(self.content("one/cgroup.freeze"), ["0"])

    def test_its_folder_in_version_2_is_known_by_its_events(self) -> None:
        group = self.group("one", "two")
        self.assertIsNone(group.unified)
        (self.top / "two/cgroup.events").write_text("populated 0\nfrozen 0\n")
        self.assertEqual(group.unified, self.top / "two")

    def test_it_counts_memory_only_where_it_limits_it(self) -> None:
        group = self.group("one", "two")
        self.assertIsNone(group.memory_counter)
        (self.top / "two/memory.events").write_text("oom_kill 0\n")
        self.assertEqual(group.memory_counter, self.top / "two/memory.events")

    def test_one_that_is_gone_has_no_members_and_is_removed(self) -> None:
        group = Group((self.top / "nowhere",))
        self.assertEqual(group.members(), set())
        group.kill()
        self.assertTrue(group.remove())

    def test_one_that_holds_something_is_not_removed(self) -> None:
        self.assertFalse(self.group("one").remove())


class LeftTests(CgroupCase):
    def test_those_that_are_not_known_are_found_with_all_their_folders(self) -> None:
        for folder in ("freezer/sticky/realm/ct-one", "pids/sticky/realm/ct-one", "pids/sticky/realm/ct-two"):
            (self.top / folder).mkdir(parents=True)
        (self.top / "pids/sticky/other/ct-three").mkdir(parents=True)
        cgroups = Cgroups("realm", self.first())
        found = cgroups.strays([TWO])
        self.assertEqual(list(found), [ONE])
        self.assertEqual(len(found[ONE].folders), 2)
        self.assertIsNone(cgroups.existing(ContainerId("ct-three")))

    def test_a_later_daemon_finds_one_of_version_2_with_its_limit_and_how_it_is_ended(self) -> None:
        mounts = self.second()
        inside = "sticky/realm/ct-one"
        self.kernel("sticky", "sticky/realm", inside, names=(*GIVEN, "cgroup.events", "memory.events"))
        made = Cgroups("realm", mounts).make(ONE, Isolation(memory=1 << 26))
        group = Cgroups("realm", mounts).existing(ONE)
        assert group is not None
        self.assertEqual(group, made)
        self.assertEqual(
            (group.unified, group.memory_counter), (self.top / inside, self.top / inside / "memory.events")
        )
        (self.top / inside / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
        kills = MemoryKills()
        kills.expect(self.top / inside / "memory.events")  # of an adopted one, too, what came before is its own
        self.assertTrue(kills.explain(group.memory_counter))
        (self.top / inside / "cgroup.procs").write_text("5\n7\n")
        self.assertEqual(group.members(), {5, 7})
        group.kill()
        self.assertEqual(self.content(f"{inside}/cgroup.kill"), ["1"])
        self.assertEqual(list(Cgroups("realm", mounts).strays([])), [ONE])
        self.assertEqual(list(Cgroups("realm", mounts).strays([ONE])), [])

    def test_the_realms_own_folders_go_when_they_are_empty(self) -> None:
        for folder in ("freezer/sticky/realm", "pids/sticky/realm/ct-two"):
            (self.top / folder).mkdir(parents=True)
        Cgroups("realm", self.first()).close()
        self.assertEqual(sorted(path.name for path in self.top.glob("*/sticky/realm/*")), ["ct-two"])
        self.assertFalse((self.top / "freezer/sticky").exists())

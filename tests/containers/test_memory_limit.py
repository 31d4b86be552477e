"""The kernel's counters of whom it killed for want of memory."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.memory_limit import MemoryKills

V1 = "12:pids:/\n9:cpu,memory:/sticky/one\n0::/\n"
V2 = "0::/sticky.service\n"


class MemoryKillsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.proc, self.cgroups = self.folder / "proc", self.folder / "cgroup"
        (self.proc / "7").mkdir(parents=True)
        self.kills = MemoryKills(self.proc, self.cgroups)

    def write(self, path: str, kills: int) -> None:
        file = self.cgroups / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"low 0\noom 9\noom_kill {kills}\noom_group_kill 0\n")

    def counter(self, line: str) -> Path | None:
        (self.proc / "7" / "cgroup").write_text(line)
        return self.kills.cgroup(7)

    def test_the_counter_is_that_of_the_processs_cgroup_in_both_versions(self) -> None:
        self.write("memory/sticky/one/memory.oom_control", 0)
        self.write("sticky.service/memory.events", 0)
        self.assertEqual(self.counter(V1), self.cgroups / "memory/sticky/one/memory.oom_control")
        self.assertEqual(self.counter(V2), self.cgroups / "sticky.service/memory.events")

    def test_where_the_path_is_the_hosts_the_mount_is_our_cgroup(self) -> None:
        self.write("memory.events", 0)
        self.assertEqual(self.counter(V2), self.cgroups / "memory.events")

    def test_in_version_2_the_nearest_above_counts_for_a_group_whose_memory_nobody_accounts_for(self) -> None:
        self.write("system.slice/sticky.service/memory.events", 0)
        self.write("system.slice/sticky.service/daemon/memory.events", 0)  # where the process comes from
        (self.proc / "7" / "cgroup").write_text("0::/system.slice/sticky.service/daemon\n")
        group = self.cgroups / "system.slice/sticky.service/sticky/realm/ct-one"
        self.assertEqual(self.kills.cgroup(7, group), self.cgroups / "system.slice/sticky.service/memory.events")
        self.assertIsNone(self.kills.cgroup(7, self.cgroups / "sticky/realm/ct-one"))

    def test_where_version_1_has_the_memory_a_group_of_version_2_says_nothing(self) -> None:
        self.write("memory/sticky/one/memory.oom_control", 0)
        (self.proc / "7" / "cgroup").write_text(V1)
        group = self.cgroups / "unified/sticky/realm/ct-one"
        self.assertEqual(self.kills.cgroup(7, group), self.cgroups / "memory/sticky/one/memory.oom_control")

    def test_where_nobody_counts_nothing_is_explained(self) -> None:
        self.assertIsNone(self.counter(V2))
        self.assertIsNone(self.kills.cgroup(8))
        self.assertFalse(self.kills.explain(None))

    def test_each_kill_explains_one_death_and_earlier_ones_none(self) -> None:
        self.write("memory.events", 3)
        counter = self.counter(V2)
        self.assertFalse(self.kills.explain(counter))
        self.write("memory.events", 5)
        self.assertEqual(self.counter(V2), counter)  # the next container of the same cgroup
        self.assertEqual([self.kills.explain(counter) for _ in range(3)], [True, True, False])

    def test_a_counter_that_went_away_explains_nothing(self) -> None:
        self.write("memory.events", 3)
        counter = self.counter(V2)
        (self.cgroups / "memory.events").unlink()
        self.assertFalse(self.kills.explain(counter))

"""What a Server's settings ask for, what the launcher is told of it, and what a machine cannot do."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import confinement
from sticky.containers.abilities import Machine, problem
from sticky.containers.cgroups import Cgroups, Group
from sticky.containers.confinement import User
from sticky.containers.isolation import (
    CACHE_FOLDER,
    RUNTIME_FOLDER,
    Descendants,
    Isolation,
    kept_folder,
    key_of,
    options,
    scratch_root,
)
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec

SPEC = ContainerSpec(
    container=ContainerId("ct-one"),
    server=ServerName("echo"),
    deployment=DeploymentId("d1"),
    app="app",
    command=("true",),
    directory=Path("/"),
    log=Path("/nowhere/log"),
    scratch=Path("/nowhere/run/ct-one"),
)
NOBODY = User("nobody", 65534, 65533, (65532, 65533), "/nonexistent")
GIBIBYTE = 1 << 30


class OptionsTests(SynchronousTestCase):
    def test_only_what_was_asked_for_travels_and_it_comes_back_the_same(self) -> None:
        self.assertEqual(options(Path("/state")), {"state_dir": "/state"})
        asked = options(Path("/state"), isolation={"network": True, "descendants": "cgroup"}, pids=5, user="nobody")
        self.assertEqual(
            Isolation.read(asked),
            Isolation(state_dir="/state", network=True, descendants=Descendants.CGROUP, pids=5, user="nobody"),
        )

    def test_what_is_of_another_backend_is_refused(self) -> None:
        self.assertRaises(ValueError, Isolation.read, {"image": "game:3"})
        self.assertRaises(ValueError, Isolation.read, {"descendants": "magic"})

    def test_a_plain_one_takes_no_cgroup_and_no_file_system(self) -> None:
        self.assertFalse(Isolation().limited or Isolation().wrapped)
        for limit in ({"memory": 1}, {"cpu": 0.5}, {"pids": 1}):
            self.assertTrue(Isolation(**limit).limited, limit)

    def test_another_users_scratch_folders_are_where_that_user_gets_to(self) -> None:
        self.assertEqual(scratch_root(options(Path("/state")), "realm"), Path("/state/run"))
        self.assertEqual(scratch_root(options(Path("/state"), user="nobody"), "realm"), RUNTIME_FOLDER / "realm")

    def test_what_is_kept_is_where_that_user_gets_to_and_nobody_else(self) -> None:
        self.assertEqual(kept_folder(Path("/state"), "realm", None, "packages"), Path("/state/packages"))
        found = kept_folder(Path("/state"), "realm", "../no:body", "packages")
        self.assertEqual(found, CACHE_FOLDER / "realm" / "..%2Fno%3Abody" / "packages")
        self.assertEqual(Isolation.read(options(Path("/state"), kept=found)).kept, str(found))

    def test_errors_call_settings_as_the_configuration_does(self) -> None:
        self.assertEqual((key_of("network"), key_of("memory")), ("isolation.network", "memory"))


class UserTests(SynchronousTestCase):
    def test_by_name_number_and_group(self) -> None:
        by_name = confinement.user("root")
        self.assertEqual((by_name.uid, by_name.gid, by_name.home), (0, 0, "/root"))
        self.assertEqual(confinement.user("0"), by_name)
        self.assertEqual(confinement.user("root:0").groups, (0,))
        self.assertEqual(by_name.variables, {"HOME": "/root", "USER": "root", "LOGNAME": "root"})

    def test_whom_the_machine_does_not_know(self) -> None:
        for text in ("no-such-user-here", "4123456789", "root:no-such-group-here"):
            self.assertRaises(ValueError, confinement.user, text)


class LinesTests(SynchronousTestCase):
    def lines(self, isolation: Isolation, group: Group | None = None, who: User | None = None) -> list[str]:
        return confinement.lines(SPEC, isolation, group, who).splitlines()

    def bubblewrapped(self, isolation: Isolation) -> list[str]:
        self.patch(confinement, "bubblewrap", lambda: "/usr/bin/bwrap")
        found = self.lines(isolation)
        self.assertEqual({line.partition(" ")[0] for line in found}, {"subreaper", "wrap"})
        return [line.partition(" ")[2] for line in found[1:]]

    def test_a_plain_child_is_a_subreaper_where_nothing_else_keeps_its_descendants_together(self) -> None:
        self.assertEqual(self.lines(Isolation()), ["subreaper yes"])
        self.assertEqual(self.lines(Isolation(), Group((Path("/a"),))), ["cgroup /a/cgroup.procs"])
        self.assertEqual(self.lines(Isolation(descendants=Descendants.PID_NAMESPACE)), ["pid_namespace yes"])

    def test_the_group_comes_first_and_the_user_last(self) -> None:
        isolation = Isolation(network=True, descendants=Descendants.PID_NAMESPACE, rlimits={"nofile": 9, "core": 0})
        found = self.lines(isolation, Group((Path("/a"), Path("/b"))), NOBODY)
        self.assertEqual(
            found,
            [
                "cgroup /a/cgroup.procs",
                "cgroup /b/cgroup.procs",
                "network yes",
                "pid_namespace yes",
                "rlimit nofile 9",
                "rlimit core 0",
                "user 65534 65533 65532 65533",
            ],
        )

    def test_a_file_system_of_its_own_shows_no_state_directory_and_keeps_the_scratch_folder(self) -> None:
        state = Path(self.mktemp()).absolute()
        state.mkdir()
        found = self.bubblewrapped(Isolation(read_only=True, writable=("/srv/data",), state_dir=str(state)))
        self.assertEqual(found[:2], ["/usr/bin/bwrap", "--die-with-parent"])
        text = " ".join(found)
        self.assertIn("--ro-bind / /", text)
        self.assertIn("--perms 1777 --tmpfs /tmp", text)
        self.assertIn("--bind /srv/data /srv/data", text)
        hidden, scratch = text.index(f"--tmpfs {state}"), text.index(f"--bind {SPEC.scratch} {SPEC.scratch}")
        self.assertLess(hidden, scratch)

    def test_with_a_private_tmp_alone_the_rest_can_be_written(self) -> None:
        found = " ".join(self.bubblewrapped(Isolation(private_tmp=True)))
        self.assertIn(" --bind / / ", found)
        self.assertNotIn("--ro-bind", found)

    def test_without_bubblewrap_it_says_what_to_install(self) -> None:
        self.patch(confinement, "bubblewrap", lambda: None)
        refused = self.assertRaises(ValueError, self.lines, Isolation(read_only=True))
        self.assertEqual(str(refused), "bwrap is not installed (Debian package: bubblewrap)")

    def test_a_line_break_in_a_path_is_not_taken_for_another_line(self) -> None:
        self.patch(confinement, "bubblewrap", lambda: "/usr/bin/bwrap")
        for path in ("/a\nuser 0 0", "/a\u2028b", "/a\rb"):
            self.assertRaises(ValueError, self.lines, Isolation(read_only=True, writable=(path,)))


class MachineTests(SynchronousTestCase):
    """A machine where nothing may be done, and one where all may."""

    weak = Machine(Cgroups("", ""), capabilities=lambda: 0, wraps=lambda: "bwrap does not work here")
    strong = Machine(Cgroups("", ""), capabilities=lambda: -1, wraps=lambda: None)

    def problem(self, isolation: Isolation, machine: Machine | None = None) -> tuple[str, str]:
        found = (self.weak if machine is None else machine).problem(isolation)
        assert found is not None
        return found

    def test_a_plain_child_takes_nothing(self) -> None:
        self.assertIsNone(self.weak.problem(Isolation(state_dir="/state")))

    def test_each_thing_says_what_is_missing_for_it(self) -> None:
        root = "and this daemon has not got it"
        for isolation, key, words in (
            (Isolation(network=True), "network", root),
            (Isolation(user="root"), "user", root),
            (Isolation(user="no-such-user-here"), "user", "there is no user"),
            (Isolation(memory=GIBIBYTE), "memory", "no cgroup controller"),
            (Isolation(cpu=1.0), "cpu", "no cgroup controller"),
            (Isolation(pids=9), "pids", "no cgroup controller"),
            (Isolation(descendants=Descendants.CGROUP), "descendants", "it takes root"),
            (Isolation(descendants=Descendants.PID_NAMESPACE), "descendants", root),
            (Isolation(read_only=True), "read_only", "bwrap does not work here"),
            (Isolation(private_tmp=True), "private_tmp", "bwrap does not work here"),
            (Isolation(writable=("/tmp",)), "writable", "without read_only or private_tmp"),
            (Isolation(private_tmp=True, writable=("/no/such/path",)), "writable", "there is no /no/such/path"),
        ):
            found = self.problem(isolation)
            self.assertEqual(found[0], key)
            self.assertIn(words, found[1])

    def test_where_all_may_be_done_all_is(self) -> None:
        isolation = Isolation(
            network=True, user="root", read_only=True, descendants=Descendants.PID_NAMESPACE, rlimits={"nofile": 10}
        )
        self.assertIsNone(self.strong.problem(isolation))

    def test_memory_in_which_not_even_the_launcher_fits(self) -> None:
        self.assertEqual(
            self.problem(Isolation(memory=1 << 20), self.strong),
            ("memory", "is too little to start anything in; allowed: 16Mi and more"),
        )

    def test_a_limit_above_the_daemons_own_takes_root(self) -> None:
        import resource

        self.patch(resource, "getrlimit", lambda number: (10, 10))
        isolation = Isolation(rlimits={"nofile": 11})
        self.assertIn("above this daemon's own hard limit, which is 10", self.problem(isolation)[1])
        self.assertIsNone(self.strong.problem(isolation))
        self.assertIsNone(self.weak.problem(Isolation(rlimits={"nofile": 10})))

    def test_options_of_another_backend_are_a_problem_and_no_traceback(self) -> None:
        found = problem({"image": "game:3"}, f"test-{os.getpid()}")
        assert found is not None
        self.assertEqual(found[0], "isolation")

"""Control groups of version 2 as the kernel has them, also where version 1 comes first: kills, stops, delegation to a user."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import SkipTest

from sticky.containers import cgroups
from sticky.containers.cgroups import Cgroups
from sticky.containers.child import Child
from sticky.containers.isolation import Isolation
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId
from tests.containers.conformance import Recorder
from tests.integration.children import LISTENS, PYTHON, alive, written
from tests.integration.isolation_case import IsolationCase, cgroup_folders
from tests.integration.process_case import ENVIRON, REACTOR
from tests.integration.test_process_cgroups import HIDES, pid_of

#: Becomes an ordinary user in a unit of systemd's that was delegated to that user; says what it can do there.
USER = """
import json, os, sys, time
from pathlib import Path
from sticky.containers.cgroups import Cgroups
from sticky.containers.isolation import Isolation

unit, mountinfo, subgroup = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
unit.mkdir()
group = unit / subgroup
group.mkdir(exist_ok=True)
(group / "cgroup.procs").write_text("0")
given = [path for each in {unit, group} for path in
         (each, *(each / f"cgroup.{name}" for name in ("procs", "threads", "subtree_control")))]
for path in given:
    os.chown(path, 65534, 65534)
os.setxattr(unit, "user.delegate", b"1")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)

cgroups = Cgroups("realm", mountinfo)
said = {"problem": cgroups.problem(Isolation(pids=50)), "controllers": (unit / "cgroup.controllers").read_text()}
tracker = cgroups.tracker()
said["base"] = str(tracker and tracker.base)
made = cgroups.make("ct-one", Isolation() if said["problem"] else Isolation(pids=50))
said["limit"] = (made.folders[0] / "pids.max").read_text() if (made.folders[0] / "pids.max").exists() else ""
read, write = os.pipe()
if os.fork() == 0:
    for entrance in made.entrances:
        entrance.write_text("0")
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(write, b"1")
    time.sleep(600)
os.wait()
os.read(read, 1)
said["inside"] = len(made.members())
made.kill()
end = time.monotonic() + 30
while (made.members() or not made.remove()) and time.monotonic() < end:
    time.sleep(0.01)
said["left"] = made.folders[0].exists()
cgroups.close()
said["realm"] = (unit / "sticky").exists()
print(json.dumps(said))
"""

FORKS = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)  # a new process each time: whoever looks is always late
            os.setsid()
            time.sleep(0.0005)
print("forking", flush=True)
time.sleep(600)
"""


def second() -> str:
    """What mountinfo says of version 2's own tree, as if there were no other; skips where there is none that we may use."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            if Cgroups("test-second", line).tracker() is None:
                raise SkipTest("version 2's tree of control groups cannot be written to: it takes root")
            Cgroups("test-second", line).close()
            return line
    raise SkipTest("version 2 of control groups is not mounted here")


class SecondCase(IsolationCase):
    def make_backend(self, **settings: Any) -> ProcessBackend:
        self.line = second()
        return super().make_backend(cgroups=Cgroups("test-cgroup2", self.line), **settings)

    def clean(self) -> None:
        super().clean()
        Cgroups("test-cgroup2", self.line).close()


class TrackTests(SecondCase):
    async def test_a_hidden_grandchild_goes_with_its_container(self) -> None:
        for ending in ("terminate", "kill"):
            container = self.run_container(*PYTHON, HIDES + LISTENS)
            await self.ready(container)
            self.assertEqual(container.place["descendants"], "cgroup")
            assert container.group is not None
            self.assertEqual(container.group.unified, container.group.folders[0])
            hidden = pid_of("hidden", await self.output(container))
            self.assertIn(hidden, container.group.members())
            getattr(container, ending)()
            await self.exit(container)
            self.assertFalse(alive(hidden), ending)
            await self.until(lambda container=container: not cgroup_folders(container.id))  # type: ignore[misc]

    async def test_a_kernel_that_cannot_kill_a_group_stops_it_first(self) -> None:
        write = cgroups._write

        def before_linux_5_14(file: Path, value: str) -> None:
            if file.name == "cgroup.kill":
                raise FileNotFoundError
            write(file, value)

        self.patch(cgroups, "_write", before_linux_5_14)
        container = self.run_container(*PYTHON, FORKS)
        await self.output(container)
        group = container.group
        assert group is not None
        container.kill()
        await self.exit(container)
        self.assertEqual(group.members(), set())
        await self.until(lambda: not cgroup_folders(container.id))

    async def test_killing_once_is_enough_whatever_forks(self) -> None:
        container = self.run_container(*PYTHON, FORKS)
        await self.output(container)
        group = container.group
        assert group is not None
        group.kill()
        await self.until(lambda: not group.members())
        await self.exit(container)


class AdoptedTests(SecondCase):
    """A daemon left it in a group of version 2, and the next one finds both."""

    def daemon(self) -> ProcessBackend:
        cgroups = Cgroups("test-cgroup2", self.line)
        return ProcessBackend(REACTOR, environ=ENVIRON, realm=self.realm, cgroups=cgroups, die_with_daemon=False)

    async def left(self) -> tuple[Child, int]:
        """And what hides in it."""
        earlier = self.daemon()
        container = earlier.spawn(self.make_spec(*PYTHON, HIDES + LISTENS), Recorder())
        hidden: list[int] = []

        def there() -> bool:
            lines = written(container.spec.log).splitlines()
            hidden[:] = [pid_of("hidden", lines)] if "listening" in lines else []
            return bool(hidden)

        await self.until(there)
        await earlier.stop()
        return container, hidden[0]

    async def test_it_is_taken_over_and_ends_with_all_that_hides_in_it(self) -> None:
        left, hidden = await self.left()
        container = self.backend.adopt(left.spec, dict(left.place), None, self.recorder)
        assert container is not None
        self.spawned.append(container)
        await self.ready(container)
        self.assertEqual((container.group, container.place["descendants"]), (left.group, "cgroup"))
        assert container.group is not None and container.group.unified is not None
        self.assertLessEqual({container.pid, hidden}, container.group.members())
        container.terminate()
        await self.exit(container)
        self.assertFalse(alive(hidden))
        await self.until(lambda: not cgroup_folders(left.id))

    async def test_what_nobody_knows_is_killed_with_its_group(self) -> None:
        left, hidden = await self.left()
        self.assertEqual(self.backend.orphans([]), {left.id})
        await self.until(lambda: not alive(hidden) and not cgroup_folders(left.id))


class DelegatedTests(IsolationCase):
    def said_by_a_user(self, subgroup: str) -> tuple[Path, dict[str, Any]]:
        line = second()
        unit = Path(line.split(" ")[4]) / f"sticky-test-{os.urandom(4).hex()}.service"
        self.addCleanup(self.remove_unit, unit)
        done = subprocess.run(
            [sys.executable, "-c", USER, str(unit), line, subgroup], capture_output=True, text=True, timeout=110
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return unit, self.parsed(done.stdout)

    def parsed(self, text: str) -> dict[str, Any]:
        import json

        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def remove_unit(self, unit: Path) -> None:
        end = time.monotonic() + 30
        for each in (unit / "daemon", unit):
            while each.exists() and time.monotonic() < end:
                try:
                    each.rmdir()
                except OSError:
                    time.sleep(0.01)  # its last process is on its way out

    def test_a_user_keeps_track_within_a_unit(self) -> None:
        unit, said = self.said_by_a_user(".")
        self.assertEqual((said["base"], said["inside"], said["left"], said["realm"]), (str(unit), 1, False, False))
        limit, problem = said["problem"]
        self.assertEqual(limit, "pids")
        if "pids" in said["controllers"].split():
            self.assertIn(f"there are processes in {unit} itself", problem)
        else:
            self.assertIn("no cgroup controller 'pids'", problem)

    def test_and_limits_as_well_from_a_subgroup(self) -> None:
        unit, said = self.said_by_a_user("daemon")
        self.assertEqual((said["base"], said["inside"], said["left"], said["realm"]), (str(unit), 1, False, False))
        if "pids" in said["controllers"].split():
            self.assertEqual((said["problem"], said["limit"]), (None, "50\n"))

    def test_nobody_else_may(self) -> None:
        line = second()
        self.assertIsNotNone(Cgroups("test-second", line).make(ContainerId("ct-one"), Isolation()))
        code = (
            "import os, sys; from sticky.containers.cgroups import Cgroups; os.setgroups([]); os.setresuid(65534, 65534, 65534);"
            "print(Cgroups('test-nobody', sys.argv[1]).tracker())"
        )
        done = subprocess.run([sys.executable, "-c", code, line], capture_output=True, text=True, timeout=60)
        left = Cgroups("test-second", line)
        for group in left.strays([]).values():
            group.remove()
        left.close()
        self.assertEqual(done.stdout, "None\n", done.stderr)

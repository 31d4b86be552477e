"""Limits by cgroup, and that nothing stays: real children that fork, hide and swallow memory. Skipped where forbidden."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sticky.containers.census import Census, environ, look
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId
from sticky.isticky import TCPAddress
from tests.integration.children import CRASHES, GO, LISTENS, PYTHON, alive
from tests.integration.earlier_daemon import EarlierDaemon
from tests.integration.isolation_case import IsolationCase, cgroup_folders, possible
from tests.integration.process_case import ENVIRON, REACTOR

#: Starts a child that hides as well as it can: two forks, its own session, no environment, SIGTERM ignored. Prints its pid.
HIDES = """
import os, sys
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(write, b"%d" % os.getpid())
    os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; while :; do sleep 600; done"], {})
os.wait()
print("hidden", os.read(read, 16).decode(), flush=True)
"""

FORK_BOMB = """
import os, time
count = 0
try:
    while count < 5000:
        if os.fork() == 0:
            time.sleep(600)
        count += 1
except OSError as error:
    print("stopped", count, error.strerror, flush=True)
time.sleep(600)
"""

#: A child of the main process swallows memory; the main process itself goes on.
CHILD_SWALLOWS = """
import os, time
if os.fork() == 0:
    hog = []
    while True:
        hog.append(bytearray(1 << 20))
"""


def pid_of(word: str, lines: list[str]) -> int:
    return next(int(line.split()[1]) for line in lines if line.startswith(word))


def host_pid(needle: str) -> int | None:
    """The process that has this in its command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and needle.encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    return None


class DescendantTests(IsolationCase):
    async def test_a_hidden_grandchild_goes_with_its_container(self) -> None:
        for ending in ("terminate", "kill"):
            container = self.confined(*PYTHON, HIDES + LISTENS, options={"descendants": "cgroup"})
            await self.ready(container)
            hidden = pid_of("hidden", await self.output(container))
            self.assertTrue(alive(hidden))
            getattr(container, ending)()
            await self.exit(container)
            self.assertFalse(alive(hidden), ending)
            await self.until(lambda container=container: not cgroup_folders(container.id))  # type: ignore[misc]

    async def test_it_is_so_unasked_where_there_is_a_cgroup_and_the_place_says_so(self) -> None:
        possible(descendants="cgroup")
        container = self.run_container(*PYTHON, HIDES + LISTENS)
        await self.ready(container)
        self.assertEqual(container.place["descendants"], "cgroup")
        hidden = pid_of("hidden", await self.output(container))
        container.terminate()
        await self.exit(container)
        self.assertFalse(alive(hidden))

    async def test_what_stays_of_one_that_exits_by_itself_goes_too(self) -> None:
        container = self.confined(*PYTHON, HIDES, options={"descendants": "cgroup"})
        await self.exit(container)
        self.assertFalse(alive(pid_of("hidden", await self.output(container))))

    async def test_a_pid_namespace_does_the_same_without_a_cgroup(self) -> None:
        mark = f"sticky-mark-{os.urandom(8).hex()}"
        script = HIDES.replace("trap ''", f": {mark}; trap ''")
        container = self.confined(*PYTHON, script + LISTENS, options={"descendants": "pid_namespace"})
        await self.ready(container)
        self.assertEqual(cgroup_folders(container.id), [])
        self.assertEqual(container.place["descendants"], "pid_namespace")
        shell = [pid for pid in [host_pid(f": {mark}")] if pid]
        self.assertNotEqual(shell, [])
        container.kill()
        await self.exit(container)
        await self.until(lambda: not any(alive(pid) for pid in shell))

    async def test_best_effort_finds_who_hides_from_everything_but_its_parents(self) -> None:
        for ending in ("terminate", "kill"):
            container = self.confined(*PYTHON, HIDES + LISTENS, options={"descendants": "best_effort"})
            await self.ready(container)
            hidden = pid_of("hidden", await self.output(container))
            process = look(hidden)
            assert process is not None
            self.assertEqual(process.parent, container.pid)  # whom it lost was its parent before
            self.assertNotIn(b"STICKY_CONTAINER_ID", b"".join(environ(hidden)))
            getattr(container, ending)()
            await self.exit(container)
            self.assertFalse(alive(hidden), ending)

    async def test_best_effort_finds_who_hides_although_its_container_ended_by_itself(self) -> None:
        await self.backend.stop()
        self.backend = self.make_backend(family_check=0.02)
        container = self.confined(*PYTHON, HIDES + CRASHES, GO, options={"descendants": "best_effort"})
        await self.ready(container)
        hidden = pid_of("hidden", await self.output(container))
        await self.until(lambda: hidden in {process.pid for process in container._seen})
        self.go_on(container.spec)
        await self.exit(container)
        self.assertFalse(alive(hidden))

    async def test_best_effort_is_what_it_is_called(self) -> None:
        container = self.confined(*PYTHON, LISTENS, options={"descendants": "best_effort"})
        await self.ready(container)
        self.assertEqual(cgroup_folders(container.id), [])
        self.assertEqual(container.place["descendants"], "best_effort")

    async def test_in_a_pid_namespace_a_signal_and_a_status_arrive_as_they_are(self) -> None:
        options = {"descendants": "pid_namespace"}
        possible(**options)
        found = []
        for command in ("exit 7", "kill -9 $$", "kill -6 $$", "exit 137"):
            exit = await self.exit(self.confined("sh", "-c", command, options=options))
            found.append((exit.status, exit.signal))
        self.assertEqual(found, [(7, None), (None, 9), (None, 6), (137, None)])


class LimitTests(IsolationCase):
    async def test_a_fork_bomb_stops_at_its_limit_and_goes_with_its_container(self) -> None:
        container = self.confined(*PYTHON, FORK_BOMB, options={"pids": 30})
        (line,) = await self.output(container)
        word, count, *reason = line.split()
        self.assertEqual((word, " ".join(reason)), ("stopped", "Resource temporarily unavailable"))
        self.assertEqual(int(count), 29)
        group = container.group
        assert group is not None
        self.assertEqual(len(group.members()), 30)
        container.kill()
        await self.exit(container)
        self.assertEqual(group.members(), set())

    async def test_too_much_memory_is_the_end_of_it_and_the_reason(self) -> None:
        script = "hog = []\nwhile True: hog.append(bytearray(1 << 20))"
        container = self.confined(*PYTHON, script, options={"memory": 64 << 20})
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "out_of_memory")
        self.assertEqual(exit.message, "killed by the kernel before it was ready: out of memory")

    async def test_it_is_so_where_only_a_child_of_it_was_killed(self) -> None:
        container = self.confined(*PYTHON, CHILD_SWALLOWS + LISTENS, options={"memory": 64 << 20})
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "out_of_memory")

    async def test_a_shell_that_hands_on_the_end_of_its_child_hides_nothing(self) -> None:
        script = "hog = []\nwhile True: hog.append(bytearray(1 << 20))"
        quoted = " ".join(f"'{word}'" for word in (*PYTHON, script))
        container = self.confined("sh", "-c", f"{quoted}; exit 3", options={"memory": 64 << 20})
        self.assertEqual((await self.exit(container)).detail, "out_of_memory")

    async def test_who_stays_below_the_limit_ends_as_it_ends(self) -> None:
        options = {"memory": 128 << 20}
        container = self.confined(*PYTHON, "import sys; hog = bytearray(32 << 20); sys.exit(4)", options=options)
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status), ("exited", 4))
        container = self.confined(*PYTHON, LISTENS, options=options)
        await self.ready(container)
        container.kill()
        self.assertEqual((await self.exit(container)).detail, "killed")

    async def test_processors_time_is_shared_out(self) -> None:
        script = (
            "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
        )
        container = self.confined(*PYTHON, script, options={"cpu": 0.2})
        await self.exit(container)
        (used,) = await self.output(container)
        self.assertLess(float(used), 1.0)  # 0.4 and what the start took before the first period was over

    async def test_what_the_machine_has_not_got_ends_it_with_a_reason(self) -> None:
        backend = ProcessBackend(REACTOR, environ=ENVIRON, realm="")
        container = backend.spawn(self.make_spec("true", options={"memory": 64 << 20}), self.recorder)
        exit = await self.exit(container)
        await backend.stop()
        self.assertEqual(exit.detail, "failed")
        self.assertEqual(exit.message, "cannot start true: this machine has no cgroup controller 'memory'")


class AfterACrashTests(IsolationCase):
    """The daemon is killed with -9; the next one finds the network, the group and what they hold again."""

    def make_backend(self, **settings: Any) -> ProcessBackend:
        return super().make_backend(die_with_daemon=False, **settings)

    async def left(self, script: str, options: Mapping[str, object], port: int | None = None) -> tuple[Any, Any, Any]:
        possible(**options)
        daemon = EarlierDaemon(self.realm)
        self.addCleanup(daemon.kill)
        spec = self.make_spec(*PYTHON, script, options=dict(options), port=port)
        daemon.order(spec)
        await self.until(lambda: daemon.said("place", spec) and daemon.address(spec))
        found = (spec, daemon.place(spec), daemon.address(spec))
        daemon.kill()
        return found

    async def test_an_adopted_one_is_reached_and_limited_as_before(self) -> None:
        options = {"network": True, "pids": 40, "memory": 64 << 20}
        script = (
            HIDES
            + LISTENS.replace(
                "time.sleep(600)",
                "s.accept(); s.accept(); hog = []\nwhile True: hog.append(bytearray(1 << 20))",  # the earlier daemon's knock, ours
            )
        )
        spec, place, address = await self.left(script, options)
        container = self.backend.adopt(spec, place, None, self.recorder)
        assert container is not None
        self.spawned.append(container)
        # Its network is known again, from nothing but its process.
        await self.until(lambda: self.recorder.exit(container))
        found = self.recorder.address(container)
        assert isinstance(found, TCPAddress)
        self.assertEqual(found, address)
        exit = self.recorder.exit(container)
        assert exit is not None
        self.assertEqual(exit.detail, "out_of_memory")  # our own knock let it begin to swallow
        self.assertFalse(alive(pid_of("hidden", await self.output(container))))

    async def test_what_is_hidden_in_the_group_of_nobody_goes_with_folders_and_all(self) -> None:
        state = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.addCleanup(shutil.rmtree, state)
        spec, place, _ = await self.left(HIDES + LISTENS, {"descendants": "cgroup"})
        hidden = pid_of("hidden", spec.log.read_text().splitlines())
        os.kill(place["pid"], signal.SIGKILL)
        (state / "run" / spec.container).mkdir(parents=True)
        (state / "run" / "ct-known").mkdir()
        (state / "run" / "else").mkdir()
        self.backend.prepare([{"state_dir": str(state)}])
        self.assertEqual(self.backend.orphans([ContainerId("ct-known")]), {spec.container})
        await self.until(lambda: not alive(hidden) and not cgroup_folders(spec.container))
        self.assertEqual(sorted(path.name for path in (state / "run").iterdir()), ["ct-known", "else"])

    async def test_a_group_whose_container_cannot_be_adopted_is_emptied(self) -> None:
        spec, place, address = await self.left(HIDES + LISTENS, {"descendants": "cgroup"})
        hidden = pid_of("hidden", spec.log.read_text().splitlines())
        forged = {**place, "started": 1}
        self.assertIsNone(self.backend.adopt(spec, forged, address, self.recorder))
        await self.until(lambda: not alive(hidden) and not cgroup_folders(spec.container))


class CostTests(IsolationCase):
    async def test_the_end_of_one_in_a_group_costs_no_look_at_every_process(self) -> None:
        possible(descendants="cgroup")
        container = self.run_container(*PYTHON, LISTENS)
        await self.ready(container)
        looks: list[str] = []

        def taken() -> Census:
            looks.append("look")
            return Census({})

        self.patch(Census, "take", staticmethod(taken))
        container.kill()
        await self.exit(container)
        self.assertEqual(looks, [])

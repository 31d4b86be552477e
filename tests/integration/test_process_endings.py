"""How real children end, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sticky.containers.logs import last_lines
from sticky.containers.memory_limit import MemoryKills
from sticky.containers.ownership import members
from sticky.containers.ports import Ports
from sticky.errors import IllegalEvent
from tests.containers.conformance import Program
from tests.fakes.descriptors import no_descriptors_left
from tests.integration.children import LISTENS, PYTHON, STUBBORN, alive, written, zombies
from tests.integration.process_case import COMMANDS, REACTOR, ProcessTestCase


class EndTests(ProcessTestCase):
    """How it ends, and that nothing is left."""

    async def test_each_way_not_to_start_says_why(self) -> None:
        (self.folder / "data").write_text("x")
        (self.folder / "script").write_text("#!/nowhere/at/all\n")
        (self.folder / "script").chmod(0o755)
        cases = [
            (self.make_spec("no-such-program"), "command not found: no-such-program"),
            (self.make_spec("./data"), "not executable: ./data"),
            (self.make_spec("./script"), "interpreter"),
            (self.make_spec("sh", "a\0b"), "cannot start sh"),
            (self.make_spec(), "nothing to run"),
            (self.make_spec("sh", directory=self.folder / "none"), "working directory"),
            (self.make_spec("sh", log=self.folder / "data" / "log"), "cannot start sh"),
        ]
        for spec, expected in cases:
            container = self.backend.spawn(spec, self.recorder)
            exit = await self.exit(container)
            self.assertEqual((exit.detail, exit.status, exit.signal), ("failed", None, None))
            self.assertIn(expected, exit.message)
            self.assertNotIn("\n", exit.message)

    async def test_when_no_port_is_free_it_says_so_and_recovers(self) -> None:
        self.backend = self.make_backend(ports=Ports(20_500, 20_500, ephemeral=range(0)))
        first = self.run_container("sleep", "600")
        exit = await self.exit(self.run_container("sleep", "600"))
        self.assertEqual(exit.detail, "failed")
        self.assertIn("no free port", exit.message)
        first.kill()
        await self.exit(first)
        await self.ready(self.run_container(*COMMANDS[Program.SERVES]))

    async def test_a_grandchild_that_holds_the_output_neither_delays_the_exit_nor_survives(self) -> None:
        container = self.run_container("sh", "-c", "sleep 600 & echo $!; exit 4")
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status), ("exited", 4))
        self.assertFalse(alive(int(exit.last_lines[0])))

    async def test_a_grandchild_that_left_the_session_does_not_survive(self) -> None:
        container = self.run_container("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & wait")
        (stray,) = await self.output(container)
        self.assertTrue(alive(int(stray)))
        container.terminate()
        await self.exit(container)
        self.assertFalse(alive(int(stray)))

    async def test_what_cannot_be_looked_for_is_looked_for_again(self) -> None:
        container = self.run_container("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & wait")
        (stray,) = await self.output(container)
        assert container.pid is not None
        looks = container._left
        failures: list[OSError] = []

        def look() -> list[int]:
            try:
                return looks()
            except OSError as error:
                failures.append(error)
                raise

        self.patch(container, "_left", look)
        with no_descriptors_left():
            os.kill(container.pid, signal.SIGKILL)
            await self.until(lambda: len(failures) > 2)
            self.assertIsNone(self.recorder.exit(container))
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 9))
        self.assertFalse(alive(int(stray)))

    async def test_a_double_fork_within_the_group_does_not_survive(self) -> None:
        container = self.run_container("sh", "-c", "(sleep 600 & echo $!) ; exec sleep 600")
        (orphan,) = await self.output(container)
        container.kill()
        await self.exit(container)
        self.assertFalse(alive(int(orphan)))

    async def test_kill_reaches_everybody_when_all_ignore_terminate(self) -> None:
        container = self.run_container("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; sleep 600")
        (child,) = await self.output(container)
        container.terminate()
        container.kill()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 9))
        self.assertFalse(alive(int(child)))
        assert container.pid is not None
        self.assertEqual(members(container.id, container.pid), [])

    async def test_an_id_that_runs_already_is_our_own_mistake(self) -> None:
        container = self.run_container("sleep", "600")
        self.assertRaises(IllegalEvent, self.backend.spawn, container.spec, self.recorder)
        self.assertEqual(self.recorder.facts, [])

    async def test_a_log_is_bounded_while_its_container_runs(self) -> None:
        self.backend = self.make_backend(log_limit=100_000, log_check=0.05)
        container = self.run_container("sh", "-c", "seq 100000; echo the end; exec sleep 600")
        await self.until(lambda: last_lines(container.spec.log)[-1:] == ("the end",))
        await self.until(lambda: container.spec.log.stat().st_size < 100_000)
        self.assertEqual(last_lines(container.spec.log)[-1], "the end")

    async def test_terminate_reaches_the_whole_group(self) -> None:
        grandchild = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), os._exit(0)))
print("up", flush=True)
time.sleep(600)
"""
        container = self.run_container("sh", "-c", "trap '' TERM; \"$@\" & wait", "sh", *PYTHON, grandchild)
        await self.output(container)
        container.terminate()
        await self.exit(container)
        self.assertEqual(await self.output(container), ["up", "told"])

    async def test_one_that_has_stopped_itself_is_seen_and_hears_of_its_end_all_the_same(self) -> None:
        stops = LISTENS.replace("time.sleep(600)", "os.kill(os.getpid(), 19); time.sleep(600)")
        container = self.run_container(*PYTHON, stops)
        await self.ready(container)
        await self.until(container.halted)
        container.terminate()
        self.assertEqual((await self.exit(container)).signal, signal.SIGTERM)
        self.assertFalse(container.halted())

    async def test_what_a_crashed_program_leaves_may_end_in_its_own_way(self) -> None:
        helper = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied up", flush=True), os._exit(0)))
print(os.getppid(), flush=True)
time.sleep(600)
"""
        container = self.run_container("sh", "-c", '"$@" & wait', "sh", *PYTHON, helper)
        await self.output(container)
        assert container.pid is not None
        os.kill(container.pid, signal.SIGKILL)
        exit = await self.exit(container)
        self.assertEqual(exit.last_lines[-1], "tidied up")

    async def test_what_it_leaves_is_not_told_twice_and_is_killed_after_a_second(self) -> None:
        helper = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("up", flush=True)
while True:
    time.sleep(600)
"""
        container = self.run_container("sh", "-c", '"$@" & wait', "sh", *PYTHON, helper)
        await self.output(container)
        before = REACTOR.seconds()
        container.terminate()
        exit = await self.exit(container)
        self.assertGreater(REACTOR.seconds() - before, 0.9)
        self.assertEqual(exit.last_lines, ("up", "told"))
        assert container.pid is not None
        self.assertEqual(members(container.id, container.pid), [])

    async def test_a_kill_while_it_is_being_cleared_away_does_not_wait(self) -> None:
        script = 'trap "" TERM; sleep 600 & echo up; exit 0'
        container = self.run_container("sh", "-c", script)
        await self.until(lambda: container.state.value == "sweeping")
        container.kill()
        before = REACTOR.seconds()
        await self.exit(container)
        self.assertLess(REACTOR.seconds() - before, 0.8)

    async def test_a_kill_by_the_kernel_for_want_of_memory_is_told(self) -> None:
        cgroups = self.folder / "cgroups"
        events = cgroups / "memory.events"
        cgroups.mkdir()
        events.write_text("oom 0\noom_kill 4\n")
        self.backend = self.make_backend(memory_kills=MemoryKills(cgroups=cgroups))
        lucky, victim = (self.run_container("sleep", "600") for _ in range(2))
        assert lucky.pid is not None and victim.pid is not None
        os.kill(lucky.pid, signal.SIGKILL)
        self.assertEqual((await self.exit(lucky)).detail, "killed")
        events.write_text("oom 1\noom_kill 5\n")
        os.kill(victim.pid, signal.SIGKILL)
        exit = await self.exit(victim)
        self.assertEqual((exit.detail, exit.signal), ("out_of_memory", 9))
        self.assertIn("out of memory", exit.message)

    async def test_a_crash_after_ready_is_told_with_its_signal(self) -> None:
        container = self.run_container(*COMMANDS[Program.SERVES])
        await self.ready(container)
        assert container.pid is not None
        os.kill(container.pid, signal.SIGSEGV)
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("killed", None, 11))
        self.assertEqual(exit.message, "ended by SIGSEGV")

    async def test_nothing_leaks_over_fifty_starts(self) -> None:
        await self.exit(self.run_container("true"))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            batch = [self.run_container(*(("true",) if number % 2 else ("no-such",))) for number in range(10)]
            for container in batch:
                await self.exit(container)
        self.assertLessEqual(
            len(os.listdir("/proc/self/fd")), before
        )  # an earlier test's may have been closed meanwhile
        self.assertEqual(zombies(), [])
        self.assertEqual(len(list((self.folder / "logs").iterdir())), 20)

    async def test_the_log_is_bounded_and_its_end_is_kept(self) -> None:
        self.backend = self.make_backend(log_limit=100_000)
        container = self.run_container("sh", "-c", "seq 100000; echo the end")
        exit = await self.exit(container)
        self.assertEqual(exit.last_lines[-1], "the end")
        self.assertLess(container.spec.log.stat().st_size, 100_000)

    async def test_containers_die_with_a_daemon_that_is_killed(self) -> None:
        script = """
import sys
from pathlib import Path
from twisted.internet import reactor
from zope.interface import implementer
from sticky.containers.process import ProcessBackend
from sticky.errors import IllegalEvent
from sticky.isticky import ContainerSpec, IContainerListener
@implementer(IContainerListener)
class Prints:
    def ready(self, container, address):
        print(child.pid, flush=True)
    def exited(self, container, exit):
        print("exited", exit, flush=True)
folder = Path(sys.argv[1])
spec = ContainerSpec(container="ct-1", server="s", deployment="d", app="a", command=tuple(sys.argv[2:]),
    directory=folder, log=folder / "log", scratch=folder / "scratch")
def start():
    global child
    child = ProcessBackend(reactor).spawn(spec, Prints())
reactor.callWhenRunning(start)
reactor.run()
"""
        root = str(Path(__file__).resolve().parents[2])
        said = self.folder / "said"
        with said.open("w") as output:
            daemon = subprocess.Popen(
                [sys.executable, "-c", script, str(self.folder), *PYTHON, STUBBORN],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": root},
            )
        try:
            await self.until(lambda: written(said))
            container = int(written(said))
            self.assertTrue(alive(container))
        finally:
            daemon.kill()
            daemon.wait()
        await self.until(lambda: not alive(container))

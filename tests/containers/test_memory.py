"""The fake backend keeps the promises of the real ones, and plays what a test tells it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from sticky.containers.memory import Machine, MemoryBackend, MemoryContainer, State
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.errors import IllegalEvent
from sticky.isticky import ContainerSpec, Exit, TCPAddress
from tests.containers.conformance import AdoptionConformance, BackendConformance, LeftBehind, Program, Recorder


def spec(number: int, command: tuple[str, ...] = ("serves",)) -> ContainerSpec:
    return ContainerSpec(
        container=ContainerId(f"ct-{number}"),
        server=ServerName("echo"),
        deployment=DeploymentId("d1"),
        app="app",
        command=command,
        directory=Path("/"),
        log=Path("/nowhere"),
        scratch=Path("/nowhere"),
    )


def play(container: MemoryContainer) -> None:
    program = Program(container.spec.command[0])
    if program is Program.EXITS:
        container.make_exit(status=3, last_lines=("last words",))
    elif program is Program.MISSING:
        container.make_exit("failed", None, message="command not found: nothing")
    elif program not in (Program.SILENT, Program.LATE):
        container.ignores_term = program is Program.STUBBORN
        container.make_ready()


def play_on(container: MemoryContainer) -> None:
    """It is told to go on."""
    program = Program(container.spec.command[0])
    if program is Program.LATE:
        container.make_ready()
    elif program is Program.DIES:
        container.make_exit("killed", None, 10)
    else:
        container.make_exit(status=3, last_lines=("last words",))


class MemoryCase(TestCase):
    """A clock, a machine and a backend on it."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.machine = Machine()
        self.backend = MemoryBackend(self.clock, play, self.machine)
        self.count = 0

    def spec(self, program: Program) -> ContainerSpec:
        self.count += 1
        return spec(self.count, (program.value,))

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(3):
            if condition():
                return
            self.clock.advance(0)
        self.assertTrue(condition())

    def go_on(self, spec: ContainerSpec) -> None:
        play_on(self.machine.containers[spec.container])

    def alive(self, spec: ContainerSpec) -> int:
        return int(spec.container in self.machine.containers)


class MemoryConformanceTests(MemoryCase, BackendConformance):
    backend: MemoryBackend


class MemoryAdoptionConformanceTests(MemoryCase, AdoptionConformance):
    backend: MemoryBackend

    async def turn(self) -> None:
        self.clock.advance(0)

    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        daemon = MemoryBackend(self.clock, play, self.machine)
        recorder = Recorder()
        container = daemon.spawn(self.spec(program), recorder)
        if ready:
            await self.until(lambda: recorder.address(container))
        daemon.crash()
        return LeftBehind(container.spec, container.place, recorder.address(container))

    async def end_unseen(self, left: LeftBehind) -> None:
        self.machine.containers[left.spec.container].make_exit()

    async def runs(self, left: LeftBehind) -> bool:
        return left.spec.container in self.machine.containers


class MemoryBackendTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.backend = MemoryBackend(self.clock)
        self.recorder = Recorder()

    def test_without_a_program_a_container_waits_for_the_test(self) -> None:
        container = self.backend.spawn(spec(1), self.recorder)
        self.clock.advance(60)
        self.assertEqual(self.recorder.facts, [])
        container.make_ready(TCPAddress("127.0.0.1", 8000))
        self.assertEqual(self.recorder.facts, [("ct-1", TCPAddress("127.0.0.1", 8000))])

    def test_a_refusal_is_an_exit_in_the_next_turn(self) -> None:
        self.backend.refusal = "no room"
        self.backend.spawn(spec(1), self.recorder)
        self.assertEqual(self.recorder.facts, [])
        self.clock.advance(0)
        self.assertEqual(self.recorder.facts, [("ct-1", Exit("failed", None, None, (), "no room"))])
        self.assertEqual(self.backend.containers, {})

    def test_signals_are_kept_until_it_is_gone(self) -> None:
        container = self.backend.spawn(spec(1), self.recorder)
        container.ignores_term = True
        container.terminate()
        container.kill()
        container.kill()
        self.clock.advance(0)
        container.terminate()
        self.assertEqual(container.signals, ["TERM", "KILL"])
        self.assertIs(container.state, State.GONE)

    def test_playing_the_impossible_raises_and_changes_nothing(self) -> None:
        container = self.backend.spawn(spec(1), self.recorder)
        container.make_ready()
        self.assertRaises(IllegalEvent, container.make_ready)
        container.make_exit()
        self.assertRaises(IllegalEvent, container.make_exit)
        self.assertRaises(IllegalEvent, container.make_ready)
        self.assertEqual(self.recorder.heard(container), ["ready", "exited"])

    def test_a_program_does_not_play_a_container_that_is_ending(self) -> None:
        self.backend.program = play
        container = self.backend.spawn(spec(1), self.recorder)
        container.kill()
        self.clock.advance(0)
        self.assertEqual(self.recorder.heard(container), ["exited"])

    def test_what_is_ready_while_no_daemon_looks_is_said_to_the_next(self) -> None:
        container = self.backend.spawn(spec(1), self.recorder)
        self.backend.crash()
        container.make_ready()
        self.assertEqual(self.recorder.facts, [])
        heir = MemoryBackend(self.clock, machine=self.backend.machine)
        self.assertIs(heir.adopt(container.spec, container.place, None, self.recorder), container)
        self.assertEqual(self.recorder.facts, [])
        self.clock.advance(0)
        self.assertEqual(self.recorder.heard(container), ["ready"])
        self.assertEqual(heir.containers, {container.id: container})

    def test_orphans_are_those_that_are_neither_known_nor_adopted(self) -> None:
        one, two, three = [self.backend.spawn(spec(number), self.recorder) for number in (1, 2, 3)]
        self.backend.crash()
        heir = MemoryBackend(self.clock, machine=self.backend.machine)
        heir.adopt(one.spec, one.place, None, self.recorder)
        self.assertEqual(heir.orphans([two.id]), {three.id})
        self.clock.advance(0)
        self.assertEqual(set(heir.machine.containers), {one.id, two.id})
        self.assertEqual(self.recorder.facts, [])

    def test_an_id_that_runs_already_is_not_adopted_again(self) -> None:
        container = self.backend.spawn(spec(1), self.recorder)
        self.assertRaises(IllegalEvent, self.backend.adopt, container.spec, container.place, None, self.recorder)

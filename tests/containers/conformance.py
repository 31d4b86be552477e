"""What every container backend promises, as a mixin of trial tests: the fake passes it, and so does each real one."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

import attrs
from twisted.trial.unittest import SkipTest, TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from sticky.containers import logs
from sticky.core.values import ContainerId
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerBackend, IContainerListener


class Program(Enum):
    """What the suite needs containers to do."""

    SERVES = "serves"  # opens its port, ends on SIGTERM
    STUBBORN = "stubborn"  # opens its port, ignores SIGTERM
    SILENT = "silent"  # runs, never opens its port, ends on SIGTERM
    EXITS = "exits"  # writes the line "last words" and exits with status 3
    MISSING = "missing"  # does not exist
    LATE = "late"  # runs, opens its port once it is told to go on, ends on SIGTERM
    CRASHES = "crashes"  # opens its port; once it is told to go on as EXITS
    DIES = "dies"  # opens its port; once it is told to go on it ends itself by signal 10
    FLOODS = "floods"  # writes megabytes, opens its port, and once it is told to go on the same again, then as EXITS
    FAMILY = "family"  # opens its port once others run that it has started; told to go on as EXITS


@implementer(IContainerListener)
class Recorder:
    """Keeps what it hears, in order."""

    def __init__(self) -> None:
        self.facts: list[tuple[ContainerId, Address | Exit]] = []

    def ready(self, container: ContainerId, address: Address) -> None:
        self.facts.append((container, address))

    def exited(self, container: ContainerId, exit: Exit) -> None:
        self.facts.append((container, exit))

    def address(self, container: IContainer) -> Address | None:
        """Where it answers, once it does."""
        found = [fact for name, fact in self.facts if name == container.id and not isinstance(fact, Exit)]
        return found[0] if found else None

    def exit(self, container: IContainer) -> Exit | None:
        """How it ended, once it has."""
        found = [fact for name, fact in self.facts if name == container.id and isinstance(fact, Exit)]
        return found[0] if found else None

    def heard(self, container: IContainer) -> list[str]:
        """The kinds of facts about one container, in order."""
        return ["exited" if isinstance(fact, Exit) else "ready" for name, fact in self.facts if name == container.id]


if TYPE_CHECKING:
    _Base = TestCase
else:
    _Base = object


class Suite(_Base):
    """What both halves of the suite ask of the TestCase that they are mixed into: a `backend`, set in its setUp, and this.

    What is impossible, or dear, for a backend it says with the reason in one of the attributes; empty: the promise holds.
    """

    backend: IContainerBackend
    may_hide: str = ""  #: why a process that leaves session and environment behind may outlive its container
    fifty_take_long: str = ""  #: why fifty containers at once are among the long tests
    status_is_lost: str = ""  #: why nobody knows the exit status of a container that was adopted
    family: int = 1  #: as many as this are `alive` of a FAMILY that is ready, at least

    @abstractmethod
    def spec(self, program: Program) -> ContainerSpec:
        """A container that does this, with an id of its own."""

    @abstractmethod
    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition holds; fail when it takes too long."""

    @abstractmethod
    def go_on(self, spec: ContainerSpec) -> None:
        """Tell the program, which runs, to go on."""

    @abstractmethod
    def alive(self, spec: ContainerSpec) -> int:
        """How many processes of the container there are, hidden ones too; where there are no processes, of whatever it is."""

    def spawn(self, program: Program, recorder: Recorder) -> tuple[ContainerSpec, IContainer]:
        spec = self.spec(program)
        return spec, self.backend.spawn(spec, recorder)

    async def readying(self, container: IContainer, recorder: Recorder) -> Address:
        await self.until(lambda: recorder.address(container) or recorder.exit(container))
        address = recorder.address(container)
        assert address is not None, recorder.exit(container)
        return address

    async def ending(self, container: IContainer, recorder: Recorder) -> Exit:
        await self.until(lambda: recorder.exit(container))
        found = recorder.exit(container)
        assert found is not None
        return found

    def bounded(self, spec: ContainerSpec, exit: Exit) -> None:
        """However much it wrote: the end is told, and neither that nor the log is longer than promised."""
        self.assertEqual(exit.last_lines[-1], "last words")
        self.assertLessEqual(len(exit.last_lines), logs.LINES)
        self.assertLessEqual(max(map(len, exit.last_lines)), logs.LINE_LENGTH)
        self.assertLessEqual(logs.size_of(spec.log), logs.LIMIT)


class BackendConformance(Suite):
    """What holds of containers that a backend has spawned."""

    async def run_to_ready(self, program: Program, recorder: Recorder) -> IContainer:
        container = self.backend.spawn(self.spec(program), recorder)
        await self.readying(container, recorder)
        return container

    async def test_backend_and_container_provide_their_interfaces(self) -> None:
        verifyObject(IContainerBackend, self.backend)
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.EXITS), recorder)
        verifyObject(IContainer, container)
        await self.ending(container, recorder)

    async def test_nothing_is_reported_from_within_spawn(self) -> None:
        recorder = Recorder()
        containers = [self.backend.spawn(self.spec(program), recorder) for program in Program]
        self.assertEqual(recorder.facts, [])
        for container in containers:
            container.kill()
        self.assertEqual(recorder.facts, [])
        for container in containers:
            await self.ending(container, recorder)

    async def test_a_server_becomes_ready_once_and_keeps_the_id_of_its_spec(self) -> None:
        recorder = Recorder()
        spec = self.spec(Program.SERVES)
        container = self.backend.spawn(spec, recorder)
        self.assertEqual(container.id, spec.container)
        await self.until(lambda: recorder.address(container))
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_its_place_is_known_at_once_in_json_values_and_stays(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.SERVES), recorder)
        place = dict(container.place)
        self.assertTrue(place)
        self.assertEqual(json.loads(json.dumps(place)), place)
        await self.until(lambda: recorder.address(container))
        self.assertEqual(container.place, place)
        container.kill()
        await self.ending(container, recorder)

    async def test_copies_that_run_at_once_have_addresses_of_their_own(self) -> None:
        recorder = Recorder()
        containers = [self.backend.spawn(self.spec(Program.SERVES), recorder) for _ in range(3)]
        await self.until(lambda: all(recorder.address(container) for container in containers))
        self.assertEqual(len({recorder.address(container) for container in containers}), 3)
        for container in containers:
            container.kill()
            await self.ending(container, recorder)

    async def test_terminate_ends_a_server(self) -> None:
        recorder = Recorder()
        container = await self.run_to_ready(Program.SERVES, recorder)
        container.terminate()
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("killed", None, 15))

    async def test_terminate_just_after_spawn_ends_it_before_it_is_ready(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.SERVES), recorder)
        container.terminate()
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.signal), ("killed", 15))
        self.assertEqual(recorder.heard(container), ["exited"])

    async def test_who_ignores_terminate_is_ended_by_kill(self) -> None:
        recorder = Recorder()
        container = await self.run_to_ready(Program.STUBBORN, recorder)
        container.terminate()
        container.terminate()
        container.kill()
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("killed", None, 9))

    async def test_who_never_opens_its_port_is_never_ready(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.SILENT), recorder)
        other = await self.run_to_ready(Program.SERVES, recorder)
        self.assertEqual(recorder.heard(container), [])
        await self.until(lambda: container.waits_for())
        self.assertRegex(container.waits_for(), r"^nothing of it listens on port \d+")
        self.assertEqual(other.waits_for(), "")
        self.assertEqual((container.halted(), other.halted()), (False, False))
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
        self.assertEqual(container.waits_for(), "")
        other.kill()
        await self.ending(other, recorder)

    async def test_an_exit_carries_status_and_last_lines(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.EXITS), recorder)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("exited", 3, None))
        self.assertEqual(exit.last_lines, ("last words",))
        self.assertIn("3", exit.message)
        self.assertEqual(recorder.heard(container), ["exited"])

    async def test_what_cannot_be_started_is_an_exit_with_a_reason(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.MISSING), recorder)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("failed", None, None))
        self.assertIn("command not found", exit.message)
        self.assertEqual(recorder.heard(container), ["exited"])

    async def test_signals_to_a_container_that_is_gone_do_nothing(self) -> None:
        recorder = Recorder()
        container = self.backend.spawn(self.spec(Program.EXITS), recorder)
        await self.ending(container, recorder)
        container.terminate()
        container.kill()
        other = await self.run_to_ready(Program.SERVES, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
        other.kill()
        await self.ending(other, recorder)

    async def test_who_opens_its_port_late_is_ready_then_and_not_before(self) -> None:
        recorder = Recorder()
        spec, container = self.spawn(Program.LATE, recorder)
        other = await self.run_to_ready(Program.SERVES, recorder)
        self.assertEqual(recorder.heard(container), [])
        self.go_on(spec)
        self.assertNotEqual(await self.readying(container, recorder), recorder.address(other))
        for one in (container, other):
            one.terminate()
            await self.ending(one, recorder)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_one_that_is_stopped_while_it_starts_is_never_ready(self) -> None:
        recorder = Recorder()
        containers = [self.spawn(Program.LATE, recorder)[1] for _ in range(4)]
        containers[0].kill()  # it has hardly begun
        other = await self.run_to_ready(Program.SERVES, recorder)
        containers[1].terminate()  # these run for a while
        containers[2].kill()
        containers[3].terminate()
        containers[3].kill()
        exits = [await self.ending(container, recorder) for container in containers]
        self.assertEqual([(exit.detail, exit.status) for exit in exits], [("killed", None)] * 4)
        self.assertEqual([exit.signal for exit in exits[:3]], [9, 15, 9])
        self.assertIn(exits[3].signal, (9, 15))  # whichever came first
        self.assertEqual([recorder.heard(container) for container in containers], [["exited"]] * 4)
        other.kill()
        await self.ending(other, recorder)

    async def test_a_crash_after_ready_is_told_with_status_and_last_lines(self) -> None:
        recorder = Recorder()
        spec, container = self.spawn(Program.CRASHES, recorder)
        await self.readying(container, recorder)
        self.go_on(spec)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("exited", 3, None))
        self.assertEqual(exit.last_lines[-1], "last words")
        self.assertIn("3", exit.message)
        self.assertNotIn("before it was ready", exit.message)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_a_death_by_a_signal_after_ready_is_told_with_that(self) -> None:
        recorder = Recorder()
        spec, container = self.spawn(Program.DIES, recorder)
        await self.readying(container, recorder)
        self.go_on(spec)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("killed", None, 10))
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_a_flood_of_output_holds_nobody_up_and_its_end_is_told(self) -> None:
        recorder = Recorder()
        spec, container = self.spawn(Program.FLOODS, recorder)
        await self.readying(container, recorder)
        self.go_on(spec)
        other = await self.run_to_ready(Program.SERVES, recorder)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.status), ("exited", 3))
        self.bounded(spec, exit)
        other.terminate()
        self.assertEqual((await self.ending(other, recorder)).signal, 15)

    async def test_when_the_end_is_told_nothing_that_it_started_runs(self) -> None:
        recorder = Recorder()
        family = [self.spawn(Program.FAMILY, recorder) for _ in range(3)]
        for spec, container in family:
            await self.readying(container, recorder)
            self.assertGreaterEqual(self.alive(spec), self.family)
        (told, asked, killed) = family
        self.go_on(told[0])
        asked[1].terminate()
        killed[1].kill()
        exits = []
        for spec, container in family:
            exits.append(await self.ending(container, recorder))
            self.assertEqual(self.alive(spec), 0)
        self.assertEqual([(exit.status, exit.signal) for exit in exits], [(3, None), (None, 15), (None, 9)])

    async def test_fifty_at_once(self) -> None:
        if self.fifty_take_long and "STICKY_LONG_TESTS" not in os.environ:
            raise SkipTest(f"a long test ({self.fifty_take_long}): set STICKY_LONG_TESTS=1")
        recorder = Recorder()
        containers = [self.spawn(Program.SERVES, recorder)[1] for _ in range(50)]
        addresses = {await self.readying(container, recorder) for container in containers}
        self.assertEqual(len(addresses), 50)
        for container in containers:
            container.terminate()
        exits = [await self.ending(container, recorder) for container in containers]
        self.assertEqual([(exit.detail, exit.signal) for exit in exits], [("killed", 15)] * 50)
        self.assertEqual([recorder.heard(container) for container in containers], [["ready", "exited"]] * 50)

    test_fifty_at_once.timeout = 600  # type: ignore[attr-defined]  # seconds

    async def test_the_backend_stops_when_its_containers_are_gone(self) -> None:
        recorder = Recorder()
        container = await self.run_to_ready(Program.SERVES, recorder)
        container.kill()
        await self.ending(container, recorder)
        await self.backend.stop()
        self.assertEqual(recorder.heard(container), ["ready", "exited"])


@attrs.frozen
class LeftBehind:
    """A container whose daemon died."""

    spec: ContainerSpec
    place: Mapping[str, object]
    address: Address | None  #: where it was ready when the daemon died


class AdoptionConformance(Suite):
    """What holds of containers that the next daemon takes over. `backend` is that one's."""

    @abstractmethod
    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        """What a daemon left that died: `ready` waits for that first, else it died just after the spawn."""

    @abstractmethod
    async def end_unseen(self, left: LeftBehind) -> None:
        """It ends while no daemon looks."""

    @abstractmethod
    async def runs(self, left: LeftBehind) -> bool:
        """Whether anything of it runs."""

    def taken(self, left: LeftBehind, recorder: Recorder) -> IContainer:
        container = self.backend.adopt(left.spec, left.place, left.address, recorder)
        assert container is not None
        return container

    async def test_one_that_was_ready_is_taken_over_without_being_ready_again(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        verifyObject(IContainer, container)
        self.assertEqual((container.id, container.place), (left.spec.container, left.place))
        other = self.backend.spawn(self.spec(Program.SERVES), recorder)
        await self.until(lambda: recorder.address(other))
        self.assertNotEqual(recorder.address(other), left.address)
        self.assertEqual(recorder.heard(container), [])
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
        self.assertFalse(await self.runs(left))
        other.kill()
        await self.ending(other, recorder)

    async def test_one_that_was_not_ready_is_watched_and_then_ready(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=False)
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.assertEqual(recorder.facts, [])
        await self.until(lambda: recorder.address(container))
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_one_that_ignores_terminate_is_ended_by_kill(self) -> None:
        left = await self.left_behind(Program.STUBBORN, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        container.terminate()
        container.kill()
        container.kill()
        self.assertEqual(recorder.facts, [])
        await self.ending(container, recorder)
        container.kill()
        self.assertFalse(await self.runs(left))

    async def test_one_that_ends_after_its_adoption_is_heard_of(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        await self.end_unseen(left)
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])

    async def test_one_that_opens_its_port_late_is_ready_then_and_not_before(self) -> None:
        left = await self.left_behind(Program.LATE, ready=False)
        recorder = Recorder()
        container = self.taken(left, recorder)
        _, other = self.spawn(Program.SERVES, recorder)
        await self.readying(other, recorder)
        self.assertEqual(recorder.heard(container), [])
        self.go_on(left.spec)
        await self.readying(container, recorder)
        for one in (container, other):
            one.terminate()
            await self.ending(one, recorder)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_one_that_is_stopped_before_it_is_ready_never_is(self) -> None:
        left = await self.left_behind(Program.LATE, ready=False)
        recorder = Recorder()
        container = self.taken(left, recorder)
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
        self.assertEqual(self.alive(left.spec), 0)

    async def test_a_crash_after_its_adoption_is_told_with_last_lines(self) -> None:
        left = await self.left_behind(Program.CRASHES, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.go_on(left.spec)
        exit = await self.ending(container, recorder)
        self.assertEqual((exit.detail, exit.signal), ("exited", None))
        self.assertEqual(exit.status, None if self.status_is_lost else 3)
        self.assertEqual(exit.last_lines[-1], "last words")

    async def test_a_flood_after_its_adoption_is_bounded_and_its_end_is_told(self) -> None:
        left = await self.left_behind(Program.FLOODS, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.go_on(left.spec)
        self.bounded(left.spec, await self.ending(container, recorder))

    async def test_when_its_end_is_told_nothing_that_it_started_runs(self) -> None:
        left = await self.left_behind(Program.FAMILY, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.assertGreaterEqual(self.alive(left.spec), self.family)
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(self.alive(left.spec), 0)

    async def test_one_that_ended_meanwhile_is_none(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        await self.end_unseen(left)
        recorder = Recorder()
        self.assertIsNone(self.backend.adopt(left.spec, left.place, left.address, recorder))
        self.assertEqual(recorder.facts, [])

    async def test_one_whose_place_was_never_noted_is_ended(self) -> None:
        left = await self.left_behind(Program.STUBBORN, ready=True)
        recorder = Recorder()
        self.assertIsNone(self.backend.adopt(left.spec, {}, None, recorder))
        await self.until_ended(left)
        self.assertEqual(recorder.facts, [])

    async def test_a_place_that_is_somebody_elses_is_none_and_that_one_goes_on(self) -> None:
        one = await self.left_behind(Program.SERVES, ready=True)
        other = await self.left_behind(Program.SERVES, ready=True)
        recorder = Recorder()
        self.assertIsNone(self.backend.adopt(one.spec, other.place, one.address, recorder))
        await self.until_ended(one)
        self.assertTrue(await self.runs(other))
        container = self.taken(other, recorder)
        container.kill()
        await self.ending(container, recorder)

    async def until_ended(self, left: LeftBehind) -> None:
        for _ in range(1000):
            if not await self.runs(left):
                return
            await self.turn()
        self.fail(f"{left.spec.container} still runs")

    @abstractmethod
    async def turn(self) -> None:
        """Let a little time pass."""

"""What every container backend promises, as a mixin of trial tests: the fake passes it, and so does each real one."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

import attrs
from twisted.trial.unittest import TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from sticky.core.values import ContainerId
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerBackend, IContainerListener


class Program(Enum):
    """What the suite needs containers to do."""

    SERVES = "serves"  # opens its port, ends on SIGTERM
    STUBBORN = "stubborn"  # opens its port, ignores SIGTERM
    SILENT = "silent"  # runs, never opens its port, ends on SIGTERM
    EXITS = "exits"  # writes the line "last words" and exits with status 3
    MISSING = "missing"  # does not exist


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


class BackendConformance(_Base):
    """Mix into a TestCase that sets `backend` in its setUp and says how to make specs and to let time pass."""

    backend: IContainerBackend

    @abstractmethod
    def spec(self, program: Program) -> ContainerSpec:
        """A container that does this, with an id of its own."""

    @abstractmethod
    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition holds; fail when it takes too long."""

    async def run_to_ready(self, program: Program, recorder: Recorder) -> IContainer:
        container = self.backend.spawn(self.spec(program), recorder)
        await self.until(lambda: recorder.address(container))
        return container

    async def ending(self, container: IContainer, recorder: Recorder) -> Exit:
        await self.until(lambda: recorder.exit(container))
        found = recorder.exit(container)
        assert found is not None
        return found

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
        container.terminate()
        await self.ending(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
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


class AdoptionConformance(_Base):
    """Mix in besides, where containers outlive the daemon. `backend` is the next daemon's."""

    backend: IContainerBackend

    @abstractmethod
    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        """What a daemon left that died: `ready` waits for that first, else it died just after the spawn."""

    @abstractmethod
    async def end_unseen(self, left: LeftBehind) -> None:
        """It ends while no daemon looks."""

    @abstractmethod
    async def runs(self, left: LeftBehind) -> bool:
        """Whether anything of it runs."""

    @abstractmethod
    def spec(self, program: Program) -> ContainerSpec:
        """As in `BackendConformance`."""

    @abstractmethod
    async def until(self, condition: Callable[[], object]) -> None:
        """As in `BackendConformance`."""

    def taken(self, left: LeftBehind, recorder: Recorder) -> IContainer:
        container = self.backend.adopt(left.spec, left.place, left.address, recorder)
        assert container is not None
        return container

    async def gone(self, container: IContainer, recorder: Recorder) -> Exit:
        await self.until(lambda: recorder.exit(container))
        found = recorder.exit(container)
        assert found is not None
        return found

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
        await self.gone(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])
        self.assertFalse(await self.runs(left))
        other.kill()
        await self.gone(other, recorder)

    async def test_one_that_was_not_ready_is_watched_and_then_ready(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=False)
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.assertEqual(recorder.facts, [])
        await self.until(lambda: recorder.address(container))
        container.terminate()
        await self.gone(container, recorder)
        self.assertEqual(recorder.heard(container), ["ready", "exited"])

    async def test_one_that_ignores_terminate_is_ended_by_kill(self) -> None:
        left = await self.left_behind(Program.STUBBORN, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        container.terminate()
        container.kill()
        container.kill()
        self.assertEqual(recorder.facts, [])
        await self.gone(container, recorder)
        container.kill()
        self.assertFalse(await self.runs(left))

    async def test_one_that_ends_after_its_adoption_is_heard_of(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        recorder = Recorder()
        container = self.taken(left, recorder)
        await self.end_unseen(left)
        await self.gone(container, recorder)
        self.assertEqual(recorder.heard(container), ["exited"])

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
        await self.gone(container, recorder)

    async def until_ended(self, left: LeftBehind) -> None:
        for _ in range(1000):
            if not await self.runs(left):
                return
            await self.turn()
        self.fail(f"{left.spec.container} still runs")

    @abstractmethod
    async def turn(self) -> None:
        """Let a little time pass."""

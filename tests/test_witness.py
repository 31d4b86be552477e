"""How containers ended, remembered."""

from __future__ import annotations

from pathlib import Path

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from sticky.containers.memory import MemoryBackend, MemoryContainer
from sticky.core.values import ContainerId, DeploymentId, ServerName, StopCause
from sticky.isticky import Address, ContainerSpec, Exit, IContainerBackend, IContainerListener
from sticky.witness import CALLED, STOPPED, Endings, Witness, failed

NAME = ServerName("echo")


@implementer(IContainerListener)
@attrs.define(eq=False)
class Heard:
    """Notes what it is told, with what the witness knew at that moment."""

    endings: Endings
    ready_ones: list[ContainerId] = attrs.field(factory=list)
    ends: list[tuple[ContainerId, int]] = attrs.field(factory=list)
    told: list[Exit] = attrs.field(factory=list)

    def ready(self, container: ContainerId, address: Address) -> None:
        self.ready_ones.append(container)

    def exited(self, container: ContainerId, exit: Exit) -> None:
        self.ends.append((container, len(self.endings.of(NAME))))
        self.told.append(exit)


class WitnessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.backend = MemoryBackend(self.clock)
        self.endings = Endings(self.clock, kept=2)
        self.witness = Witness(self.backend, self.endings)
        self.heard = Heard(self.endings)

    def spawn(self, name: str) -> MemoryContainer:
        spec = ContainerSpec(
            container=ContainerId(name),
            server=NAME,
            deployment=DeploymentId("dp-1"),
            app="echo",
            command=("echo",),
            directory=Path("/"),
            log=Path("/log"),
            scratch=Path("/"),
        )
        container = self.witness.spawn(spec, self.heard)
        assert isinstance(container, MemoryContainer)
        return container

    def test_it_is_the_backend_it_is_given_by_name_and_form(self) -> None:
        self.assertTrue(verifyObject(IContainerBackend, self.witness))
        self.assertEqual(self.witness.name, self.backend.name)
        self.assertIsNone(self.successResultOf(self.witness.stop()))

    def test_facts_are_passed_on_and_an_end_is_noted_first(self) -> None:
        container = self.spawn("ct-1")
        container.make_ready()
        container.terminate()
        self.clock.advance(1)
        self.assertEqual((self.heard.ready_ones, self.heard.ends), (["ct-1"], [("ct-1", 1)]))

    def test_the_latest_ends_are_kept_newest_first(self) -> None:
        for name in ("ct-1", "ct-2", "ct-3"):
            self.spawn(name).terminate()
            self.clock.advance(10)
        self.assertEqual([one.container for one in self.endings.of(NAME)], ["ct-3", "ct-2"])
        self.assertGreater(self.endings.of(NAME)[1].ended_ago, self.endings.of(NAME)[0].ended_ago)
        self.assertEqual(self.endings.of(ServerName("other")), ())

    def test_the_end_of_an_unhealthy_one_is_called_so(self) -> None:
        container = self.spawn("ct-1")
        self.endings.call(container.id, "unhealthy")
        container.kill()
        self.clock.advance(1)
        (ended,) = self.endings.of(NAME)
        self.assertEqual((ended.exit.detail, ended.failed), ("unhealthy", True))
        self.assertIn("did not answer any more; ", ended.exit.message)

    def test_one_that_was_not_ready_in_time_is_called_so_for_whoever_listens_too(self) -> None:
        container = self.spawn("ct-1")
        self.endings.call(container.id, "startup_timeout")
        container.terminate()
        self.clock.advance(1)
        (ended,) = self.endings.of(NAME)
        self.assertEqual((ended.exit.detail, ended.failed), ("startup_timeout", True))
        self.assertIn("was not ready within startup_timeout; ", ended.exit.message)
        self.assertEqual(self.heard.told, [ended.exit])

    def test_why_another_had_to_go_is_said_and_its_end_is_called_what_it_is(self) -> None:
        for number, (cause, said) in enumerate(STOPPED.items()):
            container = self.spawn(f"ct-{number}")
            self.endings.call(container.id, cause)
            container.terminate()
            self.clock.advance(1)
            ended = self.endings.of(NAME)[0]
            self.assertEqual((ended.exit.detail, ended.exit.signal, ended.failed), ("killed", 15, False))
            self.assertEqual(ended.exit.message, f"{said}; ended by SIGTERM")
            self.assertEqual(self.heard.told[-1], ended.exit)

    def test_there_are_words_for_each_cause(self) -> None:
        self.assertEqual({*CALLED, *STOPPED}, {cause.value for cause in StopCause} | {"unhealthy", "earlier_daemon"})

    def test_the_first_cause_counts_and_what_there_is_to_say_besides_follows_it(self) -> None:
        container = self.spawn("ct-1")
        self.endings.call(container.id, "startup_timeout", "nothing of it listens on port 7")
        self.endings.call(container.id, "daemon_stops")
        container.kill()
        self.clock.advance(1)
        self.assertEqual(
            self.heard.told[0].message,
            "was not ready within startup_timeout: nothing of it listens on port 7; ended by SIGKILL",
        )

    def test_one_that_ends_with_an_error_when_it_is_stopped_is_to_be_looked_at(self) -> None:
        container = self.spawn("ct-1")
        self.endings.call(container.id, "scaled_down")
        container.make_exit("exited", 1)
        (ended,) = self.endings.of(NAME)
        self.assertTrue(ended.failed)
        self.assertEqual(ended.exit.message, "scaled down, nobody needed it; exited with status 1")

    def test_a_cause_that_the_backend_knows_is_kept(self) -> None:
        container = self.spawn("ct-1")
        self.endings.call(container.id, "startup_timeout")
        container.make_exit("out_of_memory", None, 9, "out of memory")
        (ended,) = self.endings.of(NAME)
        self.assertEqual((ended.exit.detail, ended.exit.message), ("out_of_memory", "out of memory"))


class FailedTests(SynchronousTestCase):
    def test_what_an_operator_should_look_at(self) -> None:
        for exit, wanted in (
            (Exit("exited", 0, None), False),
            (Exit("killed", None, 15), False),
            (Exit("exited", None, None), False),
            (Exit("exited", 1, None), True),
            (Exit("killed", None, 9), True),
            (Exit("failed", None, None), True),
            (Exit("out_of_memory", None, None), True),
        ):
            self.assertEqual(failed(exit), wanted, exit)

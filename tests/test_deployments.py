"""What each deployment runs, and who takes over what an earlier daemon ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky.containers.memory import Machine, MemoryBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.deployments import Definition, Deployments
from sticky.isticky import ContainerSpec, ISnapshotBackend, Snapshot
from sticky.witness import Endings, Witness
from tests.containers.conformance import Recorder

SPEC = ContainerSpec(
    container=ContainerId("ct-1"),
    server=ServerName("echo"),
    deployment=DeploymentId("dp-1"),
    app="echo",
    command=("echo",),
    directory=Path("/"),
    log=Path("/log"),
    scratch=Path("/"),
    backend="old",
)


class AdoptTests(SynchronousTestCase):
    def setUp(self) -> None:
        clock, machine = Clock(), Machine()
        earlier = MemoryBackend(clock, machine=machine)
        container = earlier.spawn(SPEC, Recorder())
        container.make_ready()
        earlier.crash()
        self.place, self.address = container.place, container.address
        self.old, self.new = MemoryBackend(clock, machine=machine), MemoryBackend(clock)
        self.old.name, self.new.name = "old", "new"
        settings: Any = None
        newest = Definition(DeploymentId("dp-2"), settings, self.new, lambda container, deployment: SPEC)
        self.deployments = Deployments(newest, {"old": self.old, "new": self.new}.get)

    def adopt(self, backend: str) -> object:
        spec = attrs.evolve(SPEC, backend=backend)
        return self.deployments.adopt(spec, self.place, self.address, Recorder())

    def test_the_backend_that_ran_it_takes_it_over(self) -> None:
        self.assertIsNotNone(self.adopt("old"))
        self.assertEqual((list(self.old.containers), list(self.new.containers)), (["ct-1"], []))

    def test_where_nothing_was_noted_it_is_the_newest_deployments(self) -> None:
        self.assertIsNone(self.adopt(""))
        self.assertIsNone(self.adopt("new"))

    def test_one_of_a_backend_that_is_not_there_any_more_is_lost_and_said(self) -> None:
        with capturedLogs() as events:
            self.assertIsNone(self.adopt("gone"))
        (event,) = [event for event in events if event["log_level"] is LogLevel.error]
        self.assertEqual((event["backend"], event["container"]), ("gone", "ct-1"))


@implementer(ISnapshotBackend)
class Warmed(MemoryBackend):
    """Notes which deployments it is to have a snapshot of."""

    def __init__(self, name: str) -> None:
        super().__init__(Clock())
        self.name = name
        self.asked: list[object] = []

    def warm(self, spec: ContainerSpec) -> None:
        self.asked.append(spec.deployment)

    def cool(self, server: ServerName) -> None:
        self.asked.append(None)

    def snapshot(self, server: ServerName) -> Snapshot | None:
        return Snapshot(self.name, None, None, "")


class SnapshotTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.one, self.other = Warmed("one"), Warmed("other")
        self.deployments = Deployments(self.definition("dp-1", self.one), lambda name: None)

    def definition(self, deployment: str, backend: MemoryBackend) -> Definition:
        settings: Any = None
        return Definition(DeploymentId(deployment), settings, backend, lambda container, deployment: SPEC)

    def spec(self, deployment: str) -> ContainerSpec:
        return attrs.evolve(SPEC, deployment=DeploymentId(deployment))

    def test_a_deployment_on_another_backend_leaves_nothing_on_the_first(self) -> None:
        self.deployments.warm(self.spec("dp-1"))
        self.deployments.bring(self.definition("dp-2", self.other), {DeploymentId("dp-1")})
        self.deployments.warm(self.spec("dp-2"))
        self.assertEqual((self.one.asked, self.other.asked), (["dp-1", None], ["dp-2"]))
        self.assertEqual(self.deployments.snapshot(ServerName("echo")), Snapshot("other", None, None, ""))

    def test_one_that_can_fork_nothing_has_none(self) -> None:
        self.deployments.bring(self.definition("dp-2", MemoryBackend(Clock())), {DeploymentId("dp-1")})
        self.deployments.warm(self.spec("dp-2"))
        self.assertEqual(self.one.asked, [None])
        self.assertIsNone(self.deployments.snapshot(ServerName("echo")))

    def test_the_witness_passes_on_what_is_asked_and_asks_nobody_who_cannot(self) -> None:
        witness = Witness(self.one, Endings(Clock()))
        witness.warm(self.spec("dp-1"))
        witness.cool(ServerName("echo"))
        self.assertEqual(self.one.asked, ["dp-1", None])
        self.assertEqual(witness.snapshot(ServerName("echo")), Snapshot("one", None, None, ""))
        plain = Witness(MemoryBackend(Clock()), Endings(Clock()))
        plain.warm(self.spec("dp-1"))
        plain.cool(ServerName("echo"))
        self.assertIsNone(plain.snapshot(ServerName("echo")))

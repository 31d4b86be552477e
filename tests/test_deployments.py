"""What each deployment runs, and who takes over what an earlier daemon ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.memory import Machine, MemoryBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.deployments import Definition, Deployments
from sticky.isticky import ContainerSpec
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

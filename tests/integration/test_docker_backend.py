"""Containers on real engines that this test starts: Docker's, and Podman's.

The conformance suites run on Docker with published ports; on Docker with the machine's network, and on Podman, among the
long tests.
"""

from __future__ import annotations

import json
import os

from twisted.internet.task import deferLater
from twisted.trial.unittest import SkipTest

from sticky.containers.docker import recipe
from sticky.containers.docker.backend import DockerBackend
from sticky.isticky import ContainerSpec
from tests.containers.conformance import AdoptionConformance, BackendConformance, LeftBehind, Program, Recorder
from tests.integration.docker_case import COMMANDS, REACTOR, RealEngineCase
from tests.integration.dockerd import MOUNTS


class DockerConformanceTests(RealEngineCase, BackendConformance, AdoptionConformance):
    backend: DockerBackend
    fifty_take_long = "an Engine takes a second for each"
    family = 5

    def spec(self, program: Program) -> ContainerSpec:
        # The folder: where a program is told to go on.
        mounts = (*MOUNTS, f"{self.folder}:{self.folder}:ro")
        return self.make_spec(*COMMANDS[program], options=self.options(mounts=mounts))

    async def turn(self) -> None:
        await deferLater(REACTOR, 0.01, lambda: None)

    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        earlier = self.make_backend()
        spec, recorder = self.spec(program), Recorder()
        container = earlier.spawn(spec, recorder)
        if ready:
            await self.until(lambda: recorder.address(container))
        else:
            await self.until(lambda: self.state(spec) == "running")
        await earlier.stop()
        return LeftBehind(spec, container.place, recorder.address(container))

    async def end_unseen(self, left: LeftBehind) -> None:
        self.engine.ask("POST", f"/v1.41/containers/{recipe.name(left.spec.container)}/kill?signal=KILL")
        await self.until(lambda: self.state(left.spec) != "running")

    async def runs(self, left: LeftBehind) -> bool:
        return self.state(left.spec) == "running"

    def state(self, spec: ContainerSpec) -> str | None:
        answer = self.engine.ask("GET", f"/v1.41/containers/{recipe.name(spec.container)}/json")
        try:
            found = json.loads(answer.partition(b"\r\n\r\n")[2])
        except ValueError:
            return None
        return str(found["State"]["Status"]) if "State" in found else None


class _Long(DockerConformanceTests):
    def setUp(self) -> None:
        if "STICKY_LONG_TESTS" not in os.environ:
            raise SkipTest("a long test: set STICKY_LONG_TESTS=1")
        super().setUp()


class HostNetworkConformanceTests(_Long):
    network = "host"


class PodmanConformanceTests(_Long):
    kind = "podman"
    network = "host"


del _Long

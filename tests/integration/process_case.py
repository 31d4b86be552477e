"""A real process backend for tests: containers that are gone at the end of each. Knows nothing of what is asserted."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import attrs
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from sticky.containers.cgroups import Cgroups
from sticky.containers.child import Child
from sticky.containers.logs import log_path
from sticky.containers.process import IContainerReactor, ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec, Exit
from tests.containers.conformance import Program, Recorder
from tests.integration.children import LISTENS, PYTHON, STUBBORN, written

DEADLINE = 20.0  # seconds for anything; a loaded machine needs some
REACTOR = cast(IContainerReactor, reactor)
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": "/daemon/only", "SECRET": "hush"}

COMMANDS: Mapping[Program, tuple[str, ...]] = {
    Program.SERVES: (*PYTHON, LISTENS),
    Program.STUBBORN: (*PYTHON, STUBBORN),
    Program.SILENT: ("sleep", "600"),
    Program.EXITS: ("sh", "-c", "echo last words; exit 3"),
    Program.MISSING: ("no-such-program-anywhere",),
}


def forget_cgroups(realm: str) -> None:
    """What daemons of a realm that were killed have left at the top of the hierarchies. Waits for processes that are dying."""
    cgroups = Cgroups(realm)
    for _ in range(200):
        groups = cgroups.strays([]).values()
        for group in groups:
            group.kill()
        if all(group.remove() for group in groups):
            break
        time.sleep(0.01)
    cgroups.close()


class ProcessTestCase(TestCase):
    """A backend, a folder, and nobody left at the end."""

    timeout = 120

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))  # short: a Unix socket's path has 107 bytes
        self.addCleanup(shutil.rmtree, self.folder)
        self.backend = self.make_backend()
        self.recorder = Recorder()
        self.spawned: list[Child] = []

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it
        for container in self.spawned:
            container.kill()
        await self.until(lambda: all(self.recorder.exit(container) for container in self.spawned))
        await self.backend.stop()

    def make_backend(self, **settings: Any) -> ProcessBackend:
        return ProcessBackend(REACTOR, environ=ENVIRON, **settings)

    def make_spec(self, *command: str, **changes: Any) -> ContainerSpec:
        container = ContainerId(f"ct-{os.urandom(8).hex()}")
        spec = ContainerSpec(
            container=container,
            server=ServerName("echo"),
            deployment=DeploymentId("d1"),
            app="app",
            command=command,
            directory=self.folder,
            log=log_path(self.folder / "logs", ServerName("echo"), container),
            scratch=self.folder / container,
            url="http://echo.localhost",
        )
        return attrs.evolve(spec, **changes)

    def run_container(self, *command: str, **changes: Any) -> Child:
        container = self.backend.spawn(self.make_spec(*command, **changes), self.recorder)
        self.spawned.append(container)
        return container

    async def until(self, condition: Callable[[], object]) -> None:
        give_up = REACTOR.seconds() + DEADLINE
        while not condition():
            self.assertLess(REACTOR.seconds(), give_up, f"waited too long; heard {self.recorder.facts}")
            await deferLater(REACTOR, 0.005, lambda: None)

    async def ready(self, container: Child) -> object:
        await self.until(lambda: self.recorder.address(container) or self.recorder.exit(container))
        address = self.recorder.address(container)
        self.assertIsNotNone(address, self.recorder.exit(container))
        return address

    async def exit(self, container: Child) -> Exit:
        await self.until(lambda: self.recorder.exit(container))
        found = self.recorder.exit(container)
        assert found is not None
        return found

    async def output(self, container: Child) -> list[str]:
        await self.until(lambda: written(container.spec.log))
        return written(container.spec.log).splitlines()

"""A docker backend over a fake Engine, for the tests of its parts together. Holds no test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from sticky.containers.docker.backend import DockerBackend
from sticky.containers.docker.dock import IDockReactor
from sticky.containers.logs import log_path
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainer
from tests.containers.conformance import Recorder
from tests.fakes.engine import FakeContainer, FakeEngine

REACTOR = cast(IDockReactor, reactor)
DEADLINE = 10.0  # seconds for anything


class DockerCase(TestCase):
    """A fake Engine that runs, a prepared backend, and nobody left at the end."""

    timeout = 60
    realm = "a-state-dir"

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))  # short: a Unix socket's path has 107 bytes
        self.engine = FakeEngine(reactor, str(self.folder / "e.sock"))
        self.engine.start()
        self.backend = self.make_backend()
        self.recorder = Recorder()

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it
        await self.backend.stop()
        await self.engine.close()
        shutil.rmtree(self.folder)

    def make_backend(self, **settings: Any) -> DockerBackend:
        backend = DockerBackend(REACTOR, realm=self.realm, ask=self.engine.ask_now, **settings)
        backend.prepare([self.options()])
        return backend

    def options(self, **changes: Any) -> dict[str, object]:
        return {"image": "app:1", "socket": self.engine.path, **changes}

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
            options=self.options(),
        )
        return attrs.evolve(spec, **changes)

    def run_container(self, *command: str, **changes: Any) -> IContainer:
        return self.backend.spawn(self.make_spec(*command, **changes), self.recorder)

    async def until(self, condition: Callable[[], object]) -> None:
        give_up = REACTOR.seconds() + DEADLINE
        while not condition():
            self.assertLess(REACTOR.seconds(), give_up, f"waited too long; heard {self.recorder.facts}")
            await deferLater(REACTOR, 0.002, lambda: None)

    async def ready(self, container: IContainer) -> Address:
        await self.until(lambda: self.recorder.address(container) or self.recorder.exit(container))
        address = self.recorder.address(container)
        assert address is not None, self.recorder.exit(container)
        return address

    async def exit(self, container: IContainer) -> Exit:
        await self.until(lambda: self.recorder.exit(container))
        found = self.recorder.exit(container)
        assert found is not None
        return found

    async def created(self, container: IContainer) -> FakeContainer:
        await self.until(
            lambda: any(one.labels.get("sticky.container") == container.id for one in self.engine.containers.values())
        )
        return self.engine.of(container.id)

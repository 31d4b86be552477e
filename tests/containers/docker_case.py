"""A docker backend over a fake Engine, for the tests of its parts together. Holds no test."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor

from sticky.containers.docker.backend import DockerBackend
from sticky.containers.docker.dock import IDockReactor
from sticky.isticky import ContainerSpec, IContainer
from tests.containers.backend_case import BackendCase
from tests.containers.conformance import Recorder
from tests.fakes.engine import FakeContainer, FakeEngine

REACTOR = cast(IDockReactor, reactor)


class DockerCase(BackendCase):
    """A fake Engine that runs, a prepared backend, and nobody left at the end."""

    timeout = 120
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

    def run_container(self, *command: str, **changes: Any) -> IContainer:
        return self.backend.spawn(self.make_spec(*command, **changes), self.recorder)

    def go_on(self, spec: ContainerSpec) -> None:
        self.engine.go_on(self.engine.of(spec.container))

    def alive(self, spec: ContainerSpec) -> int:
        return int(self.running(spec))

    def running(self, spec: ContainerSpec) -> bool:
        return any(
            fake.status == "running" and fake.labels["sticky.container"] == spec.container
            for fake in self.engine.containers.values()
        )

    async def created(self, container: IContainer) -> FakeContainer:
        await self.until(
            lambda: any(one.labels.get("sticky.container") == container.id for one in self.engine.containers.values())
        )
        return self.engine.of(container.id)

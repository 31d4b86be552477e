"""A docker backend over a real engine. Holds no test."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor
from twisted.trial.unittest import SkipTest

from sticky.containers.docker.backend import DockerBackend
from sticky.containers.docker.dock import IDockReactor
from sticky.isticky import ContainerSpec, IContainer
from tests.containers.backend_case import BackendCase
from tests.containers.conformance import Program, Recorder
from tests.integration.children import CRASHES, DIES, FAMILY, FLOODS, GO, IDENTITY, LATE, LISTENS, STUBBORN
from tests.integration.dockerd import INTERPRETER, MOUNTS, CannotRun, EngineProcess, shared

REACTOR = cast(IDockReactor, reactor)
PYTHON = (INTERPRETER, "-I", "-S", "-c")


#: As in child processes, but on the address that the container is told: its own loopback is not where the port arrives.
def _on_its_host(script: str) -> str:
    return script.replace('"127.0.0.1"', 'os.environ["STICKY_HOST"]')


SERVES, IGNORES = _on_its_host(LISTENS), _on_its_host(STUBBORN)

COMMANDS: Mapping[Program, tuple[str, ...]] = {
    Program.SERVES: (*PYTHON, SERVES),
    Program.STUBBORN: (*PYTHON, IGNORES),
    Program.SILENT: ("sleep", "600"),
    Program.EXITS: ("sh", "-c", "echo last words; exit 3"),
    Program.MISSING: ("no-such-program-anywhere",),
    Program.LATE: (*PYTHON, _on_its_host(LATE), GO, IDENTITY),
    Program.CRASHES: (*PYTHON, _on_its_host(CRASHES), GO),
    Program.DIES: (*PYTHON, _on_its_host(DIES), GO),
    Program.FLOODS: (*PYTHON, _on_its_host(FLOODS), GO),
    Program.FAMILY: (*PYTHON, _on_its_host(FAMILY), GO, IDENTITY, "hides"),
}


class RealEngineCase(BackendCase):
    """A prepared backend on an engine of our own, and no container left at the end."""

    timeout = 300
    deadline = 150.0  # an Engine on a loaded machine takes seconds for each container, one after the other
    realm = "a-state-dir"
    kind = "docker"
    network = "publish"

    def setUp(self) -> None:
        try:
            self.engine = self.make_engine()  # blocks; nothing else runs in this process
        except CannotRun as reason:
            raise SkipTest(str(reason))
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.recorder = Recorder()
        self.spawned: list[IContainer] = []
        self.specs: dict[str, ContainerSpec] = {}
        self.backend = self.make_backend()

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it
        for container in self.spawned:
            container.kill()
        await self.until(lambda: all(self.recorder.exit(container) for container in self.spawned))
        await self.backend.stop()
        shutil.rmtree(self.folder)

    def make_engine(self) -> EngineProcess:
        return shared(self.kind)

    def make_backend(self, **settings: Any) -> DockerBackend:
        backend = DockerBackend(REACTOR, realm=self.realm, **settings)
        backend.prepare([self.options()])
        return backend

    def options(self, **changes: Any) -> dict[str, object]:
        image = self.engine.image
        return {
            "image": image,
            "socket": self.engine.socket,
            "mounts": MOUNTS,
            "network": self.network,
            **changes,
        }

    def run_container(self, *command: str, **changes: Any) -> IContainer:
        spec = self.make_spec(*command, **changes)
        self.specs[spec.container] = spec
        container = self.backend.spawn(spec, self.recorder)
        self.spawned.append(container)
        return container

    def spec_of(self, container: str) -> ContainerSpec:
        return self.specs[container]

    def labelled(self, container: str) -> bool:
        """Whether the engine has it, running or not."""
        return any(one["Labels"].get("sticky.container") == container for one in self.on_the_engine())

    def on_the_engine(self) -> list[Mapping[str, Any]]:
        """All containers that it has, whoever's."""
        answer = self.engine.ask("GET", "/v1.41/containers/json?all=1")
        found: list[Mapping[str, Any]] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found

    def written(self, spec: ContainerSpec) -> str:
        return spec.log.read_text() if spec.log.exists() else ""

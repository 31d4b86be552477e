"""A real process backend for tests: containers that are gone at the end of each. Knows nothing of what is asserted."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor

from sticky.containers.cgroups import Cgroups
from sticky.containers.child import Child
from sticky.containers.process import IContainerReactor, ProcessBackend
from tests.containers.backend_case import BackendCase
from tests.containers.conformance import Program, Recorder
from tests.integration.children import (
    CRASHES,
    DIES,
    FAMILY,
    FLOODS,
    GO,
    IDENTITY,
    LATE,
    LISTENS,
    PYTHON,
    STUBBORN,
    written,
)

REACTOR = cast(IContainerReactor, reactor)
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": "/daemon/only", "SECRET": "hush"}

COMMANDS: Mapping[Program, tuple[str, ...]] = {
    Program.SERVES: (*PYTHON, LISTENS),
    Program.STUBBORN: (*PYTHON, STUBBORN),
    Program.SILENT: ("sleep", "600"),
    Program.EXITS: ("sh", "-c", "echo last words; exit 3"),
    Program.MISSING: ("no-such-program-anywhere",),
    Program.LATE: (*PYTHON, LATE, GO, IDENTITY),
    Program.CRASHES: (*PYTHON, CRASHES, GO),
    Program.DIES: (*PYTHON, DIES, GO),
    Program.FLOODS: (*PYTHON, FLOODS, GO),
    Program.FAMILY: (*PYTHON, FAMILY, GO, IDENTITY),
}
HIDES = "hides"  #: as a last argument of FAMILY: one of them hides as well as it can


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


class ProcessTestCase(BackendCase):
    """A backend, a folder, and nobody left at the end."""

    timeout = 120

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))  # short: a Unix socket's path has 107 bytes
        self.addCleanup(self.remove, self.folder)
        self.backend = self.make_backend()
        self.recorder = Recorder()
        self.spawned: list[Child] = []

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it
        for container in self.spawned:
            container.kill()
        await self.until(lambda: all(self.recorder.exit(container) for container in self.spawned))
        await self.backend.stop()

    async def remove(self, folder: Path) -> None:
        """While threads may remove scratch folders in it."""

        def removed() -> bool:
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()

        await self.until(removed)

    def make_backend(self, **settings: Any) -> ProcessBackend:
        return ProcessBackend(REACTOR, environ=ENVIRON, **settings)

    def run_container(self, *command: str, **changes: Any) -> Child:
        container = self.backend.spawn(self.make_spec(*command, **changes), self.recorder)
        self.spawned.append(container)
        return container

    async def output(self, container: Child) -> list[str]:
        await self.until(lambda: written(container.spec.log))
        return written(container.spec.log).splitlines()

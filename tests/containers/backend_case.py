"""What the tests of every backend on a real reactor share: a spec to run, and waiting until a container tells something.

Holds no test, and knows no backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from sticky.containers.logs import log_path
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainer
from tests.containers.conformance import Recorder
from tests.integration.children import GO, bearing

CLOCK = cast(IReactorTime, reactor)
LOOK = 0.005  # seconds between two looks
_GO = "go"  # in a container's scratch folder


class BackendCase(TestCase):
    """Whoever derives from it makes `folder` and `recorder`, and a backend that tells the recorder."""

    deadline = 60.0  # seconds for anything; a loaded machine needs some
    folder: Path
    recorder: Recorder

    def options(self, **changes: Any) -> dict[str, object]:
        """What the backend is told in a spec."""
        return changes

    def make_spec(self, *command: str, **changes: Any) -> ContainerSpec:
        container = ContainerId(f"ct-{os.urandom(8).hex()}")
        scratch = self.folder / container
        spec = ContainerSpec(
            container=container,
            server=ServerName("echo"),
            deployment=DeploymentId("d1"),
            app="app",
            command=tuple(argument.replace(GO, str(scratch / _GO)) for argument in command),
            directory=self.folder,
            log=log_path(self.folder / "logs", ServerName("echo"), container),
            scratch=scratch,
            url="http://echo.localhost",
            options=self.options(),
        )
        return attrs.evolve(spec, **changes)

    async def until(self, condition: Callable[[], object]) -> None:
        give_up = CLOCK.seconds() + self.deadline
        while not condition():
            self.assertLess(CLOCK.seconds(), give_up, f"waited too long; heard {self.recorder.facts}")
            await deferLater(CLOCK, LOOK, lambda: None)

    def go_on(self, spec: ContainerSpec) -> None:
        """Tell a program that has `children.GO` as an argument to go on."""
        spec.scratch.mkdir(exist_ok=True)
        (spec.scratch / _GO).touch()

    def alive(self, spec: ContainerSpec) -> int:
        """How many processes there are of a program that has `children.IDENTITY` as an argument."""
        return len(bearing(spec.container))

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

"""The docker backend keeps the promises of every backend, over a fake Engine."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.docker.backend import DockerBackend
from sticky.containers.plugins import installed
from sticky.isticky import ContainerSpec
from tests.containers.conformance import BackendConformance, Program
from tests.containers.docker_case import DockerCase

COMMANDS: Mapping[Program, tuple[str, ...]] = {program: (program.value,) for program in Program}


class DockerConformanceTests(DockerCase, BackendConformance):
    backend: DockerBackend

    def spec(self, program: Program) -> ContainerSpec:
        return self.make_spec(*COMMANDS[program])


class PluginTests(SynchronousTestCase):
    def test_it_is_built_in(self) -> None:
        self.assertIs(installed()["docker"].load(), DockerBackend)

"""What tests of isolated containers need of the machine, and reasons to skip where it is missing. Asserts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import SkipTest

from sticky.containers import abilities
from sticky.containers.child import Child
from sticky.containers.ownership import orphans
from sticky.containers.process import ProcessBackend
from tests.integration.process_case import ENVIRON, REACTOR, ProcessTestCase, forget_cgroups

SYSTEM_PYTHON = "/usr/bin/python3"  #: one that another user may run, which that of a checkout under /root is not


def possible(**options: Any) -> None:
    """Skip with the reason where this machine cannot do it."""
    found = abilities.problem(options, f"test-{os.urandom(8).hex()}")
    if found is not None:
        raise SkipTest(f"{found[0]}: {found[1]}")


def system_python() -> str:
    """A Python for other users; skips where there is none."""
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        raise SkipTest(f"there is no {SYSTEM_PYTHON}")
    return SYSTEM_PYTHON


def cgroup_folders(container: str) -> list[Path]:
    """Every folder that a container has in the hierarchies."""
    return sorted(Path("/sys/fs/cgroup").glob(f"**/sticky/*/{container}"))


class IsolationCase(ProcessTestCase):
    """A backend with a realm, so that it may use cgroups."""

    def make_backend(self, **settings: Any) -> ProcessBackend:
        self.realm = f"test-{os.urandom(8).hex()}"
        self.addCleanup(self.clean)
        return ProcessBackend(REACTOR, environ=ENVIRON, realm=self.realm, **settings)

    def clean(self) -> None:
        left = orphans(self.realm, [])
        forget_cgroups(self.realm)
        assert not left, left

    def confined(self, *command: str, options: Mapping[str, object], **changes: Any) -> Child:
        """A container with these options, or a skip."""
        possible(**options)
        return self.run_container(*command, options=dict(options), **changes)

"""A process as a container, without a process."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky.containers.child import Child
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainerListener, UNIXAddress

DOOR = UNIXAddress("/door")


@implementer(IContainerListener)
class Heard:
    """The names of what was told."""

    def __init__(self) -> None:
        self.facts: list[str] = []

    def ready(self, container: ContainerId, address: Address) -> None:
        self.facts.append("ready")

    def exited(self, container: ContainerId, exit: Exit) -> None:
        self.facts.append("exited")


class Household:
    """A backend that does nothing for it."""

    def answered(self, child: Child, address: Address) -> None: ...

    def port_problem(self, child: Child) -> str | None: ...

    def out_of_memory(self, child: Child) -> bool:
        return False

    def gone(self, child: Child) -> None: ...


class Hold:
    """Its process, which is none."""

    def running(self) -> bool:
        return True

    def send(self, number: signal.Signals) -> None: ...

    def close_report(self) -> None: ...

    def release(self) -> None: ...


class ReadyTests(SynchronousTestCase):
    def setUp(self) -> None:
        spec = ContainerSpec(
            container=ContainerId("ct-1"),
            server=ServerName("echo"),
            deployment=DeploymentId("d1"),
            app="app",
            command=("run",),
            directory=Path("/"),
            log=Path("/log"),
            scratch=Path("/"),
        )
        reactor: Any = MemoryReactorClock()
        self.reactor = reactor
        self.heard = Heard()
        self.child = Child(spec, self.heard, reactor, Household())
        self.child.expect([DOOR], Hold())

    def test_one_that_takes_connections_is_ready(self) -> None:
        self.child.opened(DOOR)
        self.assertEqual(self.heard.facts, ["ready"])

    def test_one_that_was_asked_to_end_before_is_never_ready(self) -> None:
        self.child.terminate()
        self.child.opened(DOOR)
        self.assertEqual(self.heard.facts, [])

    def test_nor_is_it_looked_whether_it_listens(self) -> None:
        self.child.terminate()
        self.child.report_closed()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

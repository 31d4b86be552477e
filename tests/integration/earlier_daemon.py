"""A daemon that runs nothing but the process backend, for tests that kill it, and how a test speaks to it. Asserts nothing.

`main REALM MORTAL`, in a process of its own: a JSON line with a spec in, JSON lines with facts out.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers.process import IContainerReactor, ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, Exit, IContainerListener, TCPAddress
from tests.integration.preloaded import ROOT, Preloaded

PATHS = ("directory", "log", "scratch")


def written(spec: ContainerSpec) -> bytes:
    """A spec as a line, of those fields that tests use."""
    values = {name: str(getattr(spec, name)) for name in PATHS}
    values |= {
        name: getattr(spec, name) for name in ("container", "server", "command", "port", "reports_ready", "options")
    }
    return json.dumps(values).encode() + b"\n"


def understood(line: bytes) -> ContainerSpec:
    values = json.loads(line)
    return ContainerSpec(
        container=ContainerId(values["container"]),
        server=ServerName(values["server"]),
        deployment=DeploymentId("d1"),
        app="app",
        command=tuple(values["command"]),
        directory=Path(values["directory"]),
        log=Path(values["log"]),
        scratch=Path(values["scratch"]),
        port=values["port"],
        reports_ready=values["reports_ready"],
        options=values["options"],
    )


def say(container: str, **facts: Any) -> None:
    print(json.dumps({"container": container, **facts}), flush=True)


@implementer(IContainerListener)
class Says:
    def ready(self, container: ContainerId, address: Address) -> None:
        assert isinstance(address, TCPAddress)
        say(container, ready=[address.host, address.port, address.network])

    def exited(self, container: ContainerId, exit: Exit) -> None:
        say(container, exit=exit.message)


class Orders(LineOnlyReceiver):
    delimiter = b"\n"

    def __init__(self, backend: ProcessBackend, gone: Callable[[], object]) -> None:
        self._backend = backend
        self._gone = gone

    def lineReceived(self, line: bytes) -> None:
        container = self._backend.spawn(understood(line), Says())
        say(container.id, place=dict(container.place))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._gone()


def main() -> None:
    from twisted.internet import reactor
    from twisted.internet.stdio import StandardIO

    running = cast(Any, reactor)
    _program, realm, mortal = sys.argv
    backend = ProcessBackend(cast(IContainerReactor, reactor), realm=realm, die_with_daemon=mortal == "mortal")
    running.callWhenRunning(lambda: StandardIO(Orders(backend, lambda: os._exit(1))))
    running.run()


class EarlierDaemon:
    """The test's side. Nothing here waits: `listen` takes what was said by now."""

    def __init__(self, realm: str, *, mortal: bool = False) -> None:
        orders, ours = os.pipe()
        theirs, facts = os.pipe()
        self._orders, self._facts = open(ours, "wb"), open(theirs, "rb", buffering=0)  # noqa: SIM115
        os.set_blocking(theirs, False)
        try:
            self.process = Preloaded(
                "earlier_daemon.py",
                [realm, "mortal" if mortal else ""],
                given=orders,
                output=facts,
                errors=2,
                folder=ROOT,
                environ=os.environ,
            )
        finally:
            os.close(orders)
            os.close(facts)
        self._received = b""
        self._said: dict[tuple[str, str], Any] = {}

    def order(self, spec: ContainerSpec) -> None:
        self._orders.write(written(spec))
        self._orders.flush()

    def said(self, kind: str, spec: ContainerSpec) -> Any:
        """What it said of a container by now: its "place", where it is "ready", how it did "exit"."""
        self._listen()
        return self._said.get((kind, spec.container))

    def place(self, spec: ContainerSpec) -> Mapping[str, object]:
        found: Mapping[str, object] = self.said("place", spec)
        return found

    def address(self, spec: ContainerSpec) -> TCPAddress | None:
        found = self.said("ready", spec)
        return TCPAddress(*found) if found else None

    def kill(self) -> None:
        """With -9. Again: nothing happens."""
        self.process.kill()
        self.process.wait()
        self._orders.close()
        self._facts.close()

    def _listen(self) -> None:
        if self._facts.closed:
            return
        while chunk := os.read(self._facts.fileno(), 65_536) if self._readable() else b"":
            self._received += chunk
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            fact = json.loads(line)
            container = fact.pop("container")
            for kind, value in fact.items():
                self._said[kind, container] = value

    def _readable(self) -> bool:
        poll = select.poll()
        poll.register(self._facts, select.POLLIN)
        return bool(poll.poll(0))

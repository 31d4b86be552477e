"""A proxy that reaches a daemon: what it cannot make sense of ends the link, so that nobody waits for an answer that never comes."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.workers.far import FarDaemon
from sticky.workers.frames import _LENGTH
from tests.fakes.links import End


class FakeReactor(Clock):
    """Connects nowhere, and remembers to whom."""

    factory: Any = None

    def connectUNIX(self, path: str, factory: Any, timeout: float) -> None:
        self.factory = factory


class FarDaemonTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.welcomes: list[Any] = []
        self.lost = 0
        self.far = FarDaemon(
            self.reactor,
            "p",
            welcomed=self.welcomed,
            lost=self.on_lost,
            close=self.close,
            stop=lambda: None,
            moved=lambda within: None,
            tally=dict,
        )
        self.addCleanup(self.far.leave)
        self.far.connect("\0there")
        self.link = self.reactor.factory.buildProtocol(None)
        self.transport = End()
        self.link.makeConnection(self.transport)

    def welcomed(self, config: Any) -> None:
        if config == "nonsense":
            raise ValueError("it has no such field")
        self.welcomes.append(config)

    def on_lost(self) -> None:
        self.lost += 1

    def close(self, code: int, reason: str) -> Deferred[None]:
        return succeed(None)

    def answer(self, **fields: object) -> None:
        data = json.dumps({"re": 1, **fields}).encode()
        self.link.dataReceived(_LENGTH.pack(len(data)) + data)

    def test_one_that_is_welcome_stays(self) -> None:
        self.answer(config={}, over=[])
        self.assertEqual((self.welcomes, self.transport.closed), ([{}], False))

    def test_a_configuration_that_cannot_be_read_ends_the_link(self) -> None:
        self.answer(config="nonsense", over=[])
        self.assertTrue(self.transport.closed)
        self.link.connectionLost()
        self.assertEqual(self.lost, 1)

    def test_a_daemon_that_refuses_ends_the_link(self) -> None:
        self.answer(refused={"kind": "BadRequest", "status": 400, "code": "bad_request", "message": "no"})
        self.assertTrue(self.transport.closed)

"""Who is let in."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from sticky.admin.peers import Guard


class Echo(Protocol):
    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class AbortableTransport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class GuardTests(SynchronousTestCase):
    def connect(self, uid: int) -> tuple[Guard, Any, AbortableTransport]:
        guard = Guard(Factory.forProtocol(Echo), lambda _: uid)
        connection = guard.buildProtocol(None)
        transport = AbortableTransport()
        connection.makeConnection(transport)
        return guard, connection, transport

    def test_our_own_user_and_root_are_let_in(self) -> None:
        for uid in {0, os.geteuid()}:
            guard, connection, transport = self.connect(uid)
            connection.dataReceived(b"hello")
            self.assertEqual(transport.value(), b"hello")
            self.assertEqual(list(guard.protocols), [connection])

    def test_anybody_else_gets_nothing(self) -> None:
        guard, connection, transport = self.connect(54321)
        self.assertTrue(transport.disconnecting)
        connection.dataReceived(b"hello")
        connection.connectionLost(Failure(ConnectionLost()))
        self.assertEqual((transport.value(), list(guard.protocols)), (b"", []))

    def test_all_connections_can_be_dropped(self) -> None:
        guard, _, transport = self.connect(0)
        guard.abort()
        self.assertTrue(transport.aborted)

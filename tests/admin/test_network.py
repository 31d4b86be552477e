"""The admin API's TCP ports: who connects before it serves waits, and what another one has taken meanwhile is tried for again."""

from __future__ import annotations

import errno
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.admin import network
from sticky.admin.network import AGAIN_AFTER, AdminPorts

ONE, TWO = "tcp:1:interface=127.0.0.1", "tcp:2:interface=127.0.0.1"


class Port:
    """An open port, that notes whether it takes connections."""

    def __init__(self) -> None:
        self.reads = self.open = True

    def stopReading(self) -> None:
        self.reads = False

    def startReading(self) -> None:
        self.reads = True

    def stopListening(self) -> Deferred[None]:
        self.open = False
        return succeed(None)

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 1)


class AdminPortsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.taken: set[str] = set()
        self.opened: dict[str, Port] = {}
        self.patch(network, "serverFromString", lambda reactor, endpoint: self._Endpoint(self, endpoint))
        self.ports = AdminPorts([ONE, TWO], Factory(), self.clock)

    class _Endpoint:
        def __init__(self, case: AdminPortsTests, endpoint: str) -> None:
            self._case, self._endpoint = case, endpoint

        def listen(self, factory: Any) -> Deferred[Port]:
            if self._endpoint in self._case.taken:
                return fail(CannotListenError("127.0.0.1", 2, OSError(errno.EADDRINUSE, "Address already in use")))
            port = self._case.opened[self._endpoint] = Port()
            return succeed(port)

    def test_who_connects_before_it_serves_waits(self) -> None:
        self.ports.privilegedStartService()
        self.assertEqual([port.reads for port in self.opened.values()], [False, False])
        self.ports.startService()
        self.assertEqual([port.reads for port in self.opened.values()], [True, True])

    def test_one_that_is_taken_at_the_start_ends_the_process(self) -> None:
        self.taken = {TWO}
        said: list[str] = []
        self.patch(network, "give_up", lambda text, status: said.append(text))
        self.ports.privilegedStartService()
        (line,) = said
        self.assertIn(f"cannot open the admin port {TWO}", line)
        self.assertIn("Address already in use", line)

    def test_one_that_is_taken_after_a_rest_is_tried_for_until_it_is_free(self) -> None:
        self.ports.privilegedStartService()
        self.ports.startService()
        self.successResultOf(self.ports.stopService())
        self.assertEqual([port.open for port in self.opened.values()], [False, False])
        self.taken = {TWO}
        self.opened.clear()
        self.ports.wake()
        self.clock.advance(AGAIN_AFTER)
        self.assertEqual([(endpoint, port.reads) for endpoint, port in self.opened.items()], [(ONE, True)])
        self.taken = set()
        self.clock.advance(AGAIN_AFTER)
        self.assertEqual([(port.reads, port.open) for port in self.opened.values()], [(True, True)] * 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_certificate_that_cannot_be_read_just_now_is_tried_again_too(self) -> None:
        """The endpoint string's parser reads it, and raises."""

        def cannot(reactor: object, endpoint: str) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied", "key.pem")

        patched = self.patch(network, "serverFromString", cannot)
        self.ports.wake()
        self.assertEqual(self.opened, {})
        patched.restore()
        self.clock.advance(AGAIN_AFTER)
        self.assertEqual(list(self.opened), [ONE, TWO])

    def test_one_that_stops_meanwhile_tries_no_more(self) -> None:
        self.taken = {ONE}
        self.ports.wake()
        self.successResultOf(self.ports.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""Listeners that cannot be opened, or only after a while; and who may not come in meanwhile."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from sticky import listeners
from sticky.edge.context import EdgeFactory
from sticky.listeners import Listeners
from tests.fakes.edge import FakeEdge


class Refusing(MemoryReactor):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        raise CannotListenError(interface, port, OSError(self.number, os.strerror(self.number)))


class AdviceTests(SynchronousTestCase):
    def line(self, number: int) -> str:
        stderr = io.StringIO()
        self.patch(sys, "__stderr__", stderr)
        folder = Path(self.mktemp())
        folder.mkdir()
        endpoints = ["tcp:80:interface=192.0.2.1"]
        listeners = Listeners(Refusing(number), endpoints, cast(EdgeFactory, object()), folder, {})
        self.assertEqual(self.assertRaises(SystemExit, listeners.privilegedStartService).code, 1)
        self.assertEqual(stderr.getvalue().count("\n"), 1)
        return stderr.getvalue()

    def test_each_reason_has_its_own_advice(self) -> None:
        self.assertIn("Is another daemon running?", self.line(errno.EADDRINUSE))
        self.assertIn("no address of this machine", self.line(errno.EADDRNOTAVAIL))
        self.assertIn("Ports below 1024", self.line(errno.EACCES))
        self.assertIn("Choose another one", self.line(errno.EMFILE))


class Port:
    """A listening port."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "192.0.2.1", 80)

    def startReading(self) -> None:
        self.calls.append("start")

    def stopReading(self) -> None:
        self.calls.append("stop")

    def stopListening(self) -> Deferred[None]:
        self.calls.append("close")
        return succeed(None)


class Slow:
    """An endpoint that listens when the test says so."""

    def __init__(self) -> None:
        self.cancelled = False
        self.listening: Deferred[Port] = Deferred(lambda _: setattr(self, "cancelled", True))

    def listen(self, factory: object) -> Deferred[Port]:
        return self.listening


class FakeLog:
    """Notes reasons."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def error(self, text: str, **more: str) -> None:
        self._said.append(more["reason"])

    def info(self, text: str, **more: str) -> None:
        pass


class SlowEndpointTests(SynchronousTestCase):
    """Twisted's own endpoints listen at once; a plugin's need not."""

    def setUp(self) -> None:
        self.endpoint = Slow()
        self.patch(listeners, "serverFromString", lambda reactor, text: self.endpoint)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        edge = FakeEdge()
        self.clock = edge.reactor
        self.listeners = Listeners(edge.reactor, ["onion:80"], edge.factory, self.folder, {})
        self.listeners.privilegedStartService()

    def url(self) -> str:
        return (self.folder / "url").read_text().strip()

    def test_before_the_start_nobody_is_accepted_and_then_everybody(self) -> None:
        port = Port()
        self.endpoint.listening.callback(port)
        self.assertEqual(port.calls, ["stop"])
        self.listeners.startService()
        self.assertEqual((port.calls, self.url()), (["stop", "start"], "http://192.0.2.1:80"))

    def test_one_that_listens_after_the_start_accepts_at_once_and_is_announced(self) -> None:
        self.listeners.startService()
        self.assertEqual(self.url(), "")
        port = Port()
        self.endpoint.listening.callback(port)
        self.assertEqual((port.calls, self.url()), ([], "http://192.0.2.1:80"))
        self.listeners.stopService()
        self.assertEqual(port.calls, ["stop", "close"])

    def test_where_there_is_no_room_for_the_address_it_serves_and_writes_that_later(self) -> None:
        reasons = [(errno.ENOSPC, "No space left on device"), (errno.EACCES, "Permission denied")]
        trouble = iter(reasons)

        def full(path: Path, text: str) -> None:
            raise OSError(*next(trouble))

        said: list[str] = []
        self.patch(self.listeners, "log", FakeLog(said))
        room = self.patch(Path, "write_text", full)
        self.endpoint.listening.callback(Port())
        self.listeners.startService()
        self.clock.advance(listeners.AGAIN_AFTER)
        self.assertEqual(said, [reason for _, reason in reasons])
        self.assertFalse((self.folder / "url").exists())
        room.restore()
        self.clock.advance(listeners.AGAIN_AFTER)
        self.assertEqual(self.url(), "http://192.0.2.1:80")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_else_is_in_its_way_is_for_the_operator_to_mend(self) -> None:
        (self.folder / "url").mkdir()
        self.endpoint.listening.callback(Port())
        self.assertRaises(IsADirectoryError, self.listeners.startService)
        self.listeners.inherited = {"tcp:80": []}  # an earlier daemon has gone: nobody is there to go on
        said: list[str] = []
        self.patch(self.listeners, "log", FakeLog(said))
        self.listeners.startService()
        self.listeners.stopService()
        self.assertEqual(said, ["Is a directory"] * 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_stops_before_there_is_room_leaves_nothing_behind(self) -> None:
        self.patch(self.listeners, "log", FakeLog([]))
        (self.folder / "url.new").symlink_to("/dev/full")
        self.listeners.startService()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.listeners.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_fails_after_the_start_is_said(self) -> None:
        self.listeners.startService()
        self.endpoint.listening.errback(CannotListenError("192.0.2.1", 80, OSError(errno.EADDRINUSE, "in use")))
        self.assertEqual(len(self.flushLoggedErrors(CannotListenError)), 1)

    def test_one_that_is_still_waited_for_is_given_up_at_the_stop(self) -> None:
        self.listeners.startService()
        self.listeners.stopService()
        self.assertTrue(self.endpoint.cancelled)
        self.assertEqual(self.flushLoggedErrors(), [])

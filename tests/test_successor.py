"""The new daemon's side of a restart: in which order it gets ready, has the old one rest, and takes over."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.succession import TAKE_OVER, UP, Inheritance
from sticky.successor import READY_WITHIN, Successor
from tests.fakes.links import Wire


class Reactor(Clock):
    """Gives the new daemon its end of the link."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire(self)

    def adoptStreamConnection(self, fd: int, family: int, factory: Any) -> None:
        link = factory.buildProtocol(None)
        end = self.wire._ends.pop(self.wire.far)
        self.wire.far = link
        self.wire._ends[link] = end
        link.makeConnection(end)


class TakeOverTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Reactor()
        self.done: list[str] = []
        self.ready: Deferred[None] = Deferred()
        self.gathered: Deferred[None] = Deferred()
        self.patch(os, "_exit", lambda status: self.done.append(f"exit {status}"))
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        found = Inheritance(ours.detach(), os.open(os.devnull, os.O_RDONLY), os.dup(2), {})
        self.addCleanup(os.close, found.lock)
        self.patch(os, "dup2", lambda one, other: None)
        proxies = SimpleNamespace(
            open=self.does("open"),
            expect=lambda count: self.done.append(f"expect {count}"),
            gathered=lambda within: self.gathered,
            socket="\0there",
            early=SimpleNamespace(expect=lambda is_one: None, ready=self.wait_for_workers),
        )
        workers = SimpleNamespace(begin=self.does("workers"), came_up=lambda pid: True, workers=[1, 2])
        admin = SimpleNamespace(succeeds=False, take_over=self.does("admin"))
        self.wire = self.reactor.wire
        self.wire.near.serves = {TAKE_OVER: lambda message: self.says("old rests", {"proxies": 3}), UP: self.is_up}
        parts: dict[str, Any] = {"listeners": SimpleNamespace(inherited={}), "admin": admin, "proxies": proxies}
        self.successor = Successor(found, workers=workers, reactor=self.reactor, **parts)  # type: ignore[arg-type]
        self.up: Deferred[dict[str, object]] = Deferred()

    def does(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)

    def says(self, what: str, answer: dict[str, object]) -> dict[str, object]:
        self.done.append(what)
        return answer

    def wait_for_workers(self, count: int, within: float) -> Deferred[None]:
        self.assertEqual((count, within), (2, READY_WITHIN))
        return self.ready

    def is_up(self, message: dict[str, object]) -> Deferred[dict[str, object]]:
        self.done.append("up")
        return self.up

    def test_the_old_one_serves_until_the_new_workers_are_ready_and_is_in_charge_until_it_has_said_so(self) -> None:
        self.successor.take_over(self.does("take up"), self.does("begin"), self.does("open up"))
        self.wire.run()
        self.assertEqual(self.done, ["open", "workers"])
        self.ready.callback(None)
        self.wire.run()
        self.assertEqual(self.done[2:], ["old rests", "take up", "admin", "expect 3", "up"])
        self.up.callback({})
        self.wire.run()
        self.assertEqual(self.done[7:], ["begin"])
        self.gathered.callback(None)
        self.assertEqual(self.done[8:], ["open up"])

    def test_what_fails_when_it_is_in_charge_does_not_end_it(self) -> None:
        self.ready, self.gathered = succeed(None), succeed(None)

        def cannot() -> None:
            raise OSError(24, "Too many open files")

        self.successor.take_over(self.does("take up"), self.does("begin"), cannot)
        self.wire.run()
        self.up.callback({})
        self.wire.run()
        self.assertEqual(self.done[7:], ["begin"])
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_what_it_cannot_have_ends_it_while_the_old_one_can_go_on(self) -> None:
        self.ready = succeed(None)

        def cannot() -> None:
            raise SystemExit(1)

        self.successor._admin.take_over = cannot  # type: ignore[method-assign]
        self.successor.take_over(self.does("take up"), self.does("begin"), self.does("open up"))
        self.wire.run()
        self.assertEqual(self.done[2:], ["old rests", "take up", "exit 1"])

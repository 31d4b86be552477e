"""The new daemon's side of `sticky restart`: takes the lock and the sockets, has the old one rest, and takes over.

Knows no part of a daemon but those that it gives something to.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky._version import __version__
from sticky.admin.service import AdminService
from sticky.listeners import Listeners
from sticky.succession import TAKE_OVER, UP, Inheritance, sockets_of
from sticky.workers import messages
from sticky.workers.frames import Link
from sticky.workers.pool import Workers
from sticky.workers.proxies import Proxies

#: Seconds that our workers have to import what they need while the old one serves, or what is left of them waits for the rest.
READY_WITHIN = 15.0
GATHERS_WITHIN = 1.0  #: seconds that the old one's proxies have to come over, before new clients are let in


class Successor:
    """See `daemon.Predecessor`."""

    log = Logger()
    patience = messages.TRY_FOR

    def __init__(
        self,
        found: Inheritance,
        listeners: Listeners,
        admin: AdminService,
        proxies: Proxies,
        workers: Workers | None,
        reactor: Any,
    ) -> None:
        """`workers`: None where this process serves by itself."""
        self._found = found
        self._workers = workers
        self._admin = admin
        self._proxies = proxies
        self._reactor = reactor
        self._up = False
        self._said = os.dup(2)  # what the old one reads: a twistd that goes into the background closes descriptor 2
        listeners.inherited = sockets_of(found)
        admin.succeeds = True

    def give(self, journal: Any) -> None:
        """See `daemon.Predecessor`."""
        os.dup2(self._said, 2)
        os.close(self._said)
        journal.inherit(self._found.lock)

    def take_over(self, take_up: Callable[[], None], begin: Callable[[], None], open_up: Callable[[], None]) -> None:
        """See `daemon.Predecessor`."""
        doing = Deferred.fromCoroutine(self._take_over(take_up, begin, open_up))
        doing.addErrback(self._failed)

    def give_up(self) -> None:
        """See `daemon.Predecessor`."""
        if not self._up:
            os._exit(1)

    async def _take_over(
        self, take_up: Callable[[], None], begin: Callable[[], None], open_up: Callable[[], None]
    ) -> None:
        link = Link(self._reactor)
        link.lost = self._lost
        factory = Factory.forProtocol(lambda: link)
        with socket.socket(fileno=self._found.link) as given:
            given.setblocking(False)
            self._reactor.adoptStreamConnection(given.fileno(), socket.AF_UNIX, factory)
        self._proxies.open()
        if self._workers is not None:
            self._proxies.early.expect(self._workers.came_up)
            self._workers.begin()
            await self._proxies.early.ready(len(self._workers.workers), READY_WITHIN)
        answer = await link.ask(TAKE_OVER, pid=os.getpid())
        take_up()
        # What its configuration cannot have ends this daemon now, not when there is no other one any more.
        self._admin.take_over()
        self._proxies.expect(answer["proxies"])
        # Not in charge before the old one has said so: it may have lost patience, or been told to end, meanwhile.
        await link.ask(UP, socket=self._proxies.socket, pid=os.getpid(), version=__version__)
        self._up = True
        link.leave()
        begin()
        await self._proxies.gathered(GATHERS_WITHIN)
        open_up()
        os.dup2(self._found.stderr, 2)
        os.close(self._found.stderr)
        self.log.info("this daemon has taken over from an earlier one")

    def _lost(self) -> None:
        if not self._up:
            os._exit(1)  # the old one has given up on us, or is gone: another one will be started

    def _failed(self, failure: Failure) -> None:
        if self._up:
            self.log.failure("this daemon has taken over, and not all of it has come up", failure)
            return
        if not isinstance(failure.value, SystemExit):  # then it was said already
            (sys.__stderr__ or sys.stderr).write(f"sticky: {failure.getErrorMessage()}\n")
            self.log.failure("this daemon cannot take over", failure)
        os._exit(1)

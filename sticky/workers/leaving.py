"""A proxy that takes no more clients: it serves those it has to their end, for a time, and then is done.

Must not know why it leaves, or what its clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from sticky.edge.client import Client
from sticky.edge.context import EdgeContext
from sticky.edge.serving import ClientState
from sticky.edge.websocket import WebSocketRelays

LOOK = 0.5  #: seconds between two looks whether everybody has gone
IDLE_FOR = 2.0  #: seconds without a request after which a connection is closed: its client opens another one
CUT_AFTER = 15.0  #: seconds that WebSockets have to close when the time is up
RESTARTED = 1012  #: close code: Service Restart; the session lives, and the client may come back with the same token


class Leave(Enum):
    """How far it is."""

    SERVING = "serving"  # those who are there
    CLOSING = "closing"  # the time is up
    DONE = "done"


class Leaving:
    """See the module. `done` is called once."""

    log = Logger()

    def __init__(
        self, reactor: Any, context: EdgeContext, relays: WebSocketRelays, within: float, done: Callable[[], None]
    ) -> None:
        self.state = Leave.SERVING
        self._reactor = reactor
        self._context = context
        self._relays = relays
        self._done = done
        self._closes_at = reactor.seconds() + within
        self._call: IDelayedCall | None = reactor.callLater(LOOK, self._look)

    def stop(self) -> None:
        """Look no more."""
        self.state = Leave.DONE
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        now = self._reactor.seconds()
        for entry in self._context.sweep.entries():
            if isinstance(entry, Client) and entry.state is ClientState.IDLE:
                idle_since = entry.idle_since
                if self.state is Leave.CLOSING or (idle_since is not None and now - idle_since >= IDLE_FOR):
                    entry.cut()
        if not self._context.doors.inside and not self._relays.open:
            self._finish()
            return
        if now >= self._closes_at:
            if self.state is Leave.CLOSING:
                self.log.warn("{count} clients are cut", count=self._context.doors.inside)
                self._finish()
                return
            self.state = Leave.CLOSING
            self._closes_at = now + CUT_AFTER
            self._relays.close_all(RESTARTED, "daemon_restarted")
        self._call = self._reactor.callLater(LOOK, self._look)

    def _finish(self) -> None:
        self.state = Leave.DONE
        self._done()

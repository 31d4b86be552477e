"""A container that echoes over WebSockets and notes in `ends-ID` how each of them ended. Asked to go, it takes a moment.

Run as `python noting_ws.py PORT`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet import reactor as _reactor

reactor: Any = _reactor
CONTAINER = os.environ["STICKY_CONTAINER_ID"]


class Echo(WebSocketServerProtocol):  # type: ignore[misc]
    """Says its container's id first."""

    greeted = False  #: else it was a look whether the port is open

    def onOpen(self) -> None:
        """Greet."""
        self.greeted = True
        self.sendMessage(CONTAINER.encode())

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Echo."""
        if payload == b"break the protocol":
            self.transport.write(b"\xff\xff")
        self.sendMessage(payload, isBinary)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Note."""
        if self.greeted:
            with open(f"ends-{CONTAINER}", "a") as file:
                file.write(f"{code} {reason}\n")


factory = WebSocketServerFactory()
factory.protocol = Echo
reactor.listenTCP(int(sys.argv[1]), factory, interface="127.0.0.1")
reactor.callWhenRunning(
    signal.signal, signal.SIGTERM, lambda *_: reactor.callFromThread(reactor.callLater, 0.3, reactor.stop)
)
reactor.run()

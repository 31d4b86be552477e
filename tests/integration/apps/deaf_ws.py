"""As echo_ws, but SIGUSR1 makes it stop listening while it goes on with whoever is connected."""

from __future__ import annotations

import os
import signal
import sys

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet import reactor
from twisted.web.resource import Resource
from twisted.web.server import Site


class Echo(WebSocketServerProtocol):  # type: ignore[misc]
    """Says back what it hears, and its process first."""

    def onOpen(self) -> None:
        self.sendMessage(str(os.getpid()).encode())

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.sendMessage(payload, isBinary)


factory = WebSocketServerFactory()
factory.protocol = Echo
root = Resource()
root.putChild(b"ws", WebSocketResource(factory))
port = reactor.listenTCP(int(sys.argv[1]), Site(root), interface="127.0.0.1")  # type: ignore[arg-type]
signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(port.stopListening))  # type: ignore[attr-defined]
reactor.run()

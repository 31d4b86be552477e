"""A container for tests: echoes WebSocket messages on the port it is given, and answers 200 to plain requests."""

from __future__ import annotations

import os
import sys

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet import reactor
from twisted.web.resource import Resource
from twisted.web.server import Site


class Echo(WebSocketServerProtocol):  # type: ignore[misc]
    """Says back what it hears, and its container's id first."""

    def onOpen(self) -> None:
        self.sendMessage(os.environ["STICKY_CONTAINER_ID"].encode())

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.sendMessage(payload, isBinary)


class Hello(Resource):
    """The page around the WebSocket."""

    isLeaf = False

    def getChild(self, path: bytes, request: object) -> Resource:
        return self

    def render_GET(self, request: object) -> bytes:
        return os.environ["STICKY_CONTAINER_ID"].encode()


factory = WebSocketServerFactory()
factory.protocol = Echo
root = Hello()
root.putChild(b"ws", WebSocketResource(factory))
reactor.listenTCP(int(sys.argv[1]), Site(root), interface="127.0.0.1")  # type: ignore[arg-type]
reactor.run()

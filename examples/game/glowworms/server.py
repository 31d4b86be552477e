"""What runs in the container: the page over HTTP and the game's WebSocket on one port, and the 30 Hz loop.

Must not know the rules. `python -m glowworms.server` listens on PORT; the proxy in front has already checked who comes in
and names the session, which is the room, in a header.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import LoopingCall
from twisted.logger import FileLogObserver, Logger, formatEventAsClassicLogText, globalLogBeginner
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.server import Site
from twisted.web.static import File
from zope.interface import implementer

from .arena import RATE, Steering
from .rooms import Room, Rooms, Seat

SESSION_HEADER = "x-modal-server-session-id"  #: set by the proxy, which strips a client's own
PAGE = Path(__file__).parent / "page"
LONGEST_MESSAGE = 512  #: bytes; the longest message of a page, its hello, has under 200
MOST_STEPS = 6  #: made up for after a stall; a longer one is simply time that did not pass
BAD_MESSAGE = 4003  #: close code: not a message of this game

log = Logger()


class BadMessage(Exception):
    """A page sent something that is not a message of this game."""


@implementer(IPushProducer)
class Player(WebSocketServerProtocol):  # type: ignore[misc]  # Autobahn has no types
    """One page. Also the producer of its own transport, which is how it learns that the network cannot keep up."""

    rooms: Rooms  # set by the factory
    room: Room
    seat: Seat | None = None
    congested = False

    def onConnect(self, request: Any) -> None:
        self.room = self.rooms.room(request.headers.get(SESSION_HEADER, "local"))

    def onOpen(self) -> None:
        # twisted.web's channel had this transport before and is still its producer.
        self.transport.unregisterProducer()
        self.transport.registerProducer(self, True)
        self.transport.setTcpNoDelay(True)

    def pauseProducing(self) -> None:
        self.congested = True

    def resumeProducing(self) -> None:
        self.congested = False

    def stopProducing(self) -> None:
        self.congested = True

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        try:
            self._hear(parsed(payload))
        except BadMessage as problem:
            self.close(BAD_MESSAGE, str(problem))

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        if self.seat is not None:
            self.room.leave(self.seat, self)
            self.seat = None

    def send(self, text: str) -> None:
        # After the page's close frame, until TCP is gone, Autobahn raises on every message.
        if self.state == self.STATE_OPEN:
            self.sendMessage(text.encode())

    def close(self, code: int, reason: str) -> None:
        # A close waits for what is unsent: with a producer registered it would wait for ever.
        self.transport.unregisterProducer()
        self.sendClose(code, reason)

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"t": "ping", "at": float() | int() as at}:
                self.send(json.dumps({"t": "pong", "at": at, "rooms": len(self.rooms)}))
            case {"t": "hello", "player": str(key), "name": str(name)} if self.seat is None and 16 <= len(key) <= 64:
                self.seat = self.room.join(self, key, tidy(name))
            case {"t": "steer"} if self.seat is not None:
                self.room.steer(self.seat, steering(message))
            case {"t": "name", "name": str(name)} if self.seat is not None:
                self.room.rename(self.seat, tidy(name))
            case {"t": "steer" | "name"}:
                pass  # sent before the page heard that the room is full
            case _:
                raise BadMessage("not a message of this game")


def parsed(payload: bytes) -> dict[str, Any]:
    """A message from a page. Raises `BadMessage`."""
    if len(payload) > LONGEST_MESSAGE:
        raise BadMessage("too long")
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError):
        raise BadMessage("not JSON")
    if not isinstance(message, dict):
        raise BadMessage("not an object")
    return message


def steering(message: dict[str, Any]) -> Steering:
    """Raises `BadMessage`."""
    turn, aim, boost = message.get("turn", 0), message.get("aim"), message.get("boost", False)
    if turn not in (-1, 0, 1) or not isinstance(boost, bool):
        raise BadMessage("bad steering")
    if aim is not None and not (isinstance(aim, int | float) and math.isfinite(aim)):
        raise BadMessage("bad aim")
    return Steering(turn=int(turn), aim=aim, boost=boost)


def tidy(name: str) -> str:
    """A name that fits the score board."""
    return " ".join("".join(c for c in name if c.isprintable()).split())[:16] or "Worm"


class Page(File):
    """The page's files. They are small and change with the deployment, so browsers ask again each time."""

    def render_GET(self, request: Request) -> Any:
        request.setHeader(b"cache-control", b"no-cache")
        return super().render_GET(request)


class QuietSite(Site):
    """No line per request: the proxy in front keeps the access log."""

    def log(self, request: Request) -> None:
        pass


def site(rooms: Rooms) -> Site:
    """The page at `/` and the game at `/ws`."""
    factory = WebSocketServerFactory(server=None)
    factory.protocol = type("PlayerHere", (Player,), {"rooms": rooms})
    factory.setProtocolOptions(
        maxMessagePayloadSize=1 << 18,  # counts for what we send, too: a whole picture has up to 30 kB
        allowNullOrigin=True,  # origins are the proxy's business
        openHandshakeTimeout=10,
        autoPingInterval=20,
        autoPingTimeout=20,
    )
    root = Page(str(PAGE))
    root.putChild(b"ws", WebSocketResource(factory))
    return QuietSite(root)


def run(reactor: Any, rooms: Rooms, host: str, port: int) -> None:
    """Listen and keep the rooms going until the reactor stops."""

    def advance(times: int) -> None:
        for _ in range(min(times, MOST_STEPS)):
            rooms.advance()

    def failed(failure: Failure) -> None:
        # Without its loop this container is of no use; the proxy sees it go and ends its sessions.
        log.failure("The game loop failed", failure)
        reactor.stop()

    loop = LoopingCall.withCount(advance)
    loop.clock = reactor
    loop.start(1 / RATE).addErrback(failed)
    listening = reactor.listenTCP(port, site(rooms), interface=host)
    log.info("Listening on {address}", address=listening.getHost())


def main() -> None:
    """PORT and STICKY_CONTAINER_ID come from Sticky. COMPANY=0 leaves the robots out."""
    from twisted.internet import reactor

    globalLogBeginner.beginLoggingTo(
        [FileLogObserver(sys.stdout, formatEventAsClassicLogText)], redirectStandardIO=False
    )
    container = os.environ.get("STICKY_CONTAINER_ID", "no container")
    company = int(os.environ.get("COMPANY", "3"))
    run(
        reactor,
        Rooms(container, Random(), company),
        os.environ.get("STICKY_HOST", "127.0.0.1"),
        int(os.environ.get("PORT", "8000")),
    )
    reactor.run()


if __name__ == "__main__":
    main()

"""The page where players start a room or join one by its link. Must not know the game; asks Sticky for sessions.

A sessioned Server refuses whoever has no token, so this page cannot come from its containers. It starts sessions on the
players' behalf, as a match-making service would: a Server that wants a proxy token gets it from STICKY_PROXY_TOKEN here,
and players never see it. Session tokens pass through in the answers and are neither kept nor logged.

    python launcher.py --game http://127.0.0.1:8080 --listen tcp:8000:interface=127.0.0.1
    python launcher.py --state-dir ./state      # finds the game's address where the daemon leaves it
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError, TimeoutError
from twisted.internet.task import deferLater, react
from twisted.web.client import Agent, HTTPConnectionPool, PartialDownloadError, ResponseFailed, readBody
from twisted.web.http import Request
from twisted.web.http_headers import Headers
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from twisted.web.static import Data

START_PATH = "/_modal/sessions/start"
TOKEN_QUERY = "modal_session_token"
PATIENCE = 310.0  #: seconds; a start may queue for up to 300
APPEARS_WITHIN = 60.0  #: seconds that a daemon which is being started may take to leave its address
#: What it looks like when nobody answers, or breaks off.
SILENCE = (ConnectError, ConnectionClosed, DNSLookupError, PartialDownloadError, ResponseFailed, TimeoutError)


class StartFailed(Exception):
    """The game's Server gave no session. The text is for the player."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Game:
    """The Server whose sessions are the rooms."""

    def __init__(self, reactor: Any, url: str, proxy_token: str | None) -> None:
        self.url = url.rstrip("/")
        self._agent = Agent(reactor, connectTimeout=10, pool=HTTPConnectionPool(reactor))
        self._headers = Headers()
        self._clock = reactor
        if proxy_token:
            self._headers.addRawHeader("authorization", f"Bearer {proxy_token}")

    async def start(self) -> str:
        """Start a session. Returns the link to its room, which also is the invite link. Raises `StartFailed`."""
        try:
            asked = self._agent.request(b"POST", (self.url + START_PATH).encode(), self._headers)
            response = await asked.addTimeout(PATIENCE, self._clock)
            body = json.loads(await readBody(response))
        except SILENCE:
            raise StartFailed(503, "The game's server does not answer.")
        except ValueError:
            raise StartFailed(502, "The game's server gave a strange answer.")
        if response.code != 200:
            raise StartFailed(response.code, str(body.get("message", f"The game's server answered {response.code}.")))
        # The fragment tells the game's page its own invite link: the query is replaced by a cookie on the way.
        return f"{self.url}/?{TOKEN_QUERY}={body['token']}#invite={body['token']}"


class Start(Resource):
    """POST /start -> {"link": …}"""

    isLeaf = True

    def __init__(self, game: Game) -> None:
        super().__init__()
        self._game = game

    def render_POST(self, request: Request) -> int | bytes:
        origin = request.getHeader("origin")
        if origin is not None and urlsplit(origin).netloc != request.getHeader("host"):
            return answer(request, 403, {"message": "Rooms are started from this page only."})
        starting = Deferred.fromCoroutine(self._answer(request))
        # A player who leaves gives the place in the queue back.
        request.notifyFinish().addErrback(lambda _: starting.cancel())
        starting.addErrback(lambda failure: failure.trap(CancelledError))
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        try:
            link = await self._game.start()
        except StartFailed as problem:
            request.write(answer(request, problem.status, {"message": str(problem)}))
        else:
            request.write(answer(request, 200, {"link": link}))
        request.finish()


def answer(request: Request, status: int, body: dict[str, str]) -> bytes:
    """Set the head of a JSON answer and return its body."""
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(body).encode()


class QuietSite(Site):
    """No line per request."""

    def log(self, request: Request) -> None:
        pass


def site(game: Game) -> Site:
    """The launcher's pages."""
    root = Resource()
    page = Data(Path(__file__).with_name("launcher.html").read_bytes(), "text/html; charset=utf-8")
    root.putChild(b"", page)
    root.putChild(b"start", Start(game))
    root.putChild(b"game", Data(json.dumps({"game": game.url}).encode(), "application/json"))
    return QuietSite(root)


async def found(reactor: Any, left_at: Path) -> str:
    """The address that the daemon leaves in its state folder once it listens."""
    for _ in range(int(APPEARS_WITHIN * 10)):
        lines = left_at.read_text().splitlines() if left_at.exists() else []
        if lines:
            return lines[0].strip()
        await deferLater(reactor, 0.1)
    sys.exit(f"{left_at}: no daemon has left its address here within {APPEARS_WITHIN:.0f} s")


async def serve(reactor: Any, arguments: argparse.Namespace) -> None:
    """Listen until the reactor stops."""
    url = arguments.game or await found(reactor, arguments.state_dir / "url")
    game = Game(reactor, url, os.environ.get("STICKY_PROXY_TOKEN"))
    port = await serverFromString(reactor, arguments.listen).listen(site(game))
    address = port.getHost()
    print(f"Play at http://{address.host}:{address.port}/", flush=True)
    await Deferred()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="The game's launcher page.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--game", help="the game Server's URL")
    where.add_argument("--state-dir", type=Path, help="the daemon's state folder, in which it leaves its URL")
    parser.add_argument("--listen", default="tcp:8000:interface=127.0.0.1", help="a Twisted endpoint string")
    arguments = parser.parse_args(argv)
    react(lambda reactor: Deferred.fromCoroutine(serve(reactor, arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])

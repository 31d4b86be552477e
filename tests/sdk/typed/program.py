"""A user's program, checked under mypy --strict by a test next door. Each reveal is compared with what the SDK promises."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

from twisted.internet.defer import Deferred

import sticky
from sticky.exception import Error, SessionEndedError
from sticky.sdk.twisted import TwistedServer

app = sticky.App("typed")


@app.server(port=8000, min_containers=0, max_containers=4, scaledown_window=60, secrets={"KEY": "file:key"})
@sticky.sessioned(max_concurrency=64, target_concurrency=3)
class Game:
    @sticky.enter()
    def start(self) -> None:
        self.child = subprocess.Popen(["./game"])

    @sticky.enter()
    async def warm_up(self) -> None:
        await asyncio.sleep(0)

    @sticky.exit()
    def stop(self) -> None:
        self.child.terminate()


@app.local_entrypoint()
def main(rounds: int = 1) -> None:
    session: sticky.ServerSessionCredentials = Game.sessions.start(idle_timeout=600, name="room")
    status: sticky.SessionStatus = Game.sessions.status(session.token)
    left: float | None = Game.sessions.extend(session.token).idle_left
    every: list[sticky.SessionStatus] = Game.sessions.list()
    settings: sticky.AutoscalerSettings = Game.autoscaler.update(min_containers=1, scaledown_window=2.5)
    url: str = Game.get_url()
    try:
        Game.sessions.terminate(session.token)
    except SessionEndedError as ended:
        print(ended.reason.upper(), status.state, left, len(every), settings.max_containers, url)
    except Error as error:
        print(error)


async def on_asyncio() -> sticky.SessionStatus:
    server = sticky.Server.from_name("typed", "Game")
    session = await server.sessions.start.aio(name="room")
    await server.sessions.terminate.aio(session.token)
    return (await server.sessions.list.aio())[0]


def on_twisted(reactor: Any) -> Deferred[sticky.ServerSessionCredentials]:
    return TwistedServer.from_name("typed", "Game", reactor).sessions.start(idle_timeout=5)


def with_twisted(reactor: Any) -> Deferred[str]:
    return TwistedServer(Game, reactor).get_url()


class Plain:
    """No Server: it has none of a Server's attributes."""

    def server(self) -> None: ...


def wrong() -> None:
    print(Plain.sessions)  # type: ignore[attr-defined]
    Game.sessions.start("600")  # type: ignore[arg-type]
    Game.sessions.start(timeout=600)  # type: ignore[call-arg]
    Game.sessions.terminate()  # type: ignore[call-arg]
    Game.sessions.status(b"token")  # type: ignore[arg-type]
    Game.autoscaler.update(max_concurrency=5)  # type: ignore[call-arg]
    number: int = Game.get_url()  # type: ignore[assignment]
    print(number)
    app.server(max_containers="4")  # type: ignore[arg-type]
    sticky.sessioned(max_concurency=64)  # type: ignore[call-arg]

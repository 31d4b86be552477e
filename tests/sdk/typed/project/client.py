"""Uses the Servers of other files, blocking and on asyncio, and functions in sessions."""

import sticky

from .game import Chat, Game
from .rooms import Hall, Plain, Rooms


def play(name: str) -> str:
    session: sticky.ServerSessionCredentials = Game.sessions.start(idle_timeout=600, name=name)
    states: list[str] = [status.state for status in Rooms.sessions.list()]
    most: int = Chat.autoscaler.settings().max_containers
    address: str = Hall.get_url()
    return f"{session.token} {states} {most} {address}"


async def watch(token: str) -> float | None:
    return (await Rooms.sessions.status.aio(token)).idle_left


@sticky.remote(memory="512Mi", packages=["pandas"])
def load(n: int) -> list[int]:
    return list(range(n))


@sticky.remote
def total(values: list[int], *, start: int = 0) -> int:
    return sum(values, start)


def count() -> int:
    with sticky.Session("counting") as session:
        values: list[int] = load.bind(session)(10)
        return total.bind(session)(values, start=1) + total.local([1])


async def count_again() -> int:
    return await total.aio([1, 2], start=3)


def wrong() -> None:
    print(Plain.sessions)  # type: ignore[attr-defined]
    Game.sessions.start(idle_timout=600)  # type: ignore[call-arg]
    Rooms.sessions.terminate(600)  # type: ignore[arg-type]
    Chat.autoscaler.update(max_container=5)  # type: ignore[call-arg]
    load(10, 20)  # type: ignore[call-arg]
    load("10")  # type: ignore[arg-type]
    text: str = total([1])  # type: ignore[assignment]
    total.bind("counting")  # type: ignore[arg-type]
    sticky.Session(sever="calls")  # type: ignore[call-arg]
    print(text)

"""Rooms: who plays which worm, who is away, and what every page hears at each step. Must not know sockets or HTTP.

A room lives in this process's memory and nowhere else. Its key is the session id that the proxy puts on every request, so
one container holds as many rooms as it has sessions. A player is known by a key that only the player's page holds; to the
others a player is a small number.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Protocol

import attrs

from . import robots
from .arena import HEIGHT, RATE, WIDTH, Arena, Ate, Crashed, Dropped, Event, Life, Spawned, Steering, Worm

COMPANY = 3  #: robots fill a room up to so many worms
SEATS = 12  #: players at once
REMEMBERED = 50  #: players who are away whose score is kept
FORGET_AFTER = (
    43_200 * RATE
)  #: steps without a player, as long as the longest idle timeout that Sticky grants by default
COLOURS = 12

REPLACED = 4001  #: close codes of our own: the same player came back on another connection
ROOM_FULL = 4002

Message = dict[str, Any]


class Connection(Protocol):
    """One page's WebSocket."""

    congested: bool  #: its network cannot keep up: it gets no steps, and a whole picture afterwards

    def send(self, text: str) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


@attrs.define(eq=False)
class Seat:
    """A player's place in a room, kept while the player is away."""

    number: int
    key: str | None = attrs.field(repr=False)  #: None: a robot
    name: str
    colour: int
    connection: Connection | None = None
    behind: bool = False  #: has missed steps and needs a whole picture

    @property
    def robot(self) -> bool:
        return self.key is None


class Room:
    """One session's game."""

    def __init__(self, name: str, container: str, random: Random, company: int = COMPANY) -> None:
        self.name = name
        self.empty_for = 0  #: steps without a player
        self._container = container
        self._company = company
        self._arena = Arena(random)
        self._seats: dict[int, Seat] = {}
        self._by_key: dict[str, Seat] = {}
        self._next_number = 1
        self._roster: list[Message] = []

    def players(self) -> list[Seat]:
        """Those who are here, without robots."""
        return [seat for seat in self._seats.values() if seat.connection is not None]

    def join(self, connection: Connection, key: str, name: str) -> Seat | None:
        """Seat a player: a new one, or one who returns to the score. None: the room is full, the connection closed."""
        seat = self._by_key.get(key)
        if seat is not None and seat.connection is not None:
            # The newest connection wins: the old one may be dead without our knowing it yet.
            replaced, seat.connection = seat.connection, None
            replaced.close(REPLACED, "this player came back on another connection")
            self._arena.leave(seat.number)
        elif len(self.players()) >= SEATS:
            connection.close(ROOM_FULL, "the room is full")
            return None
        if seat is None:
            seat = self._by_key[key] = self._new_seat(key, name)
        seat.name = name
        seat.connection = connection
        self._arena.enter(seat.number)
        self._keep_company()
        self._forget_some()
        seat.behind = False
        connection.send(_text(self._picture(seat)))
        self._announce(self._news())
        return seat

    def leave(self, seat: Seat, connection: Connection) -> None:
        """The player's connection is gone. One that has been replaced already does nothing."""
        if seat.connection is not connection:
            return
        seat.connection = None
        self._arena.leave(seat.number)
        self._keep_company()
        self._announce(self._news())

    def steer(self, seat: Seat, steering: Steering) -> None:
        self._arena.steer(seat.number, steering)

    def rename(self, seat: Seat, name: str) -> None:
        seat.name = name

    def advance(self) -> None:
        """One step, told to every page. Nothing moves while nobody is here."""
        if not self.players():
            self.empty_for += 1
            return
        self.empty_for = 0
        for seat in self._seats.values():
            if seat.robot:
                worm = self._arena.worms[seat.number]
                if worm.life is Life.ALIVE:
                    self._arena.steer(seat.number, robots.steer(self._arena, worm))
        events = [_event(event) for event in self._arena.advance()]
        self._announce(
            {
                "t": "step",
                "k": self._arena.step,
                "w": [_worm(worm, self._arena.step) for worm in self._arena.present() if worm.life is Life.ALIVE],
                **({"e": events} if events else {}),
                **self._news(),
            }
        )

    def _announce(self, message: Message) -> None:
        if not message:
            return
        text = _text({"t": "news", **message})
        for seat in self.players():
            assert seat.connection is not None
            if seat.connection.congested:
                seat.behind = True
            elif seat.behind:
                seat.behind = False
                seat.connection.send(_text(self._picture(seat)))
            else:
                seat.connection.send(text)

    def _news(self) -> Message:
        """The roster, if it is another than the last one told."""
        roster = self._current_roster()
        if roster == self._roster:
            return {}
        self._roster = roster
        return {"p": roster}

    def _current_roster(self) -> list[Message]:
        return [
            {
                "n": seat.number,
                "name": seat.name,
                "colour": seat.colour,
                "score": self._arena.worms[seat.number].score,
                "here": self._arena.worms[seat.number].life is not Life.ABSENT,
                "robot": seat.robot,
            }
            for seat in self._seats.values()
        ]

    def _picture(self, seat: Seat) -> Message:
        """Everything a page needs that has seen nothing yet."""
        arena = self._arena
        return {
            "t": "welcome",
            "you": seat.number,
            "room": self.name,
            "container": self._container,
            "rate": RATE,
            "width": WIDTH,
            "height": HEIGHT,
            "k": arena.step,
            "p": self._current_roster(),
            "w": [_worm(worm, arena.step) for worm in arena.present() if worm.life is Life.ALIVE],
            "trails": {
                worm.number: [[round(x), round(y)] for x, y in worm.trail]
                for worm in arena.present()
                if worm.life is Life.ALIVE
            },
            "dots": [[dot, round(x), round(y)] for dot, (x, y) in arena.dots.items()],
        }

    def _new_seat(self, key: str | None, name: str) -> Seat:
        used = [seat.colour for seat in self._seats.values()]
        colour = min(range(COLOURS), key=used.count)
        seat = self._seats[self._next_number] = Seat(self._next_number, key, name, colour)
        self._next_number += 1
        return seat

    def _keep_company(self) -> None:
        """Robots come while few are here and go when players come."""
        machines = [seat for seat in self._seats.values() if seat.robot]
        wanted = max(0, self._company - len(self.players())) if self.players() else 0
        for seat in machines[wanted:]:
            self._remove(seat)
        for _ in range(wanted - len(machines)):
            taken = [seat.name for seat in self._seats.values()]
            name = next((name for name in robots.NAMES if name not in taken), "Robo")
            self._arena.enter(self._new_seat(None, name).number)

    def _forget_some(self) -> None:
        away = [seat for seat in self._seats.values() if not seat.robot and seat.connection is None]
        for seat in away[: max(0, len(away) - REMEMBERED)]:
            self._remove(seat)

    def _remove(self, seat: Seat) -> None:
        del self._seats[seat.number]
        if seat.key is not None:
            del self._by_key[seat.key]
        self._arena.forget(seat.number)


class Rooms:
    """All rooms of this container."""

    def __init__(self, container: str, random: Random, company: int = COMPANY) -> None:
        self._container = container
        self._random = random
        self._company = company
        self._rooms: dict[str, Room] = {}

    def room(self, session: str) -> Room:
        """The session's room; the first request of a session opens it."""
        room = self._rooms.get(session)
        if room is None:
            room = self._rooms[session] = Room(session, self._container, Random(self._random.random()), self._company)
        return room

    def __len__(self) -> int:
        return len(self._rooms)

    def advance(self) -> None:
        """One step for every room. Rooms whose session must have ended long ago are forgotten."""
        for name, room in list(self._rooms.items()):
            room.advance()
            if room.empty_for > FORGET_AFTER:
                del self._rooms[name]


def _worm(worm: Worm, step: int) -> list[float]:
    # Bits: 1 safe, 2 boosting.
    flags = (1 if worm.safe(step) else 0) + (2 if worm.boosting else 0)
    return [worm.number, round(worm.x, 1), round(worm.y, 1), round(worm.heading, 3), worm.length, flags]


def _event(event: Event) -> list[Any]:
    match event:
        case Ate(worm, dot):
            return ["ate", worm, dot]
        case Crashed(worm, into, x, y):
            return ["crashed", worm, into, round(x), round(y)]
        case Spawned(worm):
            return ["spawned", worm]
        case Dropped(dot, x, y):
            return ["dropped", dot, round(x), round(y)]


def _text(message: Message) -> str:
    return json.dumps(message, separators=(",", ":"))

"""The rules of the game, pure: worms, their trails, dots and crashes. Must not know rooms, players' secrets or sockets.

One step is 1/30 s. Lengths are arena units (the page scales them to its window), angles radians, times steps.
Randomness comes in as a `random.Random`, so the same seed and the same steering give the same game.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from random import Random

import attrs

RATE = 30  #: steps a second
WIDTH, HEIGHT = 1600.0, 900.0
SPEED, BOOSTED = 180.0 / RATE, 330.0 / RATE  #: units a step
TURN = 3.6 / RATE  #: radians a step
MARGIN = 10.0  #: the wall turns a head back this far from the edge
SPACING = 12.0  #: between two points of a trail; below TOUCH, so that nobody slips through
TOUCH = 13.0  #: a head this near to somebody's trail has crashed
REACH = 24.0  #: a dot this near is eaten
SHORTEST, LONGEST = 16, 150  #: points of a trail
DOTS, MOST_DOTS = 45, 170
CRASH_BONUS = 5  #: for the worm whose trail was hit
BOOST_COST = 10  #: steps of boosting that burn one point of the trail
CRASHED_FOR = 45  #: steps until a crashed worm is back
SAFE_FOR = 60  #: steps during which a fresh worm neither crashes nor is crashed into

Point = tuple[float, float]


class IllegalMove(Exception):
    """Asked for something that cannot happen to a worm in this state. Nothing has changed."""


class Life(Enum):
    """Where a worm is in its life."""

    ALIVE = "alive"  # moves, eats, can crash
    CRASHED = "crashed"  # waits for its next life
    ABSENT = "absent"  # its player is away; the score stays


#: (state, what happens) -> next state; anything else is an `IllegalMove`.
TRANSITIONS: dict[tuple[Life, str], Life] = {
    (Life.ALIVE, "crash"): Life.CRASHED,
    (Life.ALIVE, "leave"): Life.ABSENT,
    (Life.CRASHED, "spawn"): Life.ALIVE,
    (Life.CRASHED, "leave"): Life.ABSENT,
    (Life.ABSENT, "spawn"): Life.ALIVE,
    (Life.ABSENT, "leave"): Life.ABSENT,  # a connection that drops twice
}


@attrs.frozen
class Steering:
    """What a player wants: -1 left, 1 right, or an angle to turn towards, which wins; and whether to hurry."""

    turn: int = 0
    aim: float | None = None
    boost: bool = False


@attrs.define(eq=False)
class Worm:
    """One player's worm. `trail` holds past points, oldest first; the head is ahead of the last one."""

    number: int
    x: float = 0.0
    y: float = 0.0
    heading: float = 0.0
    score: int = 0
    life: Life = Life.ABSENT
    steering: Steering = Steering()
    length: int = SHORTEST  #: points the trail may have
    trail: deque[Point] = attrs.Factory(deque)
    since: int = 0  #: step at which this life state began
    burnt: int = 0  #: steps boosted since the last point was burnt
    boosting: bool = False

    def safe(self, step: int) -> bool:
        """Whether it is too young to crash."""
        return step - self.since < SAFE_FOR

    def become(self, what: str, step: int) -> None:
        try:
            self.life = TRANSITIONS[self.life, what]
        except KeyError:
            raise IllegalMove(f"worm {self.number} cannot {what} while {self.life.value}")
        self.since = step


@attrs.frozen
class Ate:
    worm: int
    dot: int


@attrs.frozen
class Crashed:
    worm: int
    into: int  #: whose trail it was
    x: float
    y: float


@attrs.frozen
class Spawned:
    worm: int


@attrs.frozen
class Dropped:
    """A dot has appeared."""

    dot: int
    x: float
    y: float


Event = Ate | Crashed | Spawned | Dropped


class Arena:
    """One room's game. `advance` is the only thing that moves it."""

    def __init__(self, random: Random) -> None:
        self.step = 0
        self.worms: dict[int, Worm] = {}
        self.dots: dict[int, Point] = {}
        self._random = random
        self._next_dot = 0
        for _ in range(DOTS):
            self._drop(*self._anywhere())

    # --- players

    def enter(self, number: int) -> Worm:
        """Bring a worm to life: a new one, or one whose player was away, with its score."""
        worm = self.worms.setdefault(number, Worm(number))
        if worm.life is not Life.ABSENT:
            raise IllegalMove(f"worm {number} is here already")
        self._spawn(worm)
        return worm

    def leave(self, number: int) -> None:
        """The player is away. The trail is gone, the score stays."""
        worm = self.worms[number]
        worm.become("leave", self.step)
        worm.trail.clear()
        worm.steering = Steering()

    def forget(self, number: int) -> None:
        """Drop a worm with its score."""
        del self.worms[number]

    def steer(self, number: int, steering: Steering) -> None:
        """From now on this worm is steered so. Allowed in every state."""
        self.worms[number].steering = steering

    def present(self) -> Iterator[Worm]:
        """Worms whose players are here."""
        return (worm for worm in self.worms.values() if worm.life is not Life.ABSENT)

    # --- time

    def advance(self) -> list[Event]:
        """One step. Returns what happened, in order."""
        self.step += 1
        events: list[Event] = []
        for worm in self.present():
            if worm.life is Life.CRASHED and self.step - worm.since >= CRASHED_FOR:
                self._spawn(worm)
                events.append(Spawned(worm.number))
        alive = [worm for worm in self.worms.values() if worm.life is Life.ALIVE]
        for worm in alive:
            self._move(worm)
        for worm in alive:
            events.extend(self._eat(worm))
        for worm, other in self._collisions(alive):
            events.extend(self._crash(worm, other))
        while len(self.dots) < DOTS:
            events.append(self._drop(*self._anywhere()))
        return events

    def _move(self, worm: Worm) -> None:
        steering = worm.steering
        worm.boosting = steering.boost and worm.length > SHORTEST
        worm.heading = turned(worm.heading, steering)
        pace = BOOSTED if worm.boosting else SPEED
        worm.x += math.cos(worm.heading) * pace
        worm.y += math.sin(worm.heading) * pace
        if not MARGIN <= worm.x <= WIDTH - MARGIN:
            worm.x = min(max(worm.x, MARGIN), WIDTH - MARGIN)
            worm.heading = wrapped(math.pi - worm.heading)
        if not MARGIN <= worm.y <= HEIGHT - MARGIN:
            worm.y = min(max(worm.y, MARGIN), HEIGHT - MARGIN)
            worm.heading = wrapped(-worm.heading)
        if not worm.trail or math.dist(worm.trail[-1], (worm.x, worm.y)) >= SPACING:
            worm.trail.append((worm.x, worm.y))
        if worm.boosting:
            worm.burnt += 1
            if worm.burnt >= BOOST_COST:
                worm.burnt = 0
                worm.length -= 1
        while len(worm.trail) > worm.length:
            worm.trail.popleft()

    def _eat(self, worm: Worm) -> list[Event]:
        near = [dot for dot, (x, y) in self.dots.items() if abs(x - worm.x) < REACH and abs(y - worm.y) < REACH]
        eaten = [dot for dot in near if math.dist(self.dots[dot], (worm.x, worm.y)) < REACH]
        for dot in eaten:
            del self.dots[dot]
            worm.score += 1
            worm.length = min(worm.length + 2, LONGEST)
        return [Ate(worm.number, dot) for dot in eaten]

    def _collisions(self, alive: Iterable[Worm]) -> list[tuple[Worm, Worm]]:
        """Who has run into whose trail in this step; head to head gives both pairs."""
        solid = [worm for worm in alive if not worm.safe(self.step)]
        cells: dict[tuple[int, int], list[tuple[float, float, Worm]]] = {}
        for worm in solid:
            for x, y in (*worm.trail, (worm.x, worm.y)):
                cells.setdefault((int(x // TOUCH), int(y // TOUCH)), []).append((x, y, worm))
        found = []
        for worm in solid:
            column, row = int(worm.x // TOUCH), int(worm.y // TOUCH)
            around = (cells.get((column + i, row + j), ()) for i in (-1, 0, 1) for j in (-1, 0, 1))
            hit = next(
                (
                    other
                    for cell in around
                    for x, y, other in cell
                    if other is not worm and math.dist((x, y), (worm.x, worm.y)) < TOUCH
                ),
                None,
            )
            if hit is not None:
                found.append((worm, hit))
        return found

    def _crash(self, worm: Worm, other: Worm) -> list[Event]:
        worm.become("crash", self.step)
        other.score += CRASH_BONUS
        events: list[Event] = [Crashed(worm.number, other.number, worm.x, worm.y)]
        for x, y in list(worm.trail)[::2]:
            if len(self.dots) < MOST_DOTS:
                events.append(self._drop(x + self._random.uniform(-9, 9), y + self._random.uniform(-9, 9)))
        worm.trail.clear()
        worm.length = SHORTEST
        return events

    def _spawn(self, worm: Worm) -> None:
        worm.become("spawn", self.step)
        others = [(other.x, other.y) for other in self.worms.values() if other.life is Life.ALIVE and other is not worm]
        places = [self._anywhere(150.0) for _ in range(8)]
        worm.x, worm.y = max(
            places, key=lambda place: min((math.dist(place, other) for other in others), default=math.inf)
        )
        # Towards the middle, so that a first look at the game is not a wall.
        worm.heading = math.atan2(HEIGHT / 2 - worm.y, WIDTH / 2 - worm.x)
        worm.trail.clear()
        worm.length = SHORTEST
        worm.burnt = 0
        worm.boosting = False

    def _drop(self, x: float, y: float) -> Dropped:
        dot, self._next_dot = self._next_dot, self._next_dot + 1
        place = (min(max(x, MARGIN), WIDTH - MARGIN), min(max(y, MARGIN), HEIGHT - MARGIN))
        self.dots[dot] = place
        return Dropped(dot, *place)

    def _anywhere(self, inside: float = 30.0) -> Point:
        return (self._random.uniform(inside, WIDTH - inside), self._random.uniform(inside, HEIGHT - inside))


def wrapped(angle: float) -> float:
    """The same direction within -pi..pi."""
    return math.remainder(angle, math.tau)


def turned(heading: float, steering: Steering) -> float:
    """The heading one step later."""
    if steering.aim is None:
        return wrapped(heading + steering.turn * TURN)
    off = wrapped(steering.aim - heading)
    return wrapped(heading + min(max(off, -TURN), TURN))

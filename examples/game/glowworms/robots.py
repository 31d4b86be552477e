"""How a robot steers: towards the nearest dot, away from trails. Pure; sees only what a player sees."""

from __future__ import annotations

import math

from .arena import HEIGHT, REACH, SPEED, TOUCH, TURN, WIDTH, Arena, Life, Steering, Worm, wrapped

LOOK_AHEAD = 95.0  #: units
NARROW = 3 * TOUCH  #: a trail this near to the way ahead is in the way
CIRCLE = SPEED / TURN  #: radius of the tightest turn
NAMES = ("Robo Ada", "Robo Alan", "Robo Grace", "Robo Edsger")


def steer(arena: Arena, worm: Worm) -> Steering:
    """What this robot does next."""
    danger = _side_of_danger(arena, worm)
    if danger:
        return Steering(turn=-danger)
    possible = (dot for dot in arena.dots.values() if _reachable(worm, dot))
    target = min(possible, key=lambda dot: _cost(worm, dot), default=(WIDTH / 2, HEIGHT / 2))
    return Steering(aim=math.atan2(target[1] - worm.y, target[0] - worm.x))


def _reachable(worm: Worm, dot: tuple[float, float]) -> bool:
    """Whether turning towards a dot gets there: around one inside the turning circle a robot would go for ever."""
    sideways = (-math.sin(worm.heading) * CIRCLE, math.cos(worm.heading) * CIRCLE)
    return all(
        math.dist(dot, (worm.x + side * sideways[0], worm.y + side * sideways[1])) > CIRCLE - REACH / 2
        for side in (-1, 1)
    )


def _cost(worm: Worm, dot: tuple[float, float]) -> float:
    # Turning takes a way, too.
    off = abs(wrapped(math.atan2(dot[1] - worm.y, dot[0] - worm.x) - worm.heading))
    return math.dist(dot, (worm.x, worm.y)) + 90.0 * off


def _side_of_danger(arena: Arena, worm: Worm) -> int:
    """-1 if something is in the way on the left, 1 on the right, 0 if the way is free."""
    ahead_x, ahead_y = math.cos(worm.heading), math.sin(worm.heading)
    nearest, side = math.inf, 0
    for other in arena.worms.values():
        if other is worm or other.life is not Life.ALIVE:
            continue
        for x, y in other.trail:
            along = (x - worm.x) * ahead_x + (y - worm.y) * ahead_y
            across = (y - worm.y) * ahead_x - (x - worm.x) * ahead_y
            if 0 < along < min(LOOK_AHEAD, nearest) and abs(across) < NARROW:
                nearest, side = along, 1 if across >= 0 else -1
    return side

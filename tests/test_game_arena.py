"""The example game's rules: movement, dots, crashes and lives."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from examples.game.glowworms import robots
from examples.game.glowworms.arena import (
    CRASH_BONUS,
    CRASHED_FOR,
    DOTS,
    HEIGHT,
    LONGEST,
    MARGIN,
    MOST_DOTS,
    SAFE_FOR,
    SHORTEST,
    SPACING,
    SPEED,
    TOUCH,
    TRANSITIONS,
    TURN,
    WIDTH,
    Arena,
    Ate,
    Crashed,
    Dropped,
    IllegalMove,
    Life,
    Spawned,
    Steering,
    Worm,
    turned,
)

STEERINGS = st.builds(
    Steering,
    turn=st.sampled_from((-1, 0, 1)),
    aim=st.none() | st.floats(-10, 10),
    boost=st.booleans(),
)


def bare_arena() -> Arena:
    """An arena whose dots lie where no test goes, all in one corner."""
    arena = Arena(Random(1))
    arena.dots = dict.fromkeys(arena.dots, (WIDTH - MARGIN, HEIGHT - MARGIN))
    return arena


def placed(arena: Arena, number: int, x: float, y: float, heading: float = 0.0) -> Worm:
    """A worm that is old enough to crash."""
    worm = arena.enter(number)
    worm.x, worm.y, worm.heading = x, y, heading
    worm.since = arena.step - SAFE_FOR
    return worm


class MovementTests(SynchronousTestCase):
    def test_a_worm_moves_straight_by_its_speed(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        arena.advance()
        self.assertEqual((worm.x, worm.y), (400 + SPEED, 300))

    def test_right_turns_clockwise_on_a_screen_whose_y_points_down(self) -> None:
        self.assertAlmostEqual(turned(0.0, Steering(turn=1)), TURN)
        self.assertAlmostEqual(turned(0.0, Steering(turn=-1)), -TURN)

    def test_an_aim_is_turned_to_by_the_short_way_and_no_faster_than_the_keys(self) -> None:
        self.assertAlmostEqual(turned(3.0, Steering(aim=-3.0)), 3.0 + TURN)
        self.assertAlmostEqual(turned(1.0, Steering(turn=1, aim=1.0)), 1.0)

    def test_the_wall_turns_a_worm_back(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, WIDTH - MARGIN - 1, 300)
        arena.advance()
        self.assertLess(math.cos(worm.heading), 0)
        self.assertIs(worm.life, Life.ALIVE)

    def test_a_trail_is_as_long_as_its_worm_may_be(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 100, 300)
        for _ in range(100):
            arena.advance()
        self.assertEqual(len(worm.trail), SHORTEST)

    def test_hurrying_is_faster_and_burns_the_trail_down_to_the_shortest(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 100, 300)
        worm.length = SHORTEST + 1
        arena.steer(1, Steering(boost=True))
        arena.advance()
        self.assertGreater(worm.x, 100 + SPEED)
        for _ in range(30):
            arena.advance()
        self.assertEqual(worm.length, SHORTEST)
        self.assertFalse(worm.boosting)


class DotTests(SynchronousTestCase):
    def test_eating_scores_lengthens_and_a_new_dot_appears(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        arena.dots[7] = (405, 305)
        events = arena.advance()
        self.assertIn(Ate(1, 7), events)
        self.assertEqual((worm.score, worm.length), (1, SHORTEST + 2))
        self.assertEqual(len([event for event in events if isinstance(event, Dropped)]), 1)
        self.assertEqual(len(arena.dots), DOTS)
        self.assertNotIn(7, arena.dots)

    def test_two_worms_never_eat_the_same_dot(self) -> None:
        arena = bare_arena()
        first, second = placed(arena, 1, 400, 300), placed(arena, 2, 400, 330)
        arena.dots[7] = (405, 315)
        arena.advance()
        self.assertEqual((first.score, second.score), (1, 0))


class CrashTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.arena = bare_arena()
        self.lying = placed(self.arena, 1, 700, 300)
        self.lying.trail.extend((x, 300.0) for x in range(500, 700, int(SPACING)))
        self.lying.length = LONGEST

    def test_a_head_in_a_trail_crashes_and_its_owner_scores(self) -> None:
        runner = placed(self.arena, 2, 600, 300 + TOUCH, -math.pi / 2)
        runner.trail.extend((600.0, 400.0 + 12 * i) for i in range(6, 0, -1))
        runner.score = 9
        events = self.arena.advance()
        crash = next(event for event in events if isinstance(event, Crashed))
        self.assertEqual((crash.worm, crash.into), (2, 1))
        self.assertEqual((runner.life, runner.score, len(runner.trail)), (Life.CRASHED, 9, 0))
        self.assertEqual(self.lying.score, CRASH_BONUS)
        self.assertGreaterEqual(len([event for event in events if isinstance(event, Dropped)]), 3)

    def test_a_crashed_worm_is_back_after_a_while_short_and_safe(self) -> None:
        runner = placed(self.arena, 2, 600, 300 + TOUCH, -math.pi / 2)
        runner.length = 80
        self.arena.advance()
        for _ in range(CRASHED_FOR - 1):
            self.assertNotIn(Spawned(2), self.arena.advance())
        self.assertIn(Spawned(2), self.arena.advance())
        self.assertEqual((runner.life, runner.length), (Life.ALIVE, SHORTEST))
        self.assertTrue(runner.safe(self.arena.step))

    def test_a_fresh_worm_neither_crashes_nor_is_crashed_into(self) -> None:
        fresh = placed(self.arena, 2, 600, 300)
        fresh.since = self.arena.step
        self.assertEqual([event for event in self.arena.advance() if isinstance(event, Crashed)], [])

    def test_heads_that_meet_both_crash(self) -> None:
        placed(self.arena, 2, 400, 600, 0.0)
        placed(self.arena, 3, 412, 600, math.pi)
        crashed = {event.worm for event in self.arena.advance() if isinstance(event, Crashed)}
        self.assertEqual(crashed, {2, 3})

    def test_a_worm_may_cross_its_own_trail(self) -> None:
        self.lying.x, self.lying.y, self.lying.heading = 600, 300 + TOUCH, -math.pi / 2
        self.arena.advance()
        self.assertIs(self.lying.life, Life.ALIVE)


class LifeTests(SynchronousTestCase):
    def test_who_leaves_comes_back_with_the_score_and_without_the_trail(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        worm.score = 12
        arena.advance()
        arena.leave(1)
        self.assertEqual((worm.life, len(worm.trail), list(arena.present())), (Life.ABSENT, 0, []))
        self.assertIs(arena.enter(1), worm)
        self.assertEqual((worm.life, worm.score), (Life.ALIVE, 12))

    def test_who_is_here_cannot_enter_again_and_nothing_changes(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        self.assertRaises(IllegalMove, arena.enter, 1)
        self.assertEqual((worm.life, worm.x), (Life.ALIVE, 400))

    def test_what_the_table_does_not_list_is_refused(self) -> None:
        for life in Life:
            for what in ("crash", "spawn", "leave"):
                worm = Worm(1, life=life)
                if (life, what) in TRANSITIONS:
                    worm.become(what, 5)
                    self.assertEqual((worm.life, worm.since), (TRANSITIONS[life, what], 5))
                else:
                    self.assertRaises(IllegalMove, worm.become, what, 5)
                    self.assertEqual((worm.life, worm.since), (life, 0))


class WholeGameTests(SynchronousTestCase):
    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 10**6), orders=st.lists(st.tuples(st.integers(1, 6), STEERINGS), max_size=40))
    def test_worms_stay_in_the_arena_and_nothing_grows_without_bound(
        self, seed: int, orders: list[tuple[int, Steering]]
    ) -> None:
        arena = Arena(Random(seed))
        for number in range(1, 7):
            arena.enter(number)
        for number, steering in orders:
            arena.steer(number, steering)
            for _ in range(8):
                arena.advance()
            for worm in arena.worms.values():
                self.assertTrue(MARGIN <= worm.x <= WIDTH - MARGIN and MARGIN <= worm.y <= HEIGHT - MARGIN)
                self.assertTrue(SHORTEST <= worm.length <= LONGEST and len(worm.trail) <= worm.length)
            self.assertTrue(DOTS <= len(arena.dots) <= MOST_DOTS)

    def test_the_same_seed_and_steering_give_the_same_game(self) -> None:
        def play() -> list[tuple[float, float, int]]:
            arena = Arena(Random(4))
            for number in (1, 2, 3):
                arena.enter(number)
            for _ in range(300):
                for worm in arena.worms.values():
                    arena.steer(worm.number, robots.steer(arena, worm))
                arena.advance()
            return [(worm.x, worm.y, worm.score) for worm in arena.worms.values()]

        self.assertEqual(play(), play())


class RobotTests(SynchronousTestCase):
    def test_a_robot_heads_for_the_nearest_dot_ahead(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        arena.dots = {1: (500, 400), 2: (1500, 100)}
        aim = robots.steer(arena, worm).aim
        assert aim is not None
        self.assertAlmostEqual(aim, math.pi / 4)

    def test_a_robot_turns_away_from_a_trail_in_its_way(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        other = placed(arena, 2, 900, 800)
        other.trail.extend((460.0, y) for y in (310.0, 322.0))
        self.assertEqual(robots.steer(arena, worm), Steering(turn=-1))

    def test_a_robot_does_not_circle_around_a_dot_it_cannot_reach(self) -> None:
        arena = bare_arena()
        worm = placed(arena, 1, 400, 300)
        beside = (400, 300 + SPEED / TURN)
        arena.dots = {1: beside, 2: (900, 250)}
        for _ in range(150):
            arena.steer(1, robots.steer(arena, worm))
            arena.advance()
        self.assertGreater(math.dist(beside, (worm.x, worm.y)), 2 * SPEED / TURN)

    def test_robots_alone_eat(self) -> None:
        arena = Arena(Random(2))
        arena.enter(1)
        for _ in range(900):
            arena.steer(1, robots.steer(arena, arena.worms[1]))
            arena.advance()
        self.assertGreater(arena.worms[1].score, 5)

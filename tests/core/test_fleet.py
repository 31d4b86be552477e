"""Scenarios of clients and sessions on a whole fleet, with right answers worked out by hand."""

from __future__ import annotations

from collections import Counter

from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.effects import EndSession, GrantStart, RefuseStart
from sticky.core.events import StartRequested, StopRequested, TimePassed
from sticky.core.records import KeyBound, SessionCreated
from sticky.core.values import Caller, ContainerId, EndReason, SessionId, WaiterId
from tests.core.audit import residue
from tests.core.stage import Stage

KEY = "k" * 16


class QueueTests(TestCase):
    def test_200_starts_on_an_empty_server_with_room_for_100(self) -> None:
        stage = Stage(max_containers=2, max_concurrency=50, max_queue_per_caller=1000)
        waiters = [stage.start() for _ in range(200)]
        self.assertEqual(stage.spawned(), 2)
        stage.wait(3.0)
        stage.ready()
        granted = [waiter for waiter in waiters if stage.session_of(waiter)]
        self.assertEqual(granted, waiters[:100])
        self.assertEqual(stage.loads(), {"ct-1": 50, "ct-2": 50})
        stage.wait(56.9)
        self.assertEqual(stage.of(RefuseStart), [])
        stage.wait(0.1)
        refused = {waiter: stage.refusal_of(waiter) for waiter in waiters[100:]}
        self.assertEqual({type(refusal) for refusal in refused.values()}, {errors.QueueTimedOut})
        self.assertEqual(Counter(w for effect in stage.of(RefuseStart) for w in effect.waiters), Counter(waiters[100:]))
        self.assertEqual(stage.spawned(), 2)

    def test_a_client_that_leaves_frees_its_place_for_the_next(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1, max_queue=2)
        first, second = stage.start(), stage.start()
        self.assertIsInstance(stage.refusal_of(stage.start()), errors.QueueFull)
        stage.leave(first)
        third = stage.start()
        self.assertIsNone(stage.refusal_of(third))
        stage.ready()
        self.assertEqual([stage.session_of(waiter) for waiter in (first, second, third)], [None, "sd-1", None])

    def test_a_client_that_leaves_after_its_answer_changes_nothing(self) -> None:
        stage = Stage()
        waiter = stage.start()
        stage.ready()
        stage.leave(waiter)
        self.assertEqual(stage.loads(), {"ct-1": 1})

    def test_starts_are_granted_in_order_of_arrival_as_places_come_free(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1)
        waiters = [stage.start() for _ in range(3)]
        stage.ready()
        stage.terminate("sd-1")
        stage.terminate("sd-2")
        self.assertEqual([stage.session_of(waiter) for waiter in waiters], ["sd-1", "sd-2", "sd-3"])

    def test_one_that_no_container_fits_is_passed_over_and_blocks_nobody(self) -> None:
        stage = Stage(
            max_containers=2, max_concurrency=5, container_max_age=100.0, max_idle_timeout=80.0, idle_timeout=20.0
        )
        stage.start()
        stage.ready()
        begun = stage.begin("sd-1")
        stage.wait(30.0)  # 70 s are left
        long, short = stage.start(80.0), stage.start(20.0)
        self.assertEqual((stage.session_of(long), stage.session_of(short)), (None, "sd-2"))
        self.assertEqual(stage.home("sd-2"), "ct-1")
        stage.ready()
        self.assertEqual(stage.home(str(stage.session_of(long))), "ct-2")
        stage.finish(begun)

    def test_a_start_at_its_deadline_has_timed_out_even_if_a_container_is_ready_in_that_moment(self) -> None:
        stage = Stage(startup_timeout=300.0)
        waiter = stage.start()
        stage.now += 60.0
        stage.ready()
        self.assertIsInstance(stage.refusal_of(waiter), errors.QueueTimedOut)
        self.assertEqual(stage.of(GrantStart), [])

    def test_a_late_timer_applies_deadlines_in_order_of_time(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1, idle_timeout=30.0, startup_timeout=300.0)
        first, second = stage.start(), stage.start()
        stage.ready()
        stage.wait(
            10_000.0
        )  # at 30 s the first session ends and the second start gets its place, 30 s before its own time
        self.assertEqual((stage.session_of(first), stage.session_of(second)), ("sd-1", "sd-2"))
        self.assertEqual([record.created_at for record in stage.of(SessionCreated)], [1000.0, 1030.0])
        self.assertEqual([end.session for end in stage.of(EndSession)], ["sd-1", "sd-2"])

    def test_the_callers_limit_counts_live_sessions_and_is_free_again_after_their_end(self) -> None:
        stage = Stage(max_sessions_per_caller=2)
        stage.start()
        stage.start()
        stage.ready()
        self.assertIsInstance(stage.refusal_of(stage.start()), errors.TooManySessions)
        self.assertIsNone(stage.refusal_of(stage.start(caller="bob")))
        stage.terminate("sd-1")
        self.assertIsNotNone(stage.session_of(stage.start()))

    def test_idle_timeouts_out_of_range_are_refused_and_the_bounds_are_not(self) -> None:
        stage = Stage(max_idle_timeout=300.0)
        for wrong in (0.0, -1.0, 0.99, 300.5, 1e9, float("inf"), float("nan")):
            self.assertIsInstance(stage.refusal_of(stage.start(wrong)), errors.BadIdleTimeout)
        for right in (1.0, 300.0):
            self.assertIsNone(stage.refusal_of(stage.start(right)))

    def test_a_waiter_that_waits_already_is_our_own_mistake(self) -> None:
        stage = Stage()
        waiter = stage.start()
        again = StartRequested(waiter, Caller("ann"), "ann")
        self.assertRaises(errors.IllegalEvent, stage.step, again)
        self.assertEqual(stage.fleet.position(waiter), (1, stage.fleet.starts._by_waiter[waiter]))


class KeyTests(TestCase):
    def test_two_connections_on_one_key_get_one_session(self) -> None:
        stage = Stage()
        first, second = stage.start(key=KEY), stage.start(key=KEY)
        stage.ready()
        self.assertEqual([stage.session_of(first), stage.session_of(second)], ["sd-1", "sd-1"])
        self.assertEqual(stage.loads(), {"ct-1": 1})
        self.assertTrue(stage.of(GrantStart)[0].created)

    def test_a_retry_after_the_answer_finds_the_session_and_says_so(self) -> None:
        stage = Stage()
        stage.start(key=KEY)
        stage.ready()
        again = stage.start(key=KEY)
        self.assertEqual(stage.session_of(again), "sd-1")
        self.assertFalse(stage.of(GrantStart)[1].created)

    def test_the_key_is_on_record_before_the_answer_is_given(self) -> None:
        stage = Stage()
        stage.start(key=KEY)
        stage.ready()
        kinds = [type(effect) for effect in stage.told if isinstance(effect, SessionCreated | KeyBound | GrantStart)]
        self.assertEqual(kinds, [SessionCreated, KeyBound, GrantStart])

    def test_once_the_session_has_ended_the_key_starts_a_fresh_one(self) -> None:
        stage = Stage()
        stage.start(key=KEY)
        stage.ready()
        stage.terminate("sd-1")
        self.assertEqual(stage.session_of(stage.start(key=KEY)), "sd-2")

    def test_another_idle_timeout_on_the_same_key_is_refused(self) -> None:
        stage = Stage()
        stage.start(100.0, key=KEY)
        self.assertIsInstance(stage.refusal_of(stage.start(101.0, key=KEY)), errors.KeyReused)
        stage.ready()
        self.assertIsInstance(stage.refusal_of(stage.start(101.0, key=KEY)), errors.KeyReused)

    def test_a_key_belongs_to_its_owner(self) -> None:
        stage = Stage()
        first, second = stage.start(key=KEY), stage.start(key=KEY, owner="bob", caller="bob")
        stage.ready()
        self.assertNotEqual(stage.session_of(first), stage.session_of(second))

    def test_a_client_that_comes_back_within_five_seconds_has_its_old_rank(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1)
        first, second = stage.start(key=KEY), stage.start()
        stage.leave(first)
        stage.wait(4.9)
        back = stage.start(key=KEY)
        stage.ready()
        self.assertEqual((stage.session_of(back), stage.session_of(second)), ("sd-1", None))

    def test_one_that_comes_back_too_late_is_behind_the_others(self) -> None:
        stage = Stage(max_containers=1, max_concurrency=1)
        first, second = stage.start(key=KEY), stage.start()
        stage.leave(first)
        stage.wait(5.0)
        back = stage.start(key=KEY)
        stage.ready()
        self.assertEqual((stage.session_of(back), stage.session_of(second)), (None, "sd-1"))

    def test_a_held_start_is_not_granted(self) -> None:
        stage = Stage()
        stage.leave(stage.start(key=KEY))
        stage.ready()
        self.assertEqual(stage.of(GrantStart), [])
        self.assertIsNotNone(stage.session_of(stage.start(key=KEY)))

    def test_where_everybody_is_one_owner_the_key_counts_sixty_seconds_after_the_answer(self) -> None:
        stage = Stage()
        stage.start(key=KEY, owner="")
        stage.ready()
        stage.wait(59.9)
        self.assertEqual(stage.session_of(stage.start(key=KEY, owner="")), "sd-1")
        stage.wait(0.1)
        self.assertEqual(stage.session_of(stage.start(key=KEY, owner="")), "sd-2")


class SessionLifeTests(TestCase):
    def setUp(self) -> None:
        self.stage = Stage(idle_timeout=20.0)
        self.stage.start()
        self.stage.ready()

    def test_a_request_just_before_the_idle_deadline_is_in_time(self) -> None:
        self.stage.now += 19.999
        session = self.stage.begin("sd-1")
        self.stage.wait(1000.0)
        self.assertIsNone(self.stage.end_of("sd-1"))
        self.stage.finish(session)
        self.stage.wait(19.9)
        self.assertIsNone(self.stage.end_of("sd-1"))
        self.stage.wait(0.1)
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.IDLE_TIMEOUT, None))

    def test_a_request_at_the_deadline_is_too_late(self) -> None:
        self.stage.now += 20.0
        refusal = self.assertRaises(errors.SessionEnded, self.stage.begin, "sd-1")
        self.assertEqual((refusal.status, refusal.code), (410, "idle_timeout"))

    def test_an_extend_at_the_deadline_is_too_late_and_before_it_is_not(self) -> None:
        self.stage.now += 19.0
        self.stage.fleet.extend(self.stage.now, ContainerId("ct-1"), SessionId("sd-1"))
        self.stage.now += 20.0
        refusal = self.assertRaises(
            errors.SessionEnded, self.stage.fleet.extend, self.stage.now, ContainerId("ct-1"), SessionId("sd-1")
        )
        self.assertEqual(refusal.code, "idle_timeout")

    def test_a_look_touches_nothing(self) -> None:
        self.stage.now += 19.0
        self.stage.fleet.look(self.stage.now, ContainerId("ct-1"), SessionId("sd-1"))
        self.stage.wait(1.0)
        self.assertIsNotNone(self.stage.end_of("sd-1"))

    def test_the_timer_learns_of_a_deadline_that_a_finished_request_brings_nearer(self) -> None:
        session = self.stage.begin("sd-1")
        self.stage.wait(100.0)
        before = self.stage.fleet.wake_at
        self.stage.finish(session)
        self.assertEqual(self.stage.fleet.wake_at, self.stage.now + 20.0)
        self.assertLess(self.stage.fleet.wake_at, before)

    def test_terminate_with_a_grace_ends_what_is_in_flight_when_it_is_over(self) -> None:
        self.stage.begin("sd-1")
        self.stage.terminate("sd-1", 5.0)
        self.assertRaises(errors.SessionEnded, self.stage.begin, "sd-1")
        self.stage.wait(4.9)
        self.assertIsNone(self.stage.end_of("sd-1"))
        self.stage.wait(0.1)
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.TERMINATED, None))

    def test_terminate_with_no_grace_at_all_ends_it_in_that_step(self) -> None:
        self.stage.begin("sd-1")
        self.stage.terminate("sd-1", 0.0)
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.TERMINATED, None))

    def test_terminating_what_is_over_or_never_was_is_unknown(self) -> None:
        self.stage.terminate("sd-1")
        self.assertRaises(errors.UnknownSession, self.stage.terminate, "sd-1")
        never = (self.stage.now, ContainerId("ct-9"), SessionId("sd-9"), None)
        self.assertRaises(errors.UnknownSession, self.stage.fleet.terminate, *never)

    def test_a_lost_container_is_the_reason_with_how_it_was_lost(self) -> None:
        self.stage.begin("sd-1")
        self.stage.exit("ct-1", "out_of_memory")
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.CONTAINER_LOST, "out_of_memory"))
        refusal = self.assertRaises(errors.SessionEnded, self.stage.begin, "sd-1")
        self.assertEqual((refusal.code, refusal.detail), ("container_lost", "out_of_memory"))

    def test_nobody_remembers_a_session_once_its_token_cannot_come_any_more(self) -> None:
        self.stage.terminate("sd-1")
        self.stage.wait(86_400.0 + 300.0)
        refusal = self.assertRaises(errors.SessionEnded, self.stage.begin, "sd-1")
        self.assertEqual(refusal.code, "ended")
        self.stage.exit("ct-1")
        refusal = self.assertRaises(errors.SessionEnded, self.stage.begin, "sd-1")
        self.assertEqual(refusal.code, "container_lost")

    def test_very_large_times_are_as_good_as_small_ones(self) -> None:
        stage = Stage(idle_timeout=1.0, startup_timeout=1.0, queue_timeout=0.5, scaledown_window=2.0)
        stage.now = 1e9 + 1 / 3
        waiter = stage.start()
        stage.ready()
        self.assertIsNotNone(stage.session_of(waiter))
        for _ in range(50):
            deadline = stage.fleet.next_deadline(stage.now)
            if deadline is None:
                break
            self.assertGreater(deadline, stage.now)
            stage.now = deadline
            stage.step(TimePassed())
            if stage.in_state(ContainerState.STOPPING):
                stage.exit("ct-1")
        self.assertIsNone(stage.fleet.next_deadline(stage.now))
        self.assertEqual(stage.end_of("sd-1"), (EndReason.IDLE_TIMEOUT, None))


class SlowMailTests(TestCase):
    def setUp(self) -> None:
        self.stage = Stage(prompt=False, max_containers=1, max_concurrency=1)

    def deliver(self, index: int = 0) -> None:
        self.stage.told += self.stage.fleet.deliver(self.stage.now, index)

    def test_a_decided_start_does_not_time_out(self) -> None:
        waiter = self.stage.start()
        self.stage.ready()
        self.stage.wait(500.0)
        self.assertIsNone(self.stage.refusal_of(waiter))
        self.deliver()
        self.deliver()
        self.assertEqual(self.stage.session_of(waiter), "sd-1")

    def test_one_whose_container_is_lost_before_the_answer_is_back_at_its_rank(self) -> None:
        first = self.stage.start()
        self.stage.ready()
        second = self.stage.start()
        self.stage.exit("ct-1")
        self.stage.wait(1.0)
        place = self.stage.fleet.position(first)
        assert place is not None
        self.assertEqual(place[0], 1)
        self.stage.ready()
        while self.stage.fleet.mail:
            self.deliver()
        self.assertEqual((self.stage.session_of(first), self.stage.session_of(second)), ("sd-2", None))

    def test_one_that_comes_back_after_its_deadline_is_refused_in_that_step(self) -> None:
        waiter = self.stage.start()
        self.stage.ready()
        self.stage.wait(100.0)
        self.stage.exit("ct-1")
        self.assertIsInstance(self.stage.refusal_of(waiter), errors.QueueTimedOut)

    def test_a_session_that_everybody_left_lives_by_its_idle_clock(self) -> None:
        waiter = self.stage.start()
        self.stage.ready()
        self.stage.leave(waiter)
        self.deliver()
        self.deliver()
        self.assertEqual(self.stage.of(GrantStart)[0].waiters, ())
        self.stage.wait(600.0)
        self.assertEqual(self.stage.end_of("sd-1"), (EndReason.IDLE_TIMEOUT, None))

    def test_a_session_that_comes_and_goes_in_the_mail_leaves_a_container_that_can_close(self) -> None:
        self.stage.start(1.0)
        self.stage.ready()
        self.deliver()  # the ledger takes it
        self.stage.wait(1.0)  # and ends it
        self.deliver(1)  # the end is heard of first
        self.deliver(0)
        self.stage.wait(60.0)
        self.deliver()
        self.deliver()
        self.assertEqual(self.stage.in_state(ContainerState.STOPPING), ["ct-1"])


class NothingLeftTests(TestCase):
    def test_a_busy_day_leaves_nothing_behind(self) -> None:
        stage = Stage(max_containers=2, max_concurrency=2, queue_timeout=30.0, idle_timeout=10.0)
        for number in range(12):
            waiter = stage.start(key=f"{number % 5:016}", caller=f"c{number % 3}", owner=f"c{number % 3}")
            if number % 4 == 0:
                stage.leave(waiter)
            if number == 3:
                stage.ready()
            if number == 6:
                stage.exit("ct-1")
        stage.wait(100.0)
        stage.step(StopRequested())
        for container in list(stage.fleet.capacity.containers):
            stage.exit(container)
        stage.wait(10.0)
        self.assertEqual(residue(stage.fleet), {})
        answered = Counter(
            waiter for effect in stage.told if isinstance(effect, GrantStart | RefuseStart) for waiter in effect.waiters
        )
        self.assertEqual(set(answered.values()), {1})
        self.assertTrue(set(answered) <= {WaiterId(number) for number in range(1, 13)})

"""Named sessions: one name, one session, and no silent fresh start. The numbers are those of tests/cases/seed003.md."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.effects import EndSession, GrantStart
from sticky.core.events import ContainerStopRequested, ContainerUnhealthy, TimePassed
from sticky.core.memory import Memory
from sticky.core.names import Names
from sticky.core.recall import buried, memory_of
from sticky.core.records import NameBound, NameExpired
from sticky.core.values import ContainerId, EndReason, SessionId, WaiterId
from tests.core.stage import Stage


class NamedTestCase(SynchronousTestCase):
    """A Server with room for two sessions in each container, the first of which is ready."""

    def setUp(self) -> None:
        self.stage = Stage(idle_timeout=20.0, max_concurrency=2, min_containers=1)
        self.stage.ready()

    def use(self, name: str = "notebook", owner: str = "ann", idle_timeout: float | None = None) -> WaiterId:
        return self.stage.start(idle_timeout, caller=owner, owner=owner, name=name)

    def refused(self, waiter: WaiterId) -> errors.SessionExpired:
        error = self.stage.refusal_of(waiter)
        assert isinstance(error, errors.SessionExpired), error
        return error


class UseTests(NamedTestCase):
    def test_rule_1_a_name_finds_the_session_that_it_made(self) -> None:
        first, second = self.use(), self.use()
        self.assertEqual(self.stage.session_of(first), self.stage.session_of(second))
        self.assertEqual([grant.created for grant in self.stage.of(GrantStart)], [True, False])

    def test_rule_4_a_name_that_was_never_used_is_placed_like_any_start(self) -> None:
        self.stage.start()
        session = self.stage.session_of(self.use())
        assert session is not None
        self.assertEqual(self.stage.home(session), "ct-1")
        self.assertEqual(self.stage.loads(), {"ct-1": 2})

    def test_rule_5_later_uses_go_to_the_same_container_even_if_another_is_less_busy(self) -> None:
        session = self.stage.session_of(self.use())
        self.stage.start()
        self.stage.start()
        self.stage.ready()
        self.assertEqual(self.stage.loads(), {"ct-1": 2, "ct-2": 1})
        again = self.use()
        self.assertEqual(self.stage.session_of(again), session)
        self.assertEqual(self.stage.of(GrantStart)[-1].container, "ct-1")

    def test_rule_22_a_session_never_moves_to_another_container(self) -> None:
        session = self.stage.session_of(self.use())
        assert session is not None
        self.stage.exit("ct-1")
        self.stage.ready()
        self.assertEqual(self.refused(self.use()).reason, "container_lost")
        self.assertNotIn(session, [s.id for ledger in self.stage.fleet.ledgers for s in ledger])

    def test_first_uses_at_the_same_time_make_one_session_and_one_start(self) -> None:
        stage = Stage(idle_timeout=20.0)
        waiters = [stage.start(name="notebook", idle_timeout=seconds) for seconds in (None, 5.0, 20.0)]
        self.assertEqual(stage.spawned(), 1)
        stage.ready()
        self.assertEqual({stage.session_of(waiter) for waiter in waiters}, {"sd-1"})
        self.assertEqual(stage.of(GrantStart)[-1].waiters, tuple(waiters))

    def test_names_belong_to_their_owner(self) -> None:
        mine, theirs = self.use(owner="ann"), self.use(owner="bob")
        self.assertNotEqual(self.stage.session_of(mine), self.stage.session_of(theirs))
        self.assertRaises(errors.UnknownName, self.stage.release, "notebook", owner="eve")

    def test_the_first_use_decides_the_idle_timeout(self) -> None:
        self.use(idle_timeout=7.0)
        self.use(idle_timeout=15.0)
        self.assertEqual([grant.idle_timeout for grant in self.stage.of(GrantStart)], [7.0, 7.0])

    def test_a_key_beside_a_name_is_not_looked_at(self) -> None:
        one = self.stage.start(name="a", key="k" * 16)
        other = self.stage.start(name="b", key="k" * 16)
        self.assertNotEqual(self.stage.session_of(one), self.stage.session_of(other))
        self.assertEqual(self.stage.fleet.starts.keys, {})

    def test_a_client_that_leaves_the_queue_keeps_its_rank_for_a_moment(self) -> None:
        stage = Stage(idle_timeout=20.0, max_containers=1, max_concurrency=1)
        first = stage.start(name="notebook")
        later = stage.start()
        stage.leave(first)
        stage.wait(4.0)
        again = stage.start(name="notebook")
        stage.ready()
        self.assertEqual((stage.session_of(again), stage.session_of(later)), ("sd-1", None))

    def test_one_that_stays_away_gives_the_name_back(self) -> None:
        stage = Stage(idle_timeout=20.0)
        stage.leave(stage.start(name="notebook"))
        stage.wait(5.0)
        self.assertEqual(stage.fleet.starts.named, {})


class ExpiryTests(NamedTestCase):
    def test_rule_16_a_name_whose_session_has_ended_answers_with_the_reason_and_starts_nothing(self) -> None:
        self.use()
        self.stage.wait(20.0)
        error = self.refused(self.use())
        self.assertEqual((error.status, error.code, error.reason), (410, "session_expired", "idle_timeout"))
        self.assertIn("idle_timeout", error.message)
        self.assertEqual(len(self.stage.of(GrantStart)), 1)

    def test_rule_14_a_container_that_failed_or_was_removed_expires_its_names_with_the_reason(self) -> None:
        self.use("stopped")
        self.stage.step(ContainerStopRequested(ContainerId("ct-1")))
        self.assertEqual(self.refused(self.use("stopped")).reason, "server_stopped")
        self.stage.ready()
        self.use("unhealthy")
        home = self.stage.of(GrantStart)[-1].container
        self.stage.step(ContainerUnhealthy(home))
        error = self.refused(self.use("unhealthy"))
        self.assertEqual((error.reason, error.detail), ("container_lost", "unhealthy"))

    def test_rule_19_departs_a_lost_container_expires_its_names_at_once(self) -> None:
        self.use()
        self.stage.exit("ct-1", "killed")
        error = self.refused(self.use())
        self.assertEqual((error.reason, error.detail), ("container_lost", "killed"))

    def test_a_session_that_drains_is_over_for_its_name(self) -> None:
        session = self.stage.session_of(self.use())
        assert session is not None
        request = self.stage.begin(session)
        self.stage.terminate(session)
        self.assertEqual(self.refused(self.use()).reason, "terminated")
        self.stage.finish(request)
        self.assertEqual(self.refused(self.use()).reason, "terminated")

    def test_rule_17_another_name_starts_afresh(self) -> None:
        self.use()
        self.stage.wait(20.0)
        self.assertIsNotNone(self.stage.session_of(self.use("another")))

    def test_rule_18_a_name_never_seen_starts_a_session(self) -> None:
        self.assertEqual(self.stage.session_of(self.use("never seen")), "sd-1")

    def test_beyond_the_bound_the_oldest_of_the_same_owner_is_forgotten(self) -> None:
        names = Names(kept=2)
        for owner, name in (("bob", "x"), ("ann", "a"), ("ann", "b"), ("ann", "c")):
            names.add(NameExpired(owner, name, EndReason.IDLE_TIMEOUT, None))
        self.assertIsNone(names.find("ann", "a"))
        for owner, name in (("bob", "x"), ("ann", "b"), ("ann", "c")):
            self.assertRaises(errors.SessionExpired, names.find, owner, name)


class ReleaseTests(NamedTestCase):
    def test_an_expired_name_starts_afresh_once_it_is_released(self) -> None:
        self.use()
        self.stage.wait(20.0)
        self.stage.release("notebook")
        again = self.use()
        self.assertEqual(self.stage.session_of(again), "sd-2")
        self.assertTrue(self.stage.of(GrantStart)[-1].created)

    def test_a_live_one_is_terminated_and_its_name_is_free_at_once(self) -> None:
        session = self.stage.session_of(self.use())
        assert session is not None
        request = self.stage.begin(session)
        self.stage.release("notebook")
        self.assertEqual(self.stage.session_of(self.use()), "sd-2")
        self.assertRaises(errors.SessionEnded, self.stage.begin, session)
        self.stage.finish(request)
        self.assertEqual(self.stage.end_of(session), (EndReason.TERMINATED, None))
        self.assertEqual(self.stage.session_of(self.use()), "sd-2")

    def test_a_grace_bounds_what_is_in_flight(self) -> None:
        session = self.stage.session_of(self.use())
        assert session is not None
        self.stage.begin(session)
        self.stage.release("notebook", grace=3.0)
        self.stage.wait(3.0)
        self.assertEqual(self.stage.end_of(session), (EndReason.TERMINATED, None))

    def test_a_name_that_nobody_knows_cannot_be_released(self) -> None:
        self.assertRaises(errors.UnknownName, self.stage.release, "notebook")
        self.use()
        self.stage.release("notebook")
        self.assertRaises(errors.UnknownName, self.stage.release, "notebook")

    def test_a_start_under_way_is_newer_than_a_release(self) -> None:
        stage = Stage(idle_timeout=20.0)
        waiter = stage.start(name="notebook")
        self.assertRaises(errors.UnknownName, stage.release, "notebook")
        stage.ready()
        self.assertEqual(stage.session_of(stage.start(name="notebook")), stage.session_of(waiter))

    def test_a_session_that_nobody_was_given_leaves_no_name(self) -> None:
        session = self.stage.session_of(self.use())
        assert session is not None
        self.stage.fleet.disown(SessionId(session))
        self.stage.told += self.stage.fleet.take()
        self.stage.terminate(session)
        self.assertEqual(self.stage.session_of(self.use()), "sd-2")
        self.assertEqual(Memory.of(self.stage.records()), memory_of(self.stage.fleet))


class RestartTests(NamedTestCase):
    """Rule 16 across a restart of the daemon: it forgets no name, live or expired."""

    def after(self) -> Stage:
        self.assertEqual(Memory.of(self.stage.records()), memory_of(self.stage.fleet))
        return Stage(after=self.stage, idle_timeout=20.0, max_concurrency=2)

    def test_rule_16_a_live_name_finds_its_session_and_an_expired_one_its_reason(self) -> None:
        self.use("gone")
        self.stage.wait(20.0)
        live = self.stage.session_of(self.use("live"))
        after = self.after()
        self.assertEqual(after.session_of(after.start(name="live")), live)
        error = after.refusal_of(after.start(name="gone"))
        assert isinstance(error, errors.SessionExpired)
        self.assertEqual(error.reason, "idle_timeout")

    def test_a_released_name_stays_released(self) -> None:
        self.use()
        self.stage.release("notebook")
        after = self.after()
        self.assertEqual(after.session_of(after.start(name="notebook")), "sd-1001")

    def test_what_expires_after_the_restart_is_remembered_too(self) -> None:
        self.use()
        after = self.after()
        after.wait(20.0)
        error = after.refusal_of(after.start(name="notebook"))
        assert isinstance(error, errors.SessionExpired)
        self.assertEqual(error.reason, "idle_timeout")

    def test_a_log_that_ends_between_a_session_and_its_name_loses_nothing(self) -> None:
        self.use()
        self.stage.wait(20.0)
        records = self.stage.records()
        at = next(place for place, record in enumerate(records) if isinstance(record, EndSession))
        self.stage.told = [*self.stage.of(GrantStart), *records[: at + 1]]
        after = Stage(after=self.stage, idle_timeout=20.0)
        error = after.refusal_of(after.start(name="notebook"))
        assert isinstance(error, errors.SessionExpired)
        self.assertEqual(error.reason, "idle_timeout")
        self.assertEqual(len(after.of(NameExpired)), 1)

    def test_after_a_reboot_of_the_machine_every_name_is_expired(self) -> None:
        self.use()
        memory = buried(memory_of(self.stage.fleet), 5000.0)
        self.assertEqual(memory.names.live, {})
        error = self.assertRaises(errors.SessionExpired, memory.names.find, "ann", "notebook")
        self.assertEqual((error.reason, error.detail), ("container_lost", "killed"))


class SlowMailTests(SynchronousTestCase):
    """A session may end before admission hears of its beginning, or of its draining."""

    def test_a_draining_that_is_heard_after_the_end_leaves_nothing(self) -> None:
        names = Names()
        here = ContainerId("ct-1")
        names.add(NameBound("ann", "notebook", SessionId("sd-1"), here, 20.0))
        expired = names.leave(SessionId("sd-1"), EndReason.TERMINATED, None)
        assert expired is not None
        names.add(expired)
        self.assertEqual((names.live, names._sessions, names._drains), ({}, {}, {}))

    def test_a_session_that_ended_before_its_start_was_answered_leaves_its_name_free(self) -> None:
        stage = Stage(prompt=False, idle_timeout=20.0, min_containers=1)
        stage.ready()
        stage.start(name="notebook")
        stage.told += stage.fleet.deliver(stage.now, 0)  # the ledger takes it, its answer is under way
        stage.wait(20.0)
        while stage.fleet.mail:
            stage.told += stage.fleet.deliver(stage.now, 0)
        self.assertEqual((stage.fleet.names.live, stage.fleet.names.expired), ({}, {}))
        stage.step(TimePassed())

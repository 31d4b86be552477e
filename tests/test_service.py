"""One Server at work, with a clock that a test turns and containers that it plays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.containers.docker.faults import connecting, no_image
from sticky.containers.memory import MemoryBackend, MemoryContainer
from sticky.core.container import PROVEN_AFTER
from sticky.core.effects import EndSession
from sticky.core.fleet import Fleet, Ids
from sticky.core.records import ContainerCreated, ContainerMoved, SessionCreated
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, Policy, ServerName, SessionId
from sticky.isticky import NO_SESSION, ContainerSpec, Credentials, ILease, ILeaseHolder, SessionStatus, StartRequest
from sticky.journal.service import Found
from sticky.journal.store import Entry, Placed, Unplaced
from sticky.lease import Lease
from sticky.minting import Minting
from sticky.service import ServerService
from tests.fakes.routing import at_once

WALL = 1_800_000_000.0
NAME = ServerName("echo")
NO_ENGINE = connecting("/run/secret.sock", 2, "")


@implementer(ILeaseHolder)
@attrs.define(eq=False)
class Holder:
    """A lease holder that notes what it is told, and may do something about it."""

    told: list[tuple[EndReason, str | None]] = attrs.field(factory=list)

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        self.told.append((reason, detail))


class SlowJournal:
    """A journal that is as fast as a test wants: at once, unless `slow`; then `commit` or `fail` decides."""

    def __init__(self) -> None:
        self.works = True
        self.slow = False
        self.written: list[Entry] = []
        self.waiting: list[Deferred[None]] = []

    def write(self, entry: Entry) -> None:
        self.written.append(entry)

    def settled(self) -> Deferred[None]:
        if not self.slow:
            return succeed(None)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def commit(self) -> None:
        while self.waiting:
            self.waiting.pop(0).callback(None)

    def fail(self) -> None:
        while self.waiting:
            self.waiting.pop(0).errback(errors.StorageFailed(retry_after=1.0))


CAUSES = ("scaled_down", "asked", "daemon_stops")


class ServiceCase(SynchronousTestCase):
    """Builds a Server; containers become ready when `play` says so."""

    def build(self, **policy: object) -> None:
        self.clock = Clock()
        self.backend = MemoryBackend(self.clock)
        numbers = iter(range(1, 100_000))
        ids = Ids(
            lambda: SessionId(f"sd-{next(numbers):05}"),
            lambda: ContainerId(f"ct-{next(numbers):05}"),
            lambda: 0.5,
        )
        key = SigningKey("k1", bytes(32))
        self.verifier = Verifier({key.key_id: key.public})
        self.signing: Callable[[Claims], str] = key.sign
        self.defining: Callable[[ContainerId, DeploymentId], ContainerSpec] = self.spec
        fleet = Fleet(Policy(**policy), DeploymentId("dp-1"), ids)  # type: ignore[arg-type]
        self.journal = SlowJournal()
        self.called: list[tuple[ContainerId, str, str]] = []
        self.service = ServerService(
            NAME,
            fleet,
            self.backend,
            lambda container, deployment: self.defining(container, deployment),
            Minting(lambda claims: self.signing(claims), lambda: WALL + self.clock.seconds()),
            self.clock,
            self.journal,
            lambda container, cause, more: self.called.append((container, cause, more)),
        )
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def spec(self, container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
        folder = Path("/nonexistent")
        return ContainerSpec(
            container=container,
            server=NAME,
            deployment=deployment,
            app="echo",
            command=("echo",),
            directory=folder,
            log=folder / "log",
            scratch=folder,
        )

    def start(
        self, caller: str = "dev", key: str | None = None, idle_timeout: float | None = None
    ) -> Deferred[Credentials]:
        return self.service.start(StartRequest(NAME, Caller(caller), caller, idle_timeout, key))

    def ready(self) -> MemoryContainer:
        """The newest container that is starting becomes ready."""
        container = next(c for c in reversed(self.backend.spawned) if c.state.value == "starting")
        container.make_ready()
        return container

    def session(self, **wanted: object) -> Claims:
        """A session on a ready container, as its token's claims."""
        answer = self.start(**wanted)  # type: ignore[arg-type]
        if self.backend.containers and not answer.called:
            self.ready()
        return self.claims(self.successResultOf(answer))

    def claims(self, credentials: Credentials) -> Claims:
        return self.verifier.verify(credentials.token.encode(), WALL)

    def listed(self) -> list[SessionStatus]:
        return list(self.service.sessions("dev", None, 1000))


class StartTests(ServiceCase):
    def test_a_start_on_an_empty_server_spawns_one_container_and_is_answered_when_it_is_ready(self) -> None:
        self.build()
        answer = self.start()
        self.assertNoResult(answer)
        self.assertEqual(len(self.backend.spawned), 1)
        container = self.ready()
        credentials = self.successResultOf(answer)
        claims = self.claims(credentials)
        self.assertEqual((claims.session, claims.container), (credentials.session, container.id))
        self.assertEqual((claims.server, claims.deployment), ("echo", "dp-1"))
        self.assertEqual((credentials.idle_timeout, credentials.created), (600.0, True))

    def test_the_token_expires_with_the_age_limit_of_its_container(self) -> None:
        self.build(container_max_age=5000.0)
        first = self.start()
        self.clock.advance(20)
        self.ready()
        self.assertEqual(self.claims(self.successResultOf(first)).expires_at, WALL + 5000)

    def test_two_hundred_at_once_get_one_hundred_places_in_two_containers(self) -> None:
        self.build(max_containers=2, max_concurrency=50)
        answers = [self.start(f"caller-{number}") for number in range(200)]
        for container in list(self.backend.spawned):
            container.make_ready()
        granted = [answer for answer in answers if answer.called]
        self.assertEqual(len(granted), 100)
        self.assertEqual(answers[:100], granted, "first come, first served")
        self.assertEqual([len(ledger) for ledger in self.service.fleet.ledgers], [50, 50])
        self.clock.pump([59.0, 0.75])
        self.assertEqual([answer for answer in answers[100:] if answer.called], [])
        self.clock.advance(0.25)
        for answer in answers[100:]:
            refusal = self.failureResultOf(answer, errors.QueueTimedOut).value
            self.assertEqual((refusal.status, refusal.code), (503, "queue_timeout"))
        self.assertEqual(len(self.backend.spawned), 2)

    def test_a_client_that_leaves_the_queue_frees_its_place(self) -> None:
        self.build(max_containers=1, max_concurrency=1, max_queue=1)
        self.session()
        waiting = self.start()
        self.failureResultOf(self.start(), errors.QueueFull)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertIsNone(self.service.position(waiting))
        third = self.start()
        self.assertNoResult(third)
        self.service.terminate(self.claims_of_only_session(), None)
        self.successResultOf(third)

    def claims_of_only_session(self) -> Claims:
        only = self.listed()[0]
        return Claims(only.session, NAME, DeploymentId("dp-1"), only.container, 0, 0)

    def test_a_waiting_client_can_be_told_its_place(self) -> None:
        self.build()
        first, second = self.start(), self.start()
        self.clock.advance(7)
        place = self.service.position(second)
        assert place is not None
        self.assertEqual((place.position, place.waited, place.deadline_in), (2, 7.0, 53.0))
        self.ready()
        self.assertIsNone(self.service.position(first))

    def test_containers_that_fail_refuse_waiting_starts_and_are_tried_again_later(self) -> None:
        self.build()
        self.backend.refusal = "command not found: nothing"
        answer = self.start()
        self.clock.pump([0.0, 1.0, 0.0, 2.0, 0.0])
        self.assertEqual(len(self.backend.spawned), 3)
        refusal = self.failureResultOf(answer, errors.ContainersFailing).value
        self.assertEqual(refusal.retry_after, 4.0)
        self.backend.refusal = None
        self.clock.advance(4)
        self.ready()
        self.session()

    def test_one_idempotency_key_gives_one_session(self) -> None:
        self.build()
        first, again = self.start(key="k" * 20), self.start(key="k" * 20)
        self.ready()
        one, two = self.successResultOf(first), self.successResultOf(again)
        three = self.successResultOf(self.start(key="k" * 20))
        self.assertEqual(one.session, two.session)
        self.assertEqual((three.session, three.created), (one.session, False))
        self.failureResultOf(self.start(key="k" * 20, idle_timeout=5.0), errors.KeyReused)

    def test_what_a_container_is_about_to_run_on_is_noted_with_the_intent_and_forgotten_with_its_end(self) -> None:
        self.build()
        self.journal.slow = True
        answer = self.start()
        answer.addErrback(lambda _: None)  # nobody is served in this test
        self.assertEqual(self.backend.spawned, [])
        kinds = [type(entry) for _, entry in self.journal.written]
        self.assertLess(kinds.index(ContainerCreated), kinds.index(Placed))
        self.journal.fail()
        self.assertEqual([type(entry) for _, entry in self.journal.written].count(Unplaced), 1)
        self.start().addErrback(lambda _: None)
        self.clock.advance(2)
        self.journal.commit()
        (container,) = self.backend.spawned
        container.make_exit()
        placed = [entry.container for _, entry in self.journal.written if isinstance(entry, Placed)]
        gone = [entry.container for _, entry in self.journal.written if isinstance(entry, Unplaced)]
        self.assertEqual(sorted(set(placed)), sorted(gone))
        self.assertEqual(self.service.containers.places(), {})

    def test_who_waits_for_a_container_that_cannot_be_noted_down_is_refused_at_once(self) -> None:
        self.build()
        self.journal.slow = True
        answer = self.start()
        self.assertNoResult(answer)
        self.journal.fail()
        self.failureResultOf(answer, errors.StorageFailed)
        self.assertEqual(list(self.service.fleet.starts.waiting()), [])

    def test_min_containers_are_there_before_anybody_asks(self) -> None:
        self.build(min_containers=2)
        self.assertEqual(len(self.backend.spawned), 2)


class LeaseTests(ServiceCase):
    def begin(self, claims: Claims) -> tuple[Lease, Holder]:
        holder = Holder()
        return at_once(self.service.begin(claims, holder)), holder

    def test_a_lease_says_where_the_session_lives_and_stops_its_idle_clock(self) -> None:
        self.build()
        claims = self.session()
        lease, _ = self.begin(claims)
        self.assertEqual(lease.address, self.backend.spawned[0].address)
        self.clock.advance(5000)
        status = self.service.status(claims)
        self.assertEqual((status.in_flight, status.idle_left), (1, None))
        lease.release()
        lease.release()
        status = self.service.status(claims)
        self.assertEqual((status.in_flight, status.idle_left), (0, 600.0))
        self.clock.advance(600)
        refusal = self.assertRaises(errors.SessionEnded, self.begin, claims)
        self.assertEqual(refusal.code, "idle_timeout")

    def test_requests_write_nothing_into_the_journal(self) -> None:
        self.build()
        claims = self.session()
        before = len(self.journal.written)
        for _ in range(50):
            lease, _ = self.begin(claims)
            self.clock.advance(1)
            lease.release()
            self.service.extend(claims)
        self.assertEqual(self.journal.written[before:], [])

    def test_a_container_that_dies_takes_its_sessions_along_and_their_holders_hear_why(self) -> None:
        self.build(max_concurrency=1)
        here, there = self.session(), self.session()
        lease, holder = self.begin(here)
        other, bystander = self.begin(there)
        self.backend.spawned[0].make_exit("killed", None, 9)
        self.assertEqual(holder.told, [(EndReason.CONTAINER_LOST, "killed")])
        self.assertEqual(bystander.told, [])
        lease.release()
        refusal = self.assertRaises(errors.SessionEnded, self.begin, here)
        self.assertEqual((refusal.code, refusal.detail), ("container_lost", "killed"))
        other.release()
        self.begin(there)

    def test_terminate_refuses_what_is_new_and_lets_what_is_in_flight_complete(self) -> None:
        self.build()
        claims = self.session()
        lease, holder = self.begin(claims)
        self.service.terminate(claims, None)
        self.service.terminate(claims, None)
        refusal = self.assertRaises(errors.SessionEnded, self.begin, claims)
        self.assertEqual(refusal.code, "terminated")
        self.assertRaises(errors.SessionEnded, self.service.extend, claims)
        self.assertEqual(self.service.status(claims).state, "draining")
        lease.release()
        self.assertRaises(errors.UnknownSession, self.service.terminate, claims, None)
        self.assertEqual(holder.told, [])

    def test_a_grace_bounds_what_is_in_flight(self) -> None:
        self.build()
        claims = self.session()
        _, holder = self.begin(claims)
        self.service.terminate(claims, 5.0)
        self.clock.advance(4.75)
        self.assertEqual(holder.told, [])
        self.clock.advance(0.25)
        self.assertEqual(holder.told, [(EndReason.TERMINATED, None)])

    def test_a_lease_that_was_transferred_tells_its_new_holder(self) -> None:
        self.build()
        claims = self.session()
        lease, first = self.begin(claims)
        second = Holder()
        lease.transfer(second)
        self.service.terminate(claims, 0.0)
        self.assertEqual((first.told, second.told), ([], [(EndReason.TERMINATED, None)]))

    def test_a_holder_may_ask_for_the_next_session_while_it_is_told_of_the_end(self) -> None:
        self.build(max_containers=1, max_concurrency=1)
        claims = self.session()
        asked: list[Deferred[Credentials]] = []

        @implementer(ILeaseHolder)
        class Eager(Holder):
            def session_ended(inner, reason: EndReason, detail: str | None) -> None:
                asked.append(self.start())

        self.service.begin(claims, Eager())
        self.service.terminate(claims, 0.0)
        self.successResultOf(asked[0])

    def test_an_unknown_container_or_session_is_named_as_lost_or_ended(self) -> None:
        self.build()
        claims = self.session()
        elsewhere = attrs.evolve(claims, container=ContainerId("ct-gone"), session=SessionId("sd-gone"))
        self.assertEqual(self.assertRaises(errors.SessionEnded, self.begin, elsewhere).code, "container_lost")
        nobody = attrs.evolve(claims, session=SessionId("sd-gone"))
        self.assertEqual(self.assertRaises(errors.SessionEnded, self.begin, nobody).code, "ended")

    def test_extend_restarts_the_idle_clock(self) -> None:
        self.build()
        claims = self.session()
        self.clock.advance(599)
        self.assertEqual(self.service.extend(claims).idle_left, 600.0)
        self.clock.advance(599)
        self.begin(claims)


class ScaleTests(ServiceCase):
    def test_an_unused_container_goes_after_the_scaledown_window_and_one_with_a_session_stays(self) -> None:
        self.build(max_concurrency=1, scaledown_window=60.0)
        first, second = self.session(), self.session()
        self.service.terminate(first, None)
        self.clock.advance(59.75)
        self.assertEqual(self.backend.spawned[0].signals, [])
        self.clock.advance(0.25)
        self.assertEqual([container.signals for container in self.backend.spawned], [["TERM"], []])
        self.clock.advance(0)
        self.assertEqual([status.session for status in self.listed()], [second.session])

    def test_one_that_ignores_sigterm_is_killed_after_thirty_seconds(self) -> None:
        self.build(scaledown_window=2.0)
        claims = self.session()
        self.backend.spawned[0].ignores_term = True
        self.service.terminate(claims, None)
        self.clock.advance(2)
        self.clock.advance(29.75)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.clock.advance(0.25)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM", "KILL"])

    def test_one_that_never_opens_its_port_is_stopped_and_another_is_tried(self) -> None:
        self.build(startup_timeout=30.0, queue_timeout=300.0)
        answer = self.start()
        self.clock.advance(30)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        lacks = "nothing of it listens on port 20000"
        self.assertEqual(self.called, [(self.backend.spawned[0].id, "startup_timeout", lacks)])
        self.clock.advance(1)
        self.assertEqual(len(self.backend.spawned), 2)
        self.ready()
        self.successResultOf(answer)
        self.assertEqual(len(self.called), 1)

    def test_whoever_waits_meanwhile_is_told_why_nothing_starts(self) -> None:
        self.build(startup_timeout=30.0, queue_timeout=40.0)
        answer = self.start()
        self.clock.pump([30, 1, 9])
        self.assertEqual(
            self.failureResultOf(answer, errors.QueueTimedOut).value.message,
            "No container had room for the session in time (containers fail to start: startup_timeout: "
            "nothing of it listens on port 20000).",
        )

    def test_whoever_is_refused_for_it_is_told_what_the_last_one_lacked(self) -> None:
        self.build(startup_timeout=30.0, queue_timeout=300.0)
        answer = self.start()
        self.clock.pump([30, 1, 30, 2, 30])
        expected = (
            "Containers of this Server fail to start (startup_timeout: nothing of it listens on port 20002). "
            "The next attempt is in 4 seconds."
        )
        refusals = [self.failureResultOf(each, errors.ContainersFailing).value for each in (answer, self.start())]
        self.assertEqual([refusal.message for refusal in refusals], [expected] * 2)
        self.assertEqual([refusal.cause for refusal in refusals], ["startup_timeout"] * 2)
        self.assertTrue(all(refusal.retry_after >= 1 for refusal in refusals))

    def test_whoever_is_refused_is_told_how_the_last_one_ended(self) -> None:
        for end, said in (
            ({"status": 3}, "exited with status 3"),
            ({"detail": "killed", "signal": 9}, "killed by SIGKILL"),
            ({"detail": "failed", "status": None}, "failed: sticky status has the reason"),
            (
                {"detail": "failed", "status": None, "message": no_image("registry.internal/game:3")},
                "failed: its image is not on the container engine; sticky status has the reason",
            ),
            (
                {"detail": "failed", "status": None, "message": f"cannot start a container: {NO_ENGINE}"},
                "failed: the container engine cannot be reached; sticky status has the reason",
            ),
        ):
            self.build(queue_timeout=300.0)
            answer = self.start()
            for _ in range(3):
                self.backend.spawned[-1].make_exit(**end)
                self.clock.pump([0.5] * 20)
            refusal = self.failureResultOf(answer, errors.ContainersFailing).value
            self.assertEqual(
                refusal.message, f"Containers of this Server fail to start ({said}). The next attempt is in 4 seconds."
            )
            self.assertEqual(str(refusal), refusal.message)

    def test_whoever_is_refused_while_it_is_tried_again_is_told_that(self) -> None:
        self.build(queue_timeout=300.0)
        first = self.start()
        for _ in range(3):
            self.backend.spawned[-1].make_exit(status=3)
            self.clock.pump([0.5] * 20)
        self.failureResultOf(first, errors.ContainersFailing)
        self.assertEqual(len(self.backend.spawned), 4)
        self.assertEqual(
            self.failureResultOf(self.start(), errors.ContainersFailing).value.message,
            "Containers of this Server fail to start (exited with status 3). "
            "The next attempt is under way or begins within a second.",
        )

    def test_so_is_whoever_asks_a_plain_server(self) -> None:
        self.build(startup_timeout=30.0, sessioned=False, min_containers=1)
        self.clock.pump([30, 1, 30, 2, 30])
        refusal = self.assertRaises(errors.ContainersFailing, self.service.visit, b"", Holder())
        self.assertIn("(startup_timeout: nothing of it listens on port 20002)", refusal.message)

    def test_a_backend_that_cannot_say_what_is_lacking_holds_nothing_up(self) -> None:
        self.build(startup_timeout=30.0, queue_timeout=300.0)

        def broken(container: MemoryContainer) -> str:
            raise KeyError("a fault of this backend")

        self.patch(MemoryContainer, "waits_for", broken)
        answer = self.start()
        self.clock.advance(30)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual(self.called[0][1:], ("startup_timeout", ""))
        self.clock.advance(1)
        self.ready()
        self.successResultOf(answer)

    def test_why_a_container_has_to_go_is_told_before_it_is_asked_to(self) -> None:
        self.build(scaledown_window=2.0)
        self.service.terminate(self.session(), None)
        self.clock.advance(2)
        self.service.stop_container(self.session().container)
        self.session()
        self.service.drain()
        causes = [(self.backend.spawned[number].id, cause, "") for number, cause in enumerate(CAUSES)]
        self.assertEqual(self.called, causes)

    def test_one_that_does_not_run_is_not_called_anything(self) -> None:
        self.build()
        self.journal.slow = True
        waiting = self.start()
        self.service.drain()
        self.failureResultOf(waiting, errors.ShuttingDown)
        self.assertEqual(self.called, [])

    def test_one_that_drains_when_it_is_found_unhealthy_is_not_called_so(self) -> None:
        self.build(exit_grace_period=10.0)
        claims = self.session()
        self.service.begin(claims, Holder())
        self.service.stop_container(claims.container)
        self.service.unhealthy(claims.container)
        self.assertEqual(self.called, [])
        self.clock.advance(10)
        self.assertEqual(self.called, [(claims.container, "asked", "")])

    def test_all_are_killed_because_the_daemon_stops(self) -> None:
        self.build()
        claims = self.session()
        self.service.kill()
        self.assertEqual(self.called, [(claims.container, "daemon_stops", "")])


class StopTests(ServiceCase):
    def test_an_orderly_stop_ends_sessions_and_containers_and_refuses_who_waits(self) -> None:
        self.build(max_containers=1, max_concurrency=1)
        claims = self.session()
        holder = Holder()
        self.service.begin(claims, holder)
        waiting = self.start()
        gone = self.service.drain()
        self.failureResultOf(waiting, errors.ShuttingDown)
        self.failureResultOf(self.start(), errors.ShuttingDown)
        self.assertEqual(holder.told, [(EndReason.SERVER_STOPPED, None)])
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.assertNoResult(gone)
        self.clock.advance(0)
        self.successResultOf(gone)

    def test_in_flight_work_has_the_exit_grace_period(self) -> None:
        self.build(exit_grace_period=10.0)
        claims = self.session()
        holder = Holder()
        self.service.begin(claims, holder)
        self.service.drain()
        self.clock.advance(9.75)
        self.assertEqual((holder.told, self.backend.spawned[0].signals), ([], []))
        self.clock.advance(0.25)
        self.assertEqual(holder.told, [(EndReason.SERVER_STOPPED, None)])
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.clock.advance(0)

    def test_kill_ends_every_container_at_once(self) -> None:
        self.build()
        self.session()
        self.backend.spawned[0].ignores_term = True
        gone = self.service.drain()
        self.service.kill()
        self.clock.advance(0)
        self.successResultOf(gone)

    def test_nothing_is_scheduled_after_a_stop(self) -> None:
        self.build(scaledown_window=2.0)
        self.session()
        self.service.drain()
        self.clock.advance(0)
        self.service.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AgeTests(ServiceCase):
    def test_a_container_at_its_age_limit_ends_its_sessions_and_another_takes_the_next(self) -> None:
        self.build(container_max_age=1000.0, idle_timeout=100.0)
        claims = self.session()
        holder = Holder()
        self.service.begin(claims, holder)
        self.clock.advance(1000)
        self.assertEqual(holder.told, [(EndReason.CONTAINER_MAX_AGE, None)])
        refusal = self.assertRaises(errors.SessionEnded, self.service.begin, claims, Holder())
        self.assertEqual(refusal.code, "container_max_age")
        self.clock.advance(0)
        other = self.session()
        self.assertNotEqual(other.container, claims.container)


class DurabilityTests(ServiceCase):
    def test_a_start_is_answered_after_its_commit_and_not_before(self) -> None:
        self.build()
        self.session()
        self.journal.slow = True
        answer = self.start()
        self.assertNoResult(answer)
        self.assertIn(SessionCreated, {type(entry[1]) for entry in self.journal.written})
        self.journal.commit()
        self.successResultOf(answer)

    def test_what_is_taken_up_at_rest_is_carried_out_when_it_wakes(self) -> None:
        """A daemon that is to replace another one learns what there is, and touches nothing before it is in charge."""
        self.build(max_concurrency=1, target_concurrency=1)
        stopping, dying = self.session(), self.session()
        stops, dies = self.backend.spawned
        stops.ignores_term = True
        self.service.stop_container(stopping.container)
        self.assertEqual(stops.signals, ["TERM"])
        memory, places = self.service.memory()
        self.backend.crash()
        dies.kill()
        self.clock.advance(0)
        machine = self.backend.machine
        self.build(max_concurrency=1, target_concurrency=1)
        self.backend.machine = machine
        self.service.rest()
        self.journal.written.clear()
        self.service.recall(Found(memory, places, True))
        self.clock.advance(0)
        self.assertEqual(self.journal.written, [(NAME, Unplaced(dying.container))])  # that was seen: it is no more
        self.assertEqual((stops.signals, self.clock.getDelayedCalls()), (["TERM"], []))
        self.service.wake()
        self.assertEqual(stops.signals, ["TERM", "TERM"])
        ended = [record for _, record in self.journal.written if isinstance(record, EndSession)]
        self.assertEqual([(end.session, end.reason) for end in ended], [(dying.session, EndReason.CONTAINER_LOST)])

    def test_a_container_is_spawned_after_its_intent_is_durable(self) -> None:
        self.build()
        self.journal.slow = True
        answer = self.start()
        self.assertEqual(self.backend.spawned, [])
        self.assertIn(ContainerCreated, {type(entry[1]) for entry in self.journal.written})
        self.journal.commit()
        self.assertEqual(len(self.backend.spawned), 1)
        self.ready()
        self.journal.commit()
        self.successResultOf(answer)

    def test_a_session_that_ended_before_its_commit_is_not_handed_out(self) -> None:
        self.build(exit_grace_period=10.0)
        kept = self.session()
        self.journal.slow = True
        answer = self.start()
        self.service.stop_container(kept.container)
        self.journal.commit()
        self.failureResultOf(answer, errors.Unavailable)

    def test_a_start_that_cannot_be_made_durable_is_refused_and_its_place_is_free_again(self) -> None:
        self.build(max_containers=1, max_concurrency=2)
        self.session()
        self.journal.slow = True
        answer = self.start()
        self.journal.fail()
        self.failureResultOf(answer, errors.StorageFailed)
        self.assertEqual(len(self.listed()), 1)

    def test_what_has_ended_is_said_to_have_when_that_is_durable(self) -> None:
        """Whoever tries a terminate again that was not kept must not be told that there is nothing to end: a crash brings it back."""
        self.build()
        claims = self.session()
        self.journal.slow = True
        first = self.service.terminate(claims, None)
        self.journal.fail()
        self.failureResultOf(first, errors.StorageFailed)
        for end, error in ((self.journal.fail, errors.StorageFailed), (self.journal.commit, errors.UnknownSession)):
            again = self.service.terminate(claims, None)
            self.assertNoResult(again)
            end()
            self.failureResultOf(again, error)

    def test_nothing_new_is_promised_while_the_journal_does_not_work(self) -> None:
        self.build()
        claims = self.session()
        self.journal.works = False
        self.failureResultOf(self.start(), errors.StorageFailed)
        self.failureResultOf(self.service.terminate(claims, None), errors.StorageFailed)
        at_once(self.service.begin(claims, Holder())).release()

    def test_a_container_that_is_asked_to_end_before_it_began_never_runs(self) -> None:
        self.build()
        self.journal.slow = True
        waiting = self.start()
        gone = self.service.drain()
        self.failureResultOf(waiting, errors.ShuttingDown)
        self.successResultOf(gone)
        self.journal.commit()
        self.assertEqual(self.backend.spawned, [])


class FaultTests(ServiceCase):
    def test_a_start_whose_token_cannot_be_made_is_answered_and_leaves_no_session(self) -> None:
        self.build()
        first = self.session()

        def broken(claims: Claims) -> str:
            raise ValueError("a fault of this signature")

        self.signing = broken
        refusal = self.failureResultOf(self.start(), errors.Refusal).value
        self.assertEqual((refusal.status, refusal.code), (500, "internal_error"))
        self.assertEqual([status.session for status in self.listed()], [first.session])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_a_definition_that_raises_is_a_failed_start_and_holds_nothing_up(self) -> None:
        self.build()

        def broken(container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
            raise LookupError("a fault of this definition")

        self.defining = broken
        waiting = self.start()
        self.clock.pump([0.0, 1.0, 2.0])
        self.failureResultOf(waiting, errors.ContainersFailing)
        self.successResultOf(self.service.drain())
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 3)

    def test_a_backend_that_raises_is_a_failed_start_and_holds_nothing_up(self) -> None:
        self.build()

        def broken(spec: ContainerSpec, listener: object) -> MemoryContainer:
            raise KeyError("a fault of this backend")

        self.patch(self.backend, "spawn", broken)
        waiting = self.start()
        self.clock.pump([0.0, 1.0, 2.0])
        self.failureResultOf(waiting, errors.ContainersFailing)
        self.successResultOf(self.service.drain())
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 3)

    def test_one_holder_that_raises_keeps_no_other_from_hearing_of_the_end(self) -> None:
        self.build()
        claims = self.session()

        @implementer(ILeaseHolder)
        class Broken(Holder):
            def session_ended(inner, reason: EndReason, detail: str | None) -> None:
                raise RuntimeError("a fault of this holder")

        holders = [Broken() if number % 5 == 0 else Holder() for number in range(20)]
        for holder in holders:
            self.service.begin(claims, holder)
        self.service.terminate(claims, 0.0)
        told = [holder.told for holder in holders if not isinstance(holder, Broken)]
        self.assertEqual(told, [[(EndReason.TERMINATED, None)]] * 16)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 4)


class OneContainerTests(ServiceCase):
    def test_one_that_is_stopped_tells_its_holders_and_is_asked_to_end(self) -> None:
        self.build()
        claims, holder = self.session(), Holder()
        self.service.begin(claims, holder)
        self.service.stop_container(claims.container)
        self.assertEqual(holder.told, [(EndReason.SERVER_STOPPED, None)])
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.clock.advance(1)
        self.service.stop_container(claims.container)  # gone: nothing

    def test_an_unhealthy_one_tells_its_holders_and_is_killed(self) -> None:
        self.build(min_containers=1)
        claims, holder = self.session(), Holder()
        self.service.begin(claims, holder)
        self.clock.advance(PROVEN_AFTER)
        self.service.unhealthy(claims.container)
        self.assertEqual(holder.told, [(EndReason.CONTAINER_LOST, "unhealthy")])
        self.assertEqual(self.called, [(claims.container, "unhealthy", "")])
        self.assertEqual(self.backend.spawned[0].signals, ["KILL"])
        self.assertEqual(len(self.backend.spawned), 2)
        self.clock.advance(1)
        self.service.unhealthy(claims.container)  # gone: nothing

    def test_other_limits_and_another_deployment(self) -> None:
        self.build(max_concurrency=1)
        first = self.session()
        self.service.change_policy(Policy(max_concurrency=2))
        self.assertEqual(self.session().container, first.container)
        self.service.deploy(DeploymentId("dp-2"), Policy(max_concurrency=1), recreate=False)
        second = self.session()
        self.assertEqual((second.deployment, first.deployment), ("dp-2", "dp-1"))
        at_once(self.service.begin(first, Holder())).release()


class PlainTests(ServiceCase):
    """A Server without sessions."""

    def plain(self, **policy: object) -> None:
        self.build(sessioned=False, **policy)
        self.assertRaises(errors.NoContainerReady, self.service.visit, b"", Holder())
        self.ready()

    def test_a_request_is_a_lease_on_a_container_and_nothing_of_it_is_written_down(self) -> None:
        self.plain()
        before = len(self.journal.written)
        lease = self.service.visit(b"", Holder())
        self.assertTrue(verifyObject(ILease, lease))
        self.assertEqual((lease.address, lease.session), (self.backend.spawned[0].address, NO_SESSION))
        self.clock.advance(5000)
        self.assertEqual(self.backend.spawned[0].signals, [])
        lease.release()
        lease.release()
        self.clock.advance(60)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        kinds = {type(entry) for _, entry in self.journal.written[before:]}
        self.assertEqual(kinds, {ContainerMoved, Unplaced})

    def test_more_requests_than_the_target_start_containers(self) -> None:
        self.plain(max_concurrency=4, target_concurrency=2)
        leases = [self.service.visit(b"", Holder()) for _ in range(3)]
        self.assertEqual(len(self.backend.spawned), 2)
        self.ready()
        self.assertEqual(self.service.visit(b"", Holder()).container, self.backend.spawned[1].id)
        for lease in leases:
            lease.release()

    def test_whoever_holds_a_request_on_a_container_that_dies_is_told_and_nobody_else(self) -> None:
        self.plain(max_concurrency=1)
        first, second = Holder(), Holder()
        lease = self.service.visit(b"", first)
        self.assertRaises(errors.ServerBusy, self.service.visit, b"", second)
        self.ready()
        other = self.service.visit(b"", second)
        heir = Holder()
        lease.transfer(heir)
        self.backend.spawned[0].make_exit("killed", None, 9)
        self.assertEqual((first.told, heir.told, second.told), ([], [(EndReason.CONTAINER_LOST, "killed")], []))
        lease.release()
        other.release()

    def test_one_that_does_not_count_keeps_no_container_and_is_told_of_its_end(self) -> None:
        self.plain(scaledown_window=10.0)
        holder = Holder()
        lease = self.service.visit(b"", holder)
        lease.suspend()
        lease.suspend()
        self.clock.advance(5)
        lease.resume()
        lease.resume()
        self.clock.advance(20)
        self.assertEqual(self.backend.spawned[0].signals, [])
        lease.suspend()
        self.clock.advance(10)
        self.assertEqual((self.backend.spawned[0].signals, len(holder.told)), (["TERM"], 1))
        lease.resume()
        lease.release()

    def test_one_that_is_over_while_it_does_not_count_takes_nobody_elses_place_away(self) -> None:
        self.plain(max_concurrency=2)
        kept = self.service.visit(b"", Holder())
        silent = self.service.visit(b"", Holder())
        silent.suspend()
        silent.release()
        (container,) = self.service.fleet.capacity.containers.values()
        self.assertEqual(container.requests, 1)
        kept.release()
        self.assertEqual(container.requests, 0)

    def test_a_stop_refuses_and_cuts(self) -> None:
        self.plain()
        holder = Holder()
        self.service.visit(b"", holder)
        gone = self.service.drain()
        self.assertEqual(holder.told, [(EndReason.SERVER_STOPPED, None)])
        self.assertRaises(errors.ShuttingDown, self.service.visit, b"", holder)
        self.clock.advance(1)
        self.successResultOf(gone)

    def test_a_container_whose_address_is_not_known_takes_nothing(self) -> None:
        self.plain()
        self.service.containers.addresses.clear()
        self.assertRaises(errors.ContainerUnavailable, self.service.visit, b"", Holder())
        self.assertEqual([box.requests for box in self.service.fleet.capacity.containers.values()], [0])

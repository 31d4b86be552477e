"""A session's status as Server-Sent Events: the warning before its end, the end, and that looking keeps nothing alive."""

from __future__ import annotations

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.control.events import INTERVAL, QUIET
from sticky.control.status_events import TRANSITIONS, Phase, StatusEvents
from sticky.core.values import SessionId
from sticky.isticky import ControlRequest, IEventStream
from tests.control.calls import Room, call, token
from tests.control.test_queue_events import ACCEPT, Client
from tests.fakes.sessions import status

SESSION = SessionId("sd-1")


def asking(**more: object) -> ControlRequest:
    return call(b"GET", b"sessions/status", ACCEPT, session_token=token(), **more)


class Watching(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()
        self.room.sessions.add(status())

    def watch(self, **more: object) -> Client:
        stream = self.room.ask(asking(**more))
        assert isinstance(stream, StatusEvents)
        self.assertTrue(verifyObject(IEventStream, stream))
        self.stream = stream
        return Client(stream)

    def left(self, idle: float | None, age: float = 86_000.0, timeout: float = 600.0, state: str = "active") -> None:
        known = self.room.sessions.alive[SESSION]
        changed = attrs.evolve(known, idle_left=idle, age_left=age, idle_timeout=timeout, state=state)
        self.room.sessions.add(changed)
        self.room.clock.advance(INTERVAL)

    def test_the_status_is_told_at_once_and_when_the_state_changes(self) -> None:
        client = self.watch()
        self.assertEqual([(name, told["idle_left"]) for name, told in client.events()], [("status", 599.5)])
        self.left(598.5)
        self.assertEqual(len(client.written), 1)
        self.left(None, state="draining")
        self.assertEqual([told["state"] for _, told in client.events()], ["active", "draining"])

    def test_a_warning_that_is_due_between_two_looks_is_not_missed(self) -> None:
        client = self.watch()
        self.left(1.0, timeout=3.0)
        self.assertEqual([name for name, _ in client.events()], ["status"])
        known = self.room.sessions.alive[SESSION]
        self.room.sessions.add(attrs.evolve(known, idle_left=0.75))
        self.room.clock.advance(0.25)
        name, told = client.events()[-1]
        self.assertEqual((name, told["ends_in"]), ("warning", 0.75))

    def test_an_end_by_the_idle_clock_is_warned_of_once_each_time_it_comes_near(self) -> None:
        client = self.watch()
        self.left(60.5)
        self.assertEqual([name for name, _ in client.events()], ["status"])
        self.left(59.5)
        name, told = client.events()[-1]
        self.assertEqual((name, told["reason"], told["ends_in"]), ("warning", "idle_timeout", 59.5))
        self.left(58.5)
        self.left(600.0)  # it was used, or extended
        self.assertEqual(len(client.written), 2)
        self.left(59.0)
        self.assertEqual([name for name, _ in client.events()], ["status", "warning", "warning"])

    def test_an_end_that_was_put_off_between_two_looks_is_warned_of_again(self) -> None:
        client = self.watch()
        self.left(30.0)
        self.left(29.0)
        self.left(29.0)  # extended by a second, as a session with a short idle timeout is
        self.left(28.0)
        self.assertEqual([name for name, _ in client.events()], ["status", "warning", "warning"])

    def test_a_session_in_use_is_warned_of_its_age_alone(self) -> None:
        client = self.watch()
        self.left(None, age=61.0)
        self.left(None, age=60.0)
        name, told = client.events()[-1]
        self.assertEqual((name, told["reason"], told["ends_in"]), ("warning", "container_max_age", 60))
        self.left(20.0, age=59.0)  # not in use any more: that end comes first
        self.assertEqual(client.events()[-1][1]["reason"], "idle_timeout")
        self.assertEqual(len(client.written), 3)

    def test_a_short_idle_timeout_is_not_warned_of_from_its_beginning(self) -> None:
        self.left(20.0, timeout=20.0)
        client = self.watch()
        self.left(5.5, timeout=20.0)
        self.assertEqual([name for name, _ in client.events()], ["status"])
        self.left(5.0, timeout=20.0)
        self.assertEqual([name for name, _ in client.events()], ["status", "warning"])

    def test_the_client_may_say_how_early(self) -> None:
        client = self.watch(query=b"warning=300")
        self.left(300.0)
        self.assertEqual(client.events()[-1][1]["ends_in"], 300)
        for wrong in (b"0", b"-1", b"abc", b"3601", b"1.5", b"", "²".encode()):
            with self.subTest(wrong):
                self.assertRaises(errors.BadRequest, self.room.ask, asking(query=b"warning=" + wrong))

    def test_the_end_is_told_with_its_reason_and_is_the_last(self) -> None:
        client = self.watch()
        del self.room.sessions.alive[SESSION]
        self.room.sessions.ended[SESSION] = "idle_timeout"
        self.room.clock.advance(INTERVAL)
        name, told = client.events()[-1]
        self.assertEqual((name, told["error"], told["status"]), ("ended", "idle_timeout", 410))
        self.assertEqual((client.finished, self.room.clock.getDelayedCalls()), (1, []))
        self.stream.stop()  # the client left while that was on its way

    def test_a_fault_of_ours_ends_it_and_is_logged(self) -> None:
        client = self.watch()
        self.patch(self.room.sessions, "status", lambda _: 1 / 0)
        self.room.clock.advance(INTERVAL)
        self.assertEqual([name for name, _ in client.events()], ["status", "ended"])
        self.assertEqual(client.events()[-1][1]["error"], "internal_error")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_what_is_over_already_keeps_its_status(self) -> None:
        self.room.sessions.alive.clear()
        self.room.sessions.ended[SESSION] = "terminated"
        refused = self.assertRaises(errors.SessionEnded, self.room.ask, asking())
        self.assertEqual((refused.status, refused.code), (410, "terminated"))

    def test_looking_extends_nothing_and_a_client_that_leaves_stops_it(self) -> None:
        client = self.watch()
        self.room.clock.pump([INTERVAL] * int(QUIET + 1))
        self.assertEqual(client.written[1:], [b": still there\n\n"])
        self.assertEqual(self.room.sessions.extended, [])
        self.stream.stop()
        self.assertEqual((client.finished, self.room.clock.getDelayedCalls()), (0, []))


class Table(SynchronousTestCase):
    def test_what_is_not_listed_is_refused_and_changes_nothing(self) -> None:
        for phase in Phase:
            for event in ("start", "stop"):
                events = StatusEvents(lambda: status(), Clock(), None)
                if phase is not Phase.HELD:
                    events.start(lambda _: None, lambda: None)
                if phase is Phase.OVER:
                    events.stop()
                ask = events.stop if event == "stop" else lambda events=events: events.start(lambda _: None, None)
                if (phase, event) in TRANSITIONS:
                    ask()
                else:
                    self.assertRaises(errors.IllegalEvent, ask)
                    self.assertIs(events._phase, phase)

"""A start as Server-Sent Events: what is written, when, and what happens when the client leaves."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.control.events import INTERVAL, QUIET
from sticky.control.queue_events import TRANSITIONS, Phase, QueueEvents
from sticky.isticky import IEventStream, QueuePosition
from tests.control.calls import Room, start
from tests.fakes.sessions import credentials

ACCEPT = (b"Accept", b"text/event-stream")


def at(position: int) -> QueuePosition:
    return QueuePosition(position, 1.5, 58.5)


class Client:
    """Reads what an event stream writes."""

    def __init__(self, events: IEventStream) -> None:
        self.written: list[bytes] = []
        self.finished = 0
        events.start(self.written.append, self._finish)

    def _finish(self) -> None:
        self.finished += 1

    def events(self) -> list[tuple[str, Any]]:
        found = []
        for chunk in self.written:
            if chunk.startswith(b":"):
                continue
            first, second = chunk.decode().removesuffix("\n\n").split("\n")
            found.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
        return found


class Streaming(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room()

    def begin(self, position: int | None = 3) -> Client:
        events = self.room.events(start(ACCEPT))
        self.assertTrue(verifyObject(IEventStream, events))
        self.waiting = self.room.sessions.starts[-1]
        self.waiting.position = None if position is None else at(position)
        self.stream = events
        return Client(events)

    def move(self, position: int | None) -> None:
        self.waiting.position = None if position is None else at(position)

    def test_the_position_is_told_at_once_then_the_credentials_and_the_end(self) -> None:
        client = self.begin()
        queued = {"position": 3, "estimate": None, "waited": 1.5, "deadline_in": 58.5}
        self.assertEqual(client.events(), [("queued", queued)])
        self.waiting.grant(credentials("sd-7", "tok-7"))
        name, given = client.events()[-1]
        self.assertEqual((name, given["session_id"], given["token"]), ("started", "sd-7", "tok-7"))
        self.assertEqual((len(client.written), client.finished), (2, 1))
        self.assertEqual(self.room.clock.getDelayedCalls(), [])

    def test_a_change_is_told_once_and_at_most_once_a_second(self) -> None:
        client = self.begin(position=9)
        for position in (8, 7, 6, 5):
            self.room.clock.advance(INTERVAL / 4)
            self.move(position)
        self.assertEqual([data["position"] for _, data in client.events()], [9, 6])
        self.room.clock.advance(INTERVAL)
        for _ in range(5):
            self.room.clock.advance(INTERVAL)
        self.assertEqual([data["position"] for _, data in client.events()], [9, 6, 5])

    def test_the_estimate_follows_the_pace_of_the_queue(self) -> None:
        client = self.begin(position=10)
        self.room.clock.pump([1.0] * 3)
        self.move(8)
        self.room.clock.advance(1.0)
        # Two places in four seconds: sixteen for the eight that are left.
        self.assertEqual(client.events()[-1][1]["estimate"], 16)

    def test_a_quiet_queue_shows_that_the_answer_goes_on(self) -> None:
        client = self.begin()
        self.room.clock.pump([INTERVAL] * int(QUIET * 2 + 1))
        self.assertEqual(client.written[1:], [b": still queued\n\n"] * 2)
        self.assertEqual(len(client.events()), 1)

    def test_a_refusal_is_told_as_failed(self) -> None:
        client = self.begin()
        self.waiting.refuse(errors.QueueTimedOut(retry_after=4.2))
        name, told = client.events()[-1]
        self.assertEqual(name, "failed")
        self.assertEqual((told["error"], told["status"], told["retry_after"]), ("queue_timeout", 503, 5))
        self.assertEqual(client.finished, 1)
        self.assertEqual(self.room.clock.getDelayedCalls(), [])

    def test_a_fault_of_ours_is_told_as_failed_and_logged(self) -> None:
        client = self.begin()
        self.waiting.refuse(RuntimeError("tok-7 must not be told"))
        name, told = client.events()[-1]
        self.assertEqual((name, told["error"], told["status"]), ("failed", "internal_error", 500))
        self.assertNotIn(b"tok-7", b"".join(client.written))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_a_client_that_leaves_frees_its_place(self) -> None:
        client = self.begin()
        self.stream.stop()
        self.assertTrue(self.waiting.cancelled)
        self.stream.stop()
        self.assertEqual((len(client.written), client.finished), (1, 0))
        self.assertEqual(self.room.clock.getDelayedCalls(), [])

    def test_a_client_that_leaves_before_its_first_event_frees_its_place_too(self) -> None:
        events = self.room.events(start(ACCEPT))
        events.stop()
        self.assertTrue(self.room.sessions.starts[0].cancelled)
        self.assertRaises(errors.IllegalEvent, events.start, [].append, lambda: None)

    def test_a_start_granted_at_once_writes_only_started(self) -> None:
        self.room.sessions.at_once = credentials("sd-7")
        client = Client(self.room.events(start(ACCEPT)))
        self.assertEqual([name for name, _ in client.events()], ["started"])
        self.assertEqual(client.finished, 1)

    def test_a_start_decided_before_the_first_event_is_told_then(self) -> None:
        events = self.room.events(start(ACCEPT))
        self.room.sessions.starts[0].refuse(errors.ShuttingDown())
        client = Client(events)
        self.assertEqual([(name, told["error"]) for name, told in client.events()], [("failed", "shutting_down")])

    def test_a_start_refused_at_once_keeps_its_status(self) -> None:
        self.room.sessions.at_once = errors.QueueFull(retry_after=3.0)
        refused = self.failureResultOf(self.room.pending(start(ACCEPT)), errors.QueueFull).value
        self.assertEqual((refused.status, refused.retry_after), (503, 3.0))

    def test_a_wrong_request_for_events_keeps_its_status(self) -> None:
        wrong = start(ACCEPT, (b"x-modal-server-session-idle-timeout", b"0"))
        self.assertRaises(errors.BadIdleTimeout, self.room.ask, wrong)

    def test_no_position_writes_nothing_until_the_decision(self) -> None:
        client = self.begin(position=None)
        self.room.clock.pump([1.0] * 3)
        self.assertEqual(client.written, [])
        self.waiting.grant()
        self.assertEqual(client.finished, 1)


class Asking(SynchronousTestCase):
    def test_only_a_client_that_names_the_type_gets_events(self) -> None:
        room = Room()
        for accept in (
            b"text/event-stream",
            b"application/json;q=0.5, Text/Event-Stream;q=1",
            b"text/event-stream; q=0.1",
        ):
            room.events(start((b"accept", accept)))
        for accept in (
            b"*/*",
            b"text/*",
            b"application/json",
            b"text/event-stream;q=0",
            b"text/event-stream;q=0.0",
            b"",
        ):
            room.pending(start((b"accept", accept)))
        room.pending(start())


class Table(SynchronousTestCase):
    def test_what_is_not_listed_is_refused_and_changes_nothing(self) -> None:
        for phase in Phase:
            for event in ("start", "stop"):
                events = QueueEvents(Deferred(), lambda _: None, Clock())
                if phase is not Phase.HELD:
                    events.start(lambda _: None, lambda: None)
                if phase is Phase.OVER:
                    events.stop()
                ask = events.stop if event == "stop" else lambda events=events: events.start(None, None)
                if (phase, event) in TRANSITIONS:
                    ask()
                else:
                    self.assertRaises(errors.IllegalEvent, ask)
                    self.assertIs(events._phase, phase)

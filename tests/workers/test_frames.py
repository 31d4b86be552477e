"""Messages between processes: whole whatever the pieces they come in, answered once, and nonsense closes the link."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.workers import frames
from sticky.workers.fields import number_of
from sticky.workers.frames import LONGEST, Link, LinkLost, LinkState, TooLong
from tests.fakes.links import End, Wire


def frame(message: object) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


class LinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.wire = Wire(Clock())

    def test_a_question_is_answered_by_whoever_serves_it(self) -> None:
        self.wire.near.serves = {"double": lambda message: {"doubled": 2 * message["number"]}}
        answer = self.wire.far.ask("double", number=21)
        self.assertNoResult(answer)
        self.wire.run()
        self.assertEqual(self.successResultOf(answer)["doubled"], 42)

    def test_answers_come_when_they_are_known_in_any_order(self) -> None:
        waiting: list[Deferred[Any]] = [Deferred(), Deferred()]
        self.wire.near.serves = {"wait": lambda message: waiting[message["which"]]}
        first, second = (self.wire.far.ask("wait", which=which) for which in (0, 1))
        self.wire.run()
        waiting[1].callback({"said": "second"})
        self.wire.run()
        self.assertNoResult(first)
        self.assertEqual(self.successResultOf(second)["said"], "second")
        waiting[0].errback(errors.QueueFull(retry_after=3.0))
        self.wire.run()
        refusal = self.failureResultOf(first, errors.QueueFull).value
        self.assertEqual((refusal.code, refusal.retry_after), ("queue_full", 3.0))

    def test_what_comes_while_it_rests_waits(self) -> None:
        taken: list[int] = []
        near = self.wire.near
        near.serves = {"take": lambda message: taken.append(message["number"])}
        near.rest()
        near.dataReceived(frame({"do": "take", "number": 1}))  # though nobody reads: the reactor had it already
        near.dataReceived(frame({"do": "take", "number": 2})[:9])
        self.assertEqual(taken, [])
        near.wake()
        near.dataReceived(frame({"do": "take", "number": 2})[9:])
        self.assertEqual(taken, [1, 2])

    def test_a_rest_that_begins_with_a_message_keeps_the_next_waiting(self) -> None:
        taken: list[str] = []
        near = self.wire.near
        near.serves = {"rest": lambda message: near.rest(), "take": lambda message: taken.append("it")}
        near.dataReceived(frame({"do": "rest"}) + frame({"do": "take"}))
        self.assertEqual(taken, [])
        near.wake()
        self.assertEqual(taken, ["it"])

    def test_what_fails_inside_is_no_more_than_unavailable_outside(self) -> None:
        broken: Deferred[Any] = Deferred()
        self.wire.near.serves = {"break": lambda message: broken}
        answer = self.wire.far.ask("break")
        self.wire.run()
        broken.errback(ZeroDivisionError("inside"))
        self.wire.run()
        self.failureResultOf(answer, errors.Unavailable)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_a_question_that_fails_at_once_is_that_ones_fault_alone(self) -> None:
        for kind in (ZeroDivisionError, KeyError, TypeError, ValueError):

            def fails(message: Any, kind: type[Exception] = kind) -> Any:
                raise kind("inside")

            self.wire.near.serves = {"break": fails, "echo": lambda message: {"said": message["said"]}}
            broken, other = self.wire.far.ask("break"), self.wire.far.ask("echo", said="there")
            self.wire.run()
            self.failureResultOf(broken, errors.Unavailable)
            self.assertEqual(self.successResultOf(other)["said"], "there")
            (logged,) = self.flushLoggedErrors(kind)
            self.assertIn("in fails", logged.getTraceback())

    def test_a_tale_that_cannot_be_taken_in_closes_the_link(self) -> None:
        """Nobody can be told, and what the two think of each other differs from then on."""

        for kind in (ZeroDivisionError, KeyError):
            wire = Wire(Clock())

            def fails(message: Any, kind: type[Exception] = kind) -> Any:
                raise kind("inside")

            wire.near.serves = {"break": fails}
            wire.far.tell("break")
            wire.run()
            self.assertIs(wire.near.state, LinkState.CLOSED)
            (logged,) = self.flushLoggedErrors(kind)
            self.assertIn("in fails", logged.getTraceback())

    def test_an_answer_that_cannot_be_read_closes_the_link_and_whoever_asked_hears_so(self) -> None:
        for refusal in ({"code": "without_its_class"}, "no", None, {"kind": "New", "status": "high"}):
            wire = Wire(Clock())
            answer = wire.far.ask("anything")
            wire.far.dataReceived(frame({"re": 1, "refused": refusal}))
            wire.lose_if_closed()
            self.failureResultOf(answer, LinkLost)

    def test_a_question_that_a_version_has_not_got_is_refused_and_a_tale_passed_over(self) -> None:
        self.wire.far.tell("gossip")
        answer = self.wire.far.ask("gossip")
        self.wire.run()
        self.failureResultOf(answer, errors.NotFound)
        self.assertIs(self.wire.near.state, LinkState.OPEN)

    def test_a_lost_link_answers_nothing(self) -> None:
        lost: list[int] = []
        self.wire.far.lost = lambda: lost.append(1)
        before = self.wire.far.ask("anything")
        self.wire.lose()
        after = self.wire.far.ask("anything")
        self.wire.far.tell("anything")
        self.failureResultOf(before, LinkLost)
        self.failureResultOf(after, LinkLost)
        self.assertEqual(lost, [1])

    def test_a_cancelled_question_drops_its_answer(self) -> None:
        self.wire.near.serves = {"ping": lambda message: None}
        answer = self.wire.far.ask("ping")
        answer.cancel()
        self.failureResultOf(answer)
        self.wire.run()
        self.assertIs(self.wire.far.state, LinkState.OPEN)

    def test_what_is_too_long_is_refused_where_it_is_sent_and_the_link_goes_on(self) -> None:
        self.patch(frames, "LONGEST", 200)
        near, far = self.wire.near, self.wire.far
        near.serves = {"echo": lambda message: {"said": message["said"]}, "more": lambda message: {"said": 201 * "x"}}
        self.failureResultOf(far.ask("echo", said=201 * "x"), TooLong)
        self.assertRaises(TooLong, far.tell, "echo", said=201 * "x")
        self.assertFalse(self.wire.waits(near))
        answer, other = far.ask("more"), far.ask("echo", said="x")
        self.wire.run()
        self.failureResultOf(answer, errors.Unavailable)
        self.assertEqual(len(self.flushLoggedErrors(TooLong)), 1)
        self.assertEqual(self.successResultOf(other)["said"], "x")
        self.wire.lose()

    def test_what_is_as_long_as_may_be_arrives(self) -> None:
        heard: list[int] = []
        self.wire.near.serves = {"hear": lambda message: heard.append(len(message["said"]))}
        room = frames.LONGEST - len(json.dumps({"do": "hear", "said": ""}, separators=(",", ":")))
        self.wire.far.tell("hear", said=room * "x")
        self.wire.run()
        self.assertEqual(heard, [room])
        self.assertRaises(TooLong, self.wire.far.tell, "hear", said=(room + 1) * "x")

    def test_nonsense_closes_the_link(self) -> None:
        def picky(message: dict[str, Any]) -> None:
            number_of(message, "count")

        for data in (
            struct.pack(">I", LONGEST + 1),
            struct.pack(">I", 3) + b"{]}",
            frame([1, 2]),
            frame({"do": "pick", "id": 1}),
            frame({"do": "pick", "count": "many"}),
            frame({"do": "refuse"}),
        ):
            link, end = Link(Clock()), End()
            link.makeConnection(end)

            def refuse(message: dict[str, Any]) -> None:
                raise errors.NotFound

            link.serves = {"pick": picky, "refuse": refuse}
            link.dataReceived(data)
            self.assertTrue(end.closed, data)

    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text()), max_size=5), st.data())
    def test_messages_are_whole_whatever_the_pieces_they_come_in(self, bodies: list[Any], data: st.DataObject) -> None:
        wire = Wire(Clock())
        heard: list[Any] = []
        wire.near.serves = {"hear": lambda message: heard.append(message["body"])}
        for body in bodies:
            wire.far.tell("hear", body=body)
        while wire.waits(wire.near):
            wire.deliver(wire.near, data.draw(st.integers(1, 40)))
        self.assertEqual(heard, bodies)

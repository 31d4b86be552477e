"""Control calls on their way from a proxy to its daemon and back: answers, late answers, refusals, events, clients that leave."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ServerName
from sticky.isticky import Answer, ControlRequest, IEventStream
from sticky.workers.control import FarControl, NearControl
from tests.fakes.links import Wire
from tests.fakes.routing import FakeControl

REQUEST = ControlRequest(
    server=ServerName("one"),
    sessioned=True,
    unauthenticated=False,
    method=b"POST",
    path=b"/_modal/sessions/start",
    query=b"",
    headers=((b"Authorization", b"Bearer wk-a.ws-b"),),
    client="127.0.0.1",
    origin_allowed=True,
)


@implementer(IEventStream)
class Stream:
    """Written by the test."""

    def __init__(self) -> None:
        self.write: Any = None
        self.finish: Any = None
        self.stopped = False

    def start(self, write: object, finish: object) -> None:
        self.write, self.finish = write, finish

    def stop(self) -> None:
        self.stopped = True


class ControlCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.fake = FakeControl()
        self.far = FarControl()
        self.connect()

    def connect(self) -> None:
        self.wire = Wire(Clock())
        self.near = NearControl(self.fake, self.wire.near)
        self.wire.near.serves = self.near.calls()
        self.wire.far.serves = self.far.calls()
        self.far.connect(self.wire.far)

    def ask(self) -> Deferred[Any]:
        answer = self.far.answer(REQUEST)
        assert isinstance(answer, Deferred)
        self.wire.run()
        return answer


class ControlTests(ControlCase):
    def test_the_daemon_sees_the_request_and_the_client_the_answer(self) -> None:
        self.assertEqual(self.successResultOf(self.ask()), self.fake.answer_with)
        self.assertEqual(self.fake.requests, [REQUEST])

    def test_a_refusal_is_the_same_refusal(self) -> None:
        self.fake.answer_with = errors.QueueFull(retry_after=2.0)
        refusal = self.failureResultOf(self.ask(), errors.QueueFull).value
        self.assertEqual(refusal.retry_after, 2.0)

    def test_a_late_answer(self) -> None:
        late = self.fake.wait()
        answer = self.ask()
        self.assertNoResult(answer)
        late.callback(Answer(200, (), b"late"))
        self.wire.run()
        self.assertEqual(self.successResultOf(answer).body, b"late")

    def test_a_client_that_leaves_gives_its_place_up(self) -> None:
        self.fake.wait()
        answer = self.ask()
        answer.cancel()
        self.failureResultOf(answer)
        self.wire.run()
        self.assertEqual(self.fake.cancelled, 1)

    def test_a_proxy_that_is_gone_gives_all_places_up(self) -> None:
        self.fake.wait()
        self.ask()
        self.near.stop()
        self.assertEqual(self.fake.cancelled, 1)


class EventTests(ControlCase):
    def setUp(self) -> None:
        super().setUp()
        self.stream = Stream()
        self.fake.answer_with = self.stream
        self.written: list[bytes] = []
        self.finished: list[int] = []

    def begin(self) -> Any:
        shown = self.successResultOf(self.ask())
        self.assertIsNone(self.stream.write, "nobody listens yet")
        shown.start(self.written.append, lambda: self.finished.append(1))
        self.wire.run()
        return shown

    def test_events_pass_in_order_to_the_end(self) -> None:
        self.begin()
        for event in (b"event: queued\n\n", b"\xff"):
            self.stream.write(event)
        self.stream.finish()
        self.wire.run()
        self.assertEqual((self.written, self.finished), ([b"event: queued\n\n", b"\xff"], [1]))

    def test_a_client_that_leaves_stops_the_stream(self) -> None:
        self.begin().stop()
        self.wire.run()
        self.assertTrue(self.stream.stopped)
        self.stream.write(b"late")
        self.wire.run()
        self.assertEqual(self.written, [])

    def test_a_proxy_that_is_gone_stops_the_stream(self) -> None:
        self.begin()
        self.near.stop()
        self.assertTrue(self.stream.stopped)


class NextDaemonTests(ControlCase):
    def test_what_waits_is_asked_again_of_the_next_daemon(self) -> None:
        self.fake.wait()
        answer = self.ask()
        self.far.disconnect()
        self.wire.lose()
        self.assertNoResult(answer)
        self.fake.answer_with = Answer(200, (), b"next")
        self.connect()
        self.wire.run()
        self.assertEqual(self.successResultOf(answer).body, b"next")

    def test_a_stream_goes_on_with_the_next_daemons_events(self) -> None:
        first, second = Stream(), Stream()
        written: list[bytes] = []
        self.fake.answer_with = first
        self.successResultOf(self.ask()).start(written.append, lambda: written.append(b"."))
        self.wire.run()
        self.far.disconnect()
        self.wire.lose()
        self.fake.answer_with = second
        self.connect()
        self.wire.run()
        second.write(b"again")
        second.finish()
        self.wire.run()
        self.assertEqual(written, [b"again", b"."])

    def test_calls_made_while_there_is_no_daemon_wait_for_the_next(self) -> None:
        self.far.disconnect()
        answer = self.ask()
        self.assertNoResult(answer)
        self.connect()
        self.wire.run()
        self.assertEqual(self.successResultOf(answer), self.fake.answer_with)

"""Control calls while a daemon hands over: answered here, waiting for a moment, answered by the next daemon; each once."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.isticky import Answer
from sticky.workers.switch import Answers, ControlSwitch
from tests.fakes.routing import FakeControl
from tests.workers.test_control import REQUEST, Stream

DONE = Answer(200, (), b"done")


class SwitchTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.here, self.there = FakeControl(), FakeControl()
        self.there.answer_with = DONE
        self.switch = ControlSwitch(self.here)

    def ask(self) -> Deferred[Any]:
        answer = self.switch.answer(REQUEST)
        assert isinstance(answer, Deferred)
        return answer

    def go(self) -> None:
        self.switch.go(self.there)  # type: ignore[arg-type]

    def test_answers_and_refusals_are_those_of_here(self) -> None:
        self.assertIs(self.switch.answer(REQUEST), self.here.answer_with)
        self.here.answer_with = errors.QueueFull()
        self.assertRaises(errors.QueueFull, self.switch.answer, REQUEST)
        late = self.here.wait()
        answer = self.ask()
        late.errback(errors.QueueTimedOut())
        self.failureResultOf(answer, errors.QueueTimedOut)

    def test_a_client_that_leaves_is_known_here(self) -> None:
        self.here.wait()
        answer = self.ask()
        answer.cancel()
        self.failureResultOf(answer)
        self.assertEqual(self.here.cancelled, 1)

    def test_what_comes_in_a_pause_is_answered_after_it(self) -> None:
        self.switch.pause()
        answer = self.ask()
        self.assertNoResult(answer)
        self.assertEqual(self.here.requests, [])
        self.switch.resume()
        self.assertEqual(self.successResultOf(answer), self.here.answer_with)
        self.assertIs(self.switch.state, Answers.HERE)

    def test_what_waits_here_is_asked_there_and_its_place_here_given_up(self) -> None:
        self.here.wait()
        before = self.ask()
        self.switch.pause()
        during = self.ask()
        self.go()
        self.assertEqual([self.successResultOf(one) for one in (before, during)], [DONE, DONE])
        self.assertEqual((self.here.cancelled, self.there.requests), (1, [REQUEST, REQUEST]))
        self.assertIs(self.switch.answer(REQUEST), DONE)

    def test_what_is_refused_there_is_refused(self) -> None:
        self.here.wait()
        answer = self.ask()
        self.there.answer_with = errors.QueueFull()
        self.go()
        self.failureResultOf(answer, errors.QueueFull)

    def test_a_stream_goes_on_with_the_events_of_there(self) -> None:
        first, second = Stream(), Stream()
        self.here.answer_with = first
        shown: Any = self.switch.answer(REQUEST)
        written: list[bytes] = []
        shown.start(written.append, lambda: written.append(b"."))
        first.write(b"1")
        self.there.answer_with = second
        self.go()
        self.assertTrue(first.stopped)
        second.write(b"2")
        second.finish()
        self.assertEqual(written, [b"1", b"2", b"."])

    def test_a_stream_that_is_answered_there_ends(self) -> None:
        self.here.answer_with = Stream()
        shown: Any = self.switch.answer(REQUEST)
        written: list[bytes] = []
        shown.start(written.append, lambda: written.append(b"."))
        self.go()
        self.assertEqual(written, [b"."])

    def test_who_comes_to_a_plain_server_is_judged_here_or_by_whoever_decides_then(self) -> None:
        self.assertIsNone(self.switch.let_in(REQUEST))
        self.here.let_in_with = errors.NoCredential()
        self.assertRaises(errors.NoCredential, self.switch.let_in, REQUEST)
        self.switch.pause()
        self.assertIs(self.switch.let_in(REQUEST), REQUEST)
        self.switch.resume()
        self.assertRaises(errors.NoCredential, self.switch.let_in, REQUEST)
        self.go()
        self.assertIs(self.switch.let_in(REQUEST), REQUEST)

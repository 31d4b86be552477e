"""Log streams, with a clock that a test turns."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import Logger, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.admin.recent import Recent
from sticky.admin.streams import POLL, LogStream, Wanted
from tests.fakes.inspection import BOX, FakeInspection


class StreamTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        self.inspection = FakeInspection(folder)
        self.clock = Clock()
        self.recent = Recent()
        self.log = Logger("sticky.test", observer=LogPublisher(self.recent))
        self.path = folder / "game.ct-box1.log"
        self.path.write_text("one\ntwo\nthree\n")
        self.sent = b""
        self.finished = 0

    def stream(self, **wanted: Any) -> LogStream:
        stream = LogStream(self.inspection, self.recent, Wanted(**wanted), self.clock)
        self.addCleanup(stream.stop)
        stream.start(self.write, self.finish)
        return stream

    def write(self, data: bytes) -> None:
        self.sent += data

    def finish(self) -> None:
        self.finished += 1

    def texts(self) -> list[str]:
        sent, self.sent = self.sent, b""
        return [json.loads(line)["text"] for line in sent.splitlines()]

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def test_what_is_there_and_the_end(self) -> None:
        self.add("unfinished")
        self.stream(last=2)
        self.assertEqual((self.texts(), self.finished), (["two", "three", "unfinished"], 1))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_each_line_says_where_it_is_from(self) -> None:
        self.stream(last=1)
        self.assertEqual(json.loads(self.sent), {"kind": "output", "server": "game", "container": BOX, "text": "three"})

    def test_following(self) -> None:
        stream = self.stream(follow=True, last=0)
        self.assertEqual(self.texts(), [])
        self.add("four\n")
        self.clock.advance(POLL)
        self.assertEqual((self.texts(), self.finished), (["four"], 0))
        stream.stop()
        stream.stop()
        self.assertEqual((self.finished, self.clock.getDelayedCalls()), (0, []))

    def test_a_followed_container_that_ends_ends_the_stream_with_its_last_words(self) -> None:
        self.stream(follow=True, last=0, container=BOX)
        self.add("good\nbye")
        self.inspection.live = False
        self.clock.advance(POLL)
        self.assertEqual((self.texts(), self.finished), (["good", "bye"], 1))

    def test_all_containers_are_followed_beyond_the_end_of_one(self) -> None:
        self.inspection.live = False
        self.stream(follow=True, last=0)
        self.clock.advance(POLL)
        self.assertEqual(self.finished, 0)

    def test_a_client_that_does_not_read_is_not_drowned(self) -> None:
        stream = self.stream(follow=True, last=0)
        stream.pause()
        self.add("four\n")
        self.clock.advance(POLL)
        self.assertEqual(self.texts(), [])
        stream.resume()
        self.clock.advance(POLL)
        self.assertEqual(self.texts(), ["four"])

    def test_events_of_a_session(self) -> None:
        self.log.info("about {session}", session="sd-1")
        self.log.info("about {session}", session="sd-2")
        self.stream(events=True, output=False, session="sd-1", follow=True)
        self.assertEqual(self.texts(), ["about sd-1"])
        self.log.info("more about {session}", session="sd-1")
        self.clock.advance(POLL)
        self.assertEqual(self.texts(), ["more about sd-1"])

    def test_as_many_of_the_latest_events_as_are_wanted(self) -> None:
        for number in range(5):
            self.log.info("{number}", number=number)
        self.stream(events=True, output=False, last=2)
        self.assertEqual(self.texts(), ["3", "4"])

    def test_events_of_a_server_or_a_container(self) -> None:
        self.log.info("a", server="game", container="ct-1x")
        self.log.info("b", server="echo", container="ct-2x")
        self.stream(events=True, output=False, server="echo")
        self.stream(events=True, output=False, container="ct-1")
        self.assertEqual(self.texts(), ["b", "a"])

    def test_an_unknown_container_is_refused_before_the_stream_begins(self) -> None:
        self.assertRaises(errors.UnknownContainer, self.stream, container="ct-nope")

    def test_the_beginning_of_an_id_means_one_container_for_the_streams_whole_life(self) -> None:
        self.stream(follow=True, last=0, container="ct-b")
        self.inspection.others = ["ct-box2"]  # from now on the beginning would be ambiguous
        self.add("four\n")
        self.clock.advance(POLL)
        self.assertEqual((self.texts(), self.finished), (["four"], 0))

    def test_a_beginning_that_several_have_is_refused_before_the_stream_begins(self) -> None:
        self.inspection.others = ["ct-box2"]
        self.assertRaises(errors.AmbiguousId, self.stream, container="ct-b")

    def test_a_container_that_is_forgotten_ends_the_stream(self) -> None:
        self.stream(follow=True, last=0, container=BOX)
        self.inspection.forgotten = True
        self.clock.advance(POLL)
        self.assertEqual((self.finished, self.clock.getDelayedCalls()), (1, []))

    def test_a_fault_of_ours_ends_the_stream_and_is_logged(self) -> None:
        self.stream(follow=True, last=0)
        self.patch(self.inspection, "state_dir", None)
        self.clock.advance(POLL)
        self.assertEqual((self.finished, self.clock.getDelayedCalls()), (1, []))
        self.assertEqual(1, len(self.flushLoggedErrors(TypeError)))

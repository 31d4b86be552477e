"""A proxy as its daemon knows it: cut off when it is silent, given time when it only lacks the processor, its leases freed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import EndReason
from sticky.workers import frames, messages
from sticky.workers.holder import Proxy
from sticky.workers.processes import Progress
from tests.fakes.clocks import Turning
from tests.fakes.links import Wire
from tests.fakes.routing import SESSION
from tests.integration.running_daemon import until


class SilenceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Turning()
        self.wire = Wire(self.clock)
        self.works = False
        self.gone: list[Proxy] = []
        self.proxy = Proxy("p", self.wire.near, None, self.clock, self.gone.append, lambda: self.works)  # type: ignore[arg-type]

    def closed(self) -> bool:
        return self.wire._ends[self.wire.near].closed

    def test_one_that_says_nothing_for_a_second_is_cut_off_and_whoever_waits_goes_on(self) -> None:
        self.proxy.ended(SESSION, EndReason.TERMINATED, None)
        settled = self.proxy.settled()
        self.clock.advance(messages.SILENCE - 0.01)
        self.assertNoResult(settled)
        self.clock.advance(0.02)
        self.successResultOf(settled)
        self.assertTrue(self.closed())

    def test_one_that_works_has_more_time_but_not_for_ever(self) -> None:
        self.works = True
        self.proxy.ended(SESSION, EndReason.TERMINATED, None)
        for _ in range(48):
            self.clock.advance(0.1)
        self.assertFalse(self.closed())
        for _ in range(4):
            self.clock.advance(0.1)
        self.assertTrue(self.closed())

    def test_one_whose_answer_has_come_while_this_process_stood_still_is_left_in_peace(self) -> None:
        """A reactor calls what is due before it reads: after a standstill the answer is there, and has not been read."""
        for seconds in (messages.SILENCE, messages.STARVED, messages.STALLED + 1):
            self.wire.far.serves = {messages.END: lambda message: None}
            self.proxy.ended(SESSION, EndReason.TERMINATED, None)
            settled = self.proxy.settled()
            self.clock.read = self.wire.run
            self.clock.advance(seconds)
            self.successResultOf(settled)
            self.assertFalse(self.closed())

    def test_one_that_refuses_what_it_is_told_is_cut_off(self) -> None:
        settled = self.proxy.push(messages.CONFIGURE, config={})
        self.assertTrue(self.proxy.believed)
        self.wire.run()  # the other end knows no such message
        self.successResultOf(settled)
        self.assertEqual((self.proxy.believed, self.gone), (False, [self.proxy]))

    def test_one_that_cannot_be_told_is_cut_off(self) -> None:
        self.patch(frames, "LONGEST", 100)
        self.successResultOf(self.proxy.push(messages.CONFIGURE, config=101 * "x"))
        self.wire.lose_if_closed()
        self.assertEqual((self.proxy.believed, self.gone), (False, [self.proxy]))

    def test_one_that_has_something_to_be_told_as_this_process_goes_on_is_watched_by_one_timer(self) -> None:
        self.wire.near.serves = {"ask": lambda message: self.proxy.ended(SESSION, EndReason.TERMINATED, None)}
        self.proxy.rest()
        self.wire.far.tell("ask")
        end = self.wire._ends[self.wire.far]
        self.wire.near.dataReceived(end.sent)  # the reactor had it already
        end.sent = b""
        self.proxy.wake()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.wire.far.serves = {messages.END: lambda message: None}
        self.wire.run()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_acknowledges_is_left_in_peace(self) -> None:
        self.wire.far.serves = {messages.END: lambda message: None}
        self.proxy.ended(SESSION, EndReason.TERMINATED, None)
        settled = self.proxy.settled()
        self.wire.run()
        self.successResultOf(settled)
        self.clock.advance(60)
        self.assertFalse(self.closed())


class ProgressTests(SynchronousTestCase):
    def test_a_process_that_works_one_that_sleeps_and_none(self) -> None:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            progress = Progress(busy.pid)
            until("it works", progress.made, within=60)
            os.kill(busy.pid, signal.SIGSTOP)
            until("it stands still", lambda: not progress.made(), within=60)
            self.assertFalse(progress.made())
        finally:
            busy.kill()
            busy.wait()
        self.assertFalse(Progress(busy.pid).made())

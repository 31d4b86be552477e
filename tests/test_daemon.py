"""The daemon's stop is bounded, whatever those who are connected answer, and a second signal waits for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.daemon import Daemon, Servers
from sticky.journal.service import NoJournalService


class StopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.websockets: Deferred[None] = Deferred()
        self.cuts = 0
        journal = NoJournalService(Path(self.mktemp()))
        parts: dict[str, Any] = {"listeners": Service(), "admin": Service(), "health": Service()}
        self.daemon = Daemon(
            servers=Servers([]),
            backends=[],
            close_websockets=lambda: self.websockets,
            cut=self.cut,
            clock=self.clock,
            shutdown_timeout=7.0,
            journal=journal,
            watch_hangup=lambda: None,
            remember=lambda name, options: None,
            **parts,
        )

    def cut(self) -> None:
        self.cuts += 1
        if not self.websockets.called:
            self.websockets.callback(None)

    def test_a_websocket_that_answers_no_close_is_cut_when_the_time_is_up(self) -> None:
        stopped = self.daemon.stopService()
        self.clock.advance(6.9)
        self.assertNoResult(stopped)
        self.clock.advance(0.2)
        self.successResultOf(stopped)
        self.assertEqual(self.cuts, 1)

    def test_a_second_signal_cuts_now(self) -> None:
        stopped = self.daemon.stopService()
        self.daemon.kill()
        self.successResultOf(stopped)

    def test_those_who_answer_are_not_cut(self) -> None:
        stopped = self.daemon.stopService()
        self.websockets.callback(None)
        self.successResultOf(stopped)
        self.assertEqual((self.cuts, self.clock.getDelayedCalls()), (0, []))

"""The daemon's stop is bounded, whatever those who are connected answer, and a second signal waits for nobody."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import ServerName
from sticky.daemon import Daemon, Servers
from sticky.journal.service import NoJournalService


class DaemonCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.websockets: Deferred[None] = Deferred()
        self.cuts = 0
        journal = NoJournalService(Path(self.mktemp()))
        self.listeners = Service()
        parts: dict[str, Any] = {"listeners": self.listeners, "admin": Service(), "health": Service()}
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


class StopTests(DaemonCase):
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

    def test_it_is_first_known_whether_another_daemon_is_in_charge(self) -> None:
        decided: Deferred[None] = Deferred()
        self.daemon.decide = lambda: decided
        stopped = self.daemon.stopService()
        self.websockets.callback(None)
        self.assertNoResult(stopped)
        left: list[str] = []

        async def leave() -> None:
            left.append("as somebody else's proxy")

        self.daemon.left = leave
        decided.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(left, ["as somebody else's proxy"])

    def test_whoever_fails_to_say_so_keeps_nothing_from_being_stopped(self) -> None:
        def fails() -> Deferred[None]:
            raise ProcessLookupError

        self.daemon.decide = fails
        stopped = self.daemon.stopService()
        self.websockets.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(len(self.flushLoggedErrors(ProcessLookupError)), 1)

    def test_a_journal_that_hangs_does_not_keep_it_for_ever(self) -> None:
        hangs: Deferred[None] = Deferred()

        async def close() -> None:
            await hangs

        self.patch(self.daemon._journal, "close", close)
        stopped = self.daemon.stopService()
        self.websockets.callback(None)
        self.assertNoResult(stopped)
        self.clock.advance(7.1)
        self.successResultOf(stopped)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_whoever_cannot_say_so_does_not_keep_it_for_ever(self) -> None:
        self.daemon.decide = Deferred
        stopped = self.daemon.stopService()
        self.websockets.callback(None)
        self.clock.advance(7.1)
        self.successResultOf(stopped)
        self.assertEqual(len(self.flushLoggedErrors()), 1)


class Before:
    """The daemon that ours is to replace."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.patience = 0.0
        self.take_up: Any = None
        self.begin: Any = None
        self.open_up: Any = None

    def take_over(self, take_up: Any, begin: Any, open_up: Any) -> None:
        self.take_up, self.begin, self.open_up = take_up, begin, open_up

    def give_up(self) -> None:
        self.done.append("give up")


class Noting:
    """A Server and a backend in one, that note what they are told."""

    server = ServerName("one")
    running = False

    def __init__(self) -> None:
        self.told: list[str] = []
        self.fails = False
        self.fleet = SimpleNamespace(capacity=SimpleNamespace(containers={}))

    def __getattr__(self, name: str) -> Any:
        def note(*_: object) -> tuple[()]:
            self.told.append(name)
            if self.fails:
                raise OSError(24, "Too many open files")
            return ()

        return note


class SuccessorTests(DaemonCase):
    def test_nothing_is_carried_out_nor_killed_before_it_is_in_charge(self) -> None:
        """The earlier one may yet go on, with all its containers."""
        self.daemon.predecessor = before = Before()  # type: ignore[assignment]
        one = Noting()
        self.daemon._servers.add(one)  # type: ignore[arg-type]
        self.daemon._backends = [one]  # type: ignore[list-item]
        self.daemon.startService()
        self.assertEqual(one.told, [])
        before.take_up()
        self.assertEqual(one.told, ["rest", "recall"])
        before.begin()
        self.assertEqual(one.told, ["rest", "recall", "wake", "orphans"])

    def test_in_charge_it_goes_on_with_what_it_can(self) -> None:
        """The earlier one has gone: there is nobody else."""
        self.daemon.predecessor = before = Before()  # type: ignore[assignment]
        one, other = Noting(), Noting()
        one.fails = True
        other.server = ServerName("two")
        for each in (one, other):
            self.daemon._servers.add(each)  # type: ignore[arg-type]
        self.daemon._backends = [one, other]  # type: ignore[list-item]
        self.daemon.startService()
        before.begin()
        before.open_up()
        self.assertEqual(other.told, ["wake", "orphans", "startService"])
        self.assertTrue(self.listeners.running)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 3)

    def test_told_to_end_it_asks_first_who_is_in_charge_and_never_opens_up(self) -> None:
        self.daemon.predecessor = before = Before()  # type: ignore[assignment]
        self.daemon.startService()
        stopped = self.daemon.stopService()
        self.assertEqual(before.done, ["give up"])
        self.websockets.callback(None)
        self.successResultOf(stopped)
        before.open_up()
        self.assertFalse(self.listeners.running)

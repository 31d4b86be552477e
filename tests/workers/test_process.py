"""A worker's own edge: made when the daemon has said what to serve, with what makes the daemon's own edge quick. And its end."""

from __future__ import annotations

import contextlib
import os
import select

from twisted.trial.unittest import SynchronousTestCase

from sticky import worker as process
from sticky.edge.turns import Turn
from sticky.worker import WorkerProcess
from sticky.workers.messages import TRY_FOR
from tests.fakes.transport import FakeReactor
from tests.workers.test_told import K1, config


class Ended(Exception):
    """Where a process would be no more."""


class LastWordsTests(SynchronousTestCase):
    """Why a worker ends is said where its daemon's own last words are, and its status says that something was wrong."""

    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.worker = WorkerProcess(self.reactor, "worker-1", [], None)
        reading, writing = os.pipe()
        self.stderr = os.fdopen(reading, "rb", buffering=0)
        self.addCleanup(self.stderr.close)
        self.addCleanup(os.close, writing)
        os.set_blocking(reading, False)
        self.patch(process, "STDERR", writing)
        self.writing = writing

        def exit(status: int) -> None:
            raise Ended(status)

        self.patch(os, "_exit", exit)

    def status(self) -> int:
        """That of its end, which comes now."""
        return int(self.assertRaises(Ended, self.worker._lost).args[0])

    def test_that_of_one_whose_daemon_cannot_be_reached(self) -> None:
        self.worker.far.connect("\0nowhere")
        self.reactor.advance(TRY_FOR)
        ended = self.assertRaises(Ended, self.reactor.dials[-1].factory.clientConnectionFailed, None, None)
        self.assertEqual(ended.args, (1,))
        self.assertEqual(self.stderr.read(), b"sticky: worker-1 ends: the daemon could not be reached within 10 s\n")

    def test_none_are_said_of_one_whose_daemon_is_gone(self) -> None:
        self.assertEqual((self.status(), self.stderr.read()), (1, None))

    def test_one_that_another_daemon_starts_workers_of_its_own_instead_of_ends_in_order(self) -> None:
        self.patch(process, "die_with", lambda parent: None)
        self.assertEqual(self.assertRaises(Ended, self.worker._moved, 5.0).args, (0,))

    def test_nobody_is_waited_for_who_does_not_read_them(self) -> None:
        self.worker.far.ended_for = "x" * 100_000
        self.status()
        self.assertEqual(len(self.stderr.read(200_000)), select.PIPE_BUF, "and they are short enough to go in whole")
        os.set_blocking(self.writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writing, bytes(4096))
        os.set_blocking(self.writing, True)
        self.assertEqual(self.status(), 1)


class WorkerProcessTests(SynchronousTestCase):
    def test_its_requests_of_one_turn_go_out_together_as_the_daemons_own_do(self) -> None:
        turn = Turn()
        worker = WorkerProcess(FakeReactor(), "w", [], turn)
        worker._welcomed(config({"k1": K1}))
        assert worker._context is not None
        self.addCleanup(worker._context.stop)
        self.assertIs(worker._context.turn, turn)

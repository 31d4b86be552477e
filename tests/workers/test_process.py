"""A worker's own edge: made when the daemon has said what to serve, with what makes the daemon's own edge quick."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky.edge.turns import Turn
from sticky.worker import WorkerProcess
from tests.fakes.transport import FakeReactor
from tests.workers.test_told import K1, config


class WorkerProcessTests(SynchronousTestCase):
    def test_its_requests_of_one_turn_go_out_together_as_the_daemons_own_do(self) -> None:
        turn = Turn()
        worker = WorkerProcess(FakeReactor(), "w", [], turn)
        worker._welcomed(config({"k1": K1}))
        assert worker._context is not None
        self.addCleanup(worker._context.stop)
        self.assertIs(worker._context.turn, turn)

"""What a fork server of sandboxes imports."""

from __future__ import annotations

import sys

from twisted.trial.unittest import SynchronousTestCase

from sticky.forking.fitness import Unfit
from sticky.sandbox import forkserver


class PrepareTests(SynchronousTestCase):
    def test_a_module_that_cannot_be_imported_says_which(self) -> None:
        error = self.assertRaises(Unfit, forkserver.prepare, ["no_such_module_anywhere"], [])
        self.assertIn("no_such_module_anywhere", str(error))

    def test_what_every_call_needs_is_there(self) -> None:
        forkserver.prepare([], [])
        self.assertIn("cloudpickle", sys.modules)

"""What keeps a process from being forked."""

from __future__ import annotations

import socket
import threading

from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox import forkserver
from sticky.sandbox.forkserver import Unfit


class FitTests(SynchronousTestCase):
    """This very process has a reactor, perhaps, and sockets: only the additional ones are told apart."""

    def problem(self, kept: tuple[int, ...] = ()) -> str:
        try:
            forkserver.check_fit(kept)
        except Unfit as error:
            return str(error)
        return ""

    def test_a_thread_is_named(self) -> None:
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name="left-behind")
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)
        self.assertIn("left-behind", self.problem())

    def test_a_connection_is_seen(self) -> None:
        before = self.problem()
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        self.assertTrue(self.problem())
        if not before:
            self.assertIn("connection", self.problem())
            self.assertEqual(self.problem((ours.fileno(), theirs.fileno())), "")

    def test_a_module_that_cannot_be_imported_says_which(self) -> None:
        error = self.assertRaises(Unfit, forkserver.prepare, ["no_such_module_anywhere"], [])
        self.assertIn("no_such_module_anywhere", str(error))

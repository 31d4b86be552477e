"""Whose trouble an error is."""

from __future__ import annotations

import errno

from twisted.internet.error import ConnectBindError, ConnectionRefusedError, TimeoutError
from twisted.trial.unittest import SynchronousTestCase

from sticky.exhaustion import is_ours


class ExhaustionTests(SynchronousTestCase):
    def test_no_descriptors_and_no_memory_are_ours(self) -> None:
        for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
            self.assertTrue(is_ours(OSError(number, "none left")))
            self.assertTrue(is_ours(ConnectBindError(number, "none left")))

    def test_what_others_do_or_are_is_not(self) -> None:
        for error in (
            FileNotFoundError(errno.ENOENT, "gone"),
            ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
            TimeoutError(errno.ETIMEDOUT, "late"),
            TimeoutError(),
            OSError("without a number"),
            ValueError(errno.EMFILE),
        ):
            self.assertFalse(is_ours(error), error)

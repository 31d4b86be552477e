"""A listener that cannot be opened: one line that says what to do about it, and status 1."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, cast

from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from sticky.edge.context import EdgeFactory
from sticky.listeners import Listeners


class Refusing(MemoryReactor):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        raise CannotListenError(interface, port, OSError(self.number, os.strerror(self.number)))


class AdviceTests(SynchronousTestCase):
    def line(self, number: int) -> str:
        stderr = io.StringIO()
        self.patch(sys, "__stderr__", stderr)
        folder = Path(self.mktemp())
        folder.mkdir()
        endpoints = ["tcp:80:interface=192.0.2.1"]
        listeners = Listeners(Refusing(number), endpoints, cast(EdgeFactory, object()), folder, {})
        self.assertEqual(self.assertRaises(SystemExit, listeners.privilegedStartService).code, 1)
        self.assertEqual(stderr.getvalue().count("\n"), 1)
        return stderr.getvalue()

    def test_each_reason_has_its_own_advice(self) -> None:
        self.assertIn("Is another daemon running?", self.line(errno.EADDRINUSE))
        self.assertIn("no address of this machine", self.line(errno.EADDRNOTAVAIL))
        self.assertIn("Ports below 1024", self.line(errno.EACCES))
        self.assertIn("Choose another one", self.line(errno.EMFILE))

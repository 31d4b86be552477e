"""The admin socket's life: where it cannot be made for want of room it comes later, and where another daemon went before it at all."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky.admin import service
from sticky.admin.service import AGAIN_AFTER, AdminService
from tests.fakes.inspection import FakeInspection


class Reactor(Clock):
    """Opens Unix sockets, or says why not."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: int | None = None
        self.opened: list[str] = []

    def listenUNIX(self, path: str, factory: object, mode: int) -> object:
        if self.problem is not None:
            raise CannotListenError(None, path, OSError(self.problem, os.strerror(self.problem)))
        self.opened.append(path)
        return self

    def stopListening(self) -> None:
        os.unlink(self.opened[-1])  # as Twisted does


class SocketTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(rmtree, self.folder)
        self.reactor = Reactor()
        self.path = self.folder / "admin.sock"
        self.admin: Any = AdminService(f"unix:{self.path}", FakeInspection(self.folder), self.reactor, lambda *_: None)  # type: ignore[arg-type]
        self.refused: list[str] = []
        self.patch(service, "give_up", lambda text, status: self.refused.append(text))

    def serve(self) -> None:
        self.admin.startService()
        self.addCleanup(self.admin.stopService)

    def test_without_room_for_it_it_comes_when_there_is(self) -> None:
        for problem in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            self.reactor.problem = problem
            self.reactor.opened.clear()
            self.admin.startService()
            self.reactor.advance(AGAIN_AFTER)
            self.assertEqual((self.reactor.opened, self.refused), ([], []))
            self.reactor.problem = None
            self.reactor.advance(AGAIN_AFTER)
            self.assertEqual(self.reactor.opened, [str(self.path)])
            self.admin.stopService()

    def test_one_that_is_not_ours_to_make_is_refused(self) -> None:
        self.reactor.problem = errno.EACCES
        self.serve()
        self.assertIn("cannot open the admin socket", self.refused[0])

    def test_but_not_when_an_earlier_daemon_has_gone_already(self) -> None:
        """That would end all sessions, for want of a door for the operator."""
        self.admin.succeeds = True
        self.reactor.problem = errno.EACCES
        self.admin.privilegedStartService()
        self.admin.take_over()
        self.serve()
        self.assertEqual((self.reactor.opened, self.refused), ([], []))
        self.reactor.problem = None
        self.reactor.advance(AGAIN_AFTER)
        self.assertEqual(self.reactor.opened, [str(self.path)])

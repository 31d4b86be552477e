"""The service manager hears how the daemon stands, where there is one."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.notify import notify, notify_main
from sticky.succession import activated


class NotifyTests(SynchronousTestCase):
    def manager(self, path: str) -> socket.socket:
        listens = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listens.close)
        listens.bind(path)
        listens.settimeout(5)
        return listens

    def test_it_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "notify"))
            listens = self.manager(path)
            self.assertTrue(notify({"NOTIFY_SOCKET": path}, READY=1, MAINPID=7))
            self.assertEqual(listens.recv(100), b"READY=1\nMAINPID=7")
            self.patch(os, "environ", {"NOTIFY_SOCKET": path})
            notify_main(READY=1)
            self.assertEqual(listens.recv(100), f"MAINPID={os.getpid()}\nREADY=1".encode())

    def test_an_abstract_address(self) -> None:
        listens = self.manager(f"\0sticky-test-{os.getpid()}")
        self.assertTrue(notify({"NOTIFY_SOCKET": f"@sticky-test-{os.getpid()}"}, READY=1))
        self.assertEqual(listens.recv(100), b"READY=1")

    def test_nobody_listens(self) -> None:
        self.assertFalse(notify({}, READY=1))
        self.assertFalse(notify({"NOTIFY_SOCKET": "/nonexistent/notify"}, READY=1))


class ActivationTests(SynchronousTestCase):
    def test_sockets_for_somebody_else_are_left_alone(self) -> None:
        self.assertEqual(activated({"LISTEN_FDS": "1", "LISTEN_PID": "1"}), [])
        self.assertEqual(activated({}), [])
        self.assertEqual(activated({"LISTEN_FDS": "many", "LISTEN_PID": str(os.getpid())}), [])

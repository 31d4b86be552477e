"""Unix sockets are reached as what they are: never through a link that somebody has put in their place."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky import doors
from sticky.exhaustion import is_ours
from tests.fakes.descriptors import no_descriptors_left


class DoorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.client = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.client.close)

    def listening(self, name: str) -> socket.socket:
        door = socket.socket(socket.AF_UNIX)
        self.addCleanup(door.close)
        door.bind(str(self.folder / name))
        door.listen()
        return door

    def reached(self, path: Path) -> int:
        return doors.connect(self.client, str(path))

    def test_a_socket_is_reached(self) -> None:
        door = self.listening("door")
        self.assertEqual(self.reached(self.folder / "door"), 0)
        there, _ = door.accept()
        with there:
            self.client.sendall(b"hello")
            self.assertEqual(there.recv(5), b"hello")

    def test_a_path_longer_than_a_sockets_name_may_be(self) -> None:
        self.listening("door")
        deep = self.folder / ("x" * 120)
        deep.mkdir()
        os.rename(self.folder / "door", deep / "door")
        self.assertEqual(self.reached(deep / "door"), 0)

    def test_a_link_is_not_followed(self) -> None:
        self.listening("elsewhere")
        (self.folder / "door").symlink_to(self.folder / "elsewhere")
        self.assertEqual(self.reached(self.folder / "door"), errno.ECONNREFUSED)

    def test_what_is_no_socket_or_takes_nobody_refuses(self) -> None:
        (self.folder / "file").touch()
        os.mkfifo(self.folder / "pipe")
        self.listening("closed").close()
        for name in ("file", "pipe", "closed", "."):
            self.assertEqual(self.reached(self.folder / name), errno.ECONNREFUSED, name)
        self.assertEqual(self.reached(self.folder / "missing"), errno.ENOENT)

    def test_without_descriptors_nobody_is_said_to_refuse(self) -> None:
        self.listening("door")
        with no_descriptors_left():
            error = self.assertRaises(OSError, self.reached, self.folder / "door")
        self.assertTrue(is_ours(error))

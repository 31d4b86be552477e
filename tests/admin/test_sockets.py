"""The admin socket as a file."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.admin.sockets import Taken, find, make_way, private, socket_path


class PathTests(SynchronousTestCase):
    def test_it_is_found_in_every_spelling_of_an_endpoint(self) -> None:
        for text in ("unix:/run/s.sock", "unix:/run/s.sock:mode=600", "unix:mode=600:address=/run/s.sock"):
            self.assertEqual(socket_path(text), Path("/run/s.sock"), text)
        self.assertEqual(socket_path(r"unix:/run/a\:b\=c\\d.sock"), Path(r"/run/a:b=c\d.sock"))

    def test_any_other_endpoint_is_refused(self) -> None:
        for text in ("tcp:80", "unix:mode=600", "unix", ""):
            self.assertRaises(ValueError, socket_path, text)


class FolderCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "admin.sock"

    def bound(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(made.close)
        made.bind(str(self.path))
        return made


class FindTests(FolderCase):
    def test_it_is_in_the_state_directory(self) -> None:
        self.assertEqual(find(self.folder), self.path)

    def test_a_pointer_leads_elsewhere(self) -> None:
        (self.folder / "admin").write_text("/run/sticky.sock\n")
        self.assertEqual(find(self.folder), Path("/run/sticky.sock"))

    def test_a_pointer_that_cannot_be_read_is_none(self) -> None:
        (self.folder / "admin").write_bytes(b"\xff\xfe")
        self.assertEqual(find(self.folder), self.path)


class MakeWayTests(FolderCase):
    def test_where_nothing_is_nothing_happens(self) -> None:
        make_way(self.path)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_socket_of_a_dead_daemon_goes(self) -> None:
        self.bound().close()
        make_way(self.path)
        self.assertFalse(self.path.exists())

    def test_a_living_daemon_keeps_its_place(self) -> None:
        self.bound().listen()
        error = self.assertRaises(Taken, make_way, self.path)
        self.assertIn("another daemon answers", str(error))
        self.assertTrue(self.path.exists())

    def test_what_is_no_socket_is_not_removed(self) -> None:
        self.path.write_text("precious")
        error = self.assertRaises(Taken, make_way, self.path)
        self.assertIn("no socket", str(error))
        self.assertEqual(self.path.read_text(), "precious")

    def test_a_link_to_a_socket_is_not_followed(self) -> None:
        self.path.symlink_to(self.folder / "elsewhere")
        self.assertRaises(Taken, make_way, self.path)
        self.assertTrue(self.path.is_symlink())

    def test_a_folder_that_is_not_there(self) -> None:
        error = self.assertRaises(Taken, make_way, self.folder / "gone" / "admin.sock")
        self.assertIn("its folder is not there", str(error))

    def test_a_path_that_no_socket_can_have(self) -> None:
        error = self.assertRaises(Taken, make_way, self.folder / ("x" * 100))
        self.assertIn("107 bytes", str(error))


class PrivateTests(FolderCase):
    def test_a_socket_is_private_from_the_moment_it_is_there(self) -> None:
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        with private():
            self.bound()
            self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(os.umask(0), 0)

"""A state directory in which something else lies where the daemon has its files: one line that names it, never silence."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.daemon_case import ECHO, server
from tests.integration.running_daemon import Daemon


class InTheWayTests(SynchronousTestCase):
    def refused(self, name: str, *, file: bool = False) -> tuple[int, str]:
        folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, folder)
        (folder / "sticky.toml").write_text(server("echo", ECHO, min_containers=0))
        (folder / "state").mkdir(mode=0o700)
        (folder / "state" / name).touch(0o600) if file else (folder / "state" / name).mkdir()
        daemon = Daemon(folder, "--config", "sticky.toml")
        try:
            status = daemon.wait(60)
        finally:
            daemon.stop()
        lines = [line for line in daemon.output().splitlines() if line.startswith("sticky: ")]
        self.assertEqual(1, len(lines), f"{name}: {daemon.output()}")
        self.assertNotIn("Traceback", daemon.output())
        self.assertIn(str(folder / "state" / name), lines[0])
        return status, lines[0]

    def test_directories_in_the_place_of_files(self) -> None:
        for name, expected in (
            ("lock", 1),
            ("url", 1),
            ("url.new", 1),
            ("admin.sock", 1),
            ("admin", 1),
            ("journal.db", 1),
            ("signing-key", 2),
            ("proxy-token", 2),
        ):
            status, line = self.refused(name)
            self.assertEqual(expected, status, line)

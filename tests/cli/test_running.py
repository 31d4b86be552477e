"""`serve`: when the daemon is replaced, and what counts as a change."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.cli import main
from sticky.cli.problems import Problem
from sticky.cli.running import HINT, Serving, folder_of, not_read, problem_of, stamp
from tests.cli.capture import Captured


class StampTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)

    def seen(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in stamp(self.folder, None))

    def test_sources_below_the_app_count(self) -> None:
        for name in ("app.py", "rooms/room.py", "rooms.toml", "notes.txt", ".git/x.py", "state/x.py", "env/lib/x.py"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        (self.folder / "env/pyvenv.cfg").write_text("")
        self.assertEqual(self.seen(), ["app.py", "rooms.toml", "rooms/room.py"])

    def test_a_sticky_toml_counts_where_it_is_read(self) -> None:
        path = self.folder / "sticky.toml"
        path.write_text("")
        self.assertEqual(self.seen(), [])
        self.assertEqual([*stamp(self.folder, str(path))], [path])

    def test_a_write_changes_it_and_a_look_does_not(self) -> None:
        path = self.folder / "app.py"
        path.write_text("1")
        before = stamp(self.folder, None)
        self.assertEqual(stamp(self.folder, None), before)
        path.write_text("22")
        self.assertNotEqual(stamp(self.folder, None), before)

    def test_a_configuration_elsewhere_counts_and_one_that_is_gone_is_no_error(self) -> None:
        config = self.folder / "x.conf"
        self.assertEqual(stamp(self.folder, str(config)), {})
        config.write_text("")
        self.assertIn(config, stamp(self.folder, str(config)))

    def test_the_folder_of_a_file_and_of_a_module(self) -> None:
        self.assertEqual(folder_of("/srv/game.py:Server"), Path("/srv"))
        self.assertEqual(folder_of("package.module"), Path.cwd())

    def test_a_configuration_beside_the_app_that_nobody_has_asked_for(self) -> None:
        app, toml = self.folder / "app.py", self.folder / "sticky.toml"
        self.assertIsNone(not_read(str(app), None))
        toml.write_text("")
        for target in (str(app), f"{app}:Server"):
            self.assertEqual(not_read(target, None), toml)
            self.assertIsNone(not_read(target, "other.toml"))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        for target in ("app.py", "package.module"):
            self.assertEqual(not_read(target, None), Path("sticky.toml"))
        self.assertIsNone(not_read(".", None))

    def test_that_it_is_not_read_is_said_once_with_how_to_have_it_read(self) -> None:
        captured = Captured(self)
        self.patch(Serving, "run", lambda serving: 0)
        app, toml = self.folder / "app.py", self.folder / "sticky.toml"
        toml.write_text("")
        command = ["serve", str(app), "--state-dir", str(self.folder / "state")]
        self.assertEqual(main(command), 0)
        said = f"sticky: {toml} is there and is not read; with --config {toml} it is\n"
        self.assertEqual((captured.out, captured.err), ("", said))
        captured.clear()
        self.assertEqual(main([*command, "--config", str(toml)]), 0)
        self.assertEqual((captured.out, captured.err), ("", ""))

    def test_what_is_wrong_with_an_app(self) -> None:
        app = self.folder / "app.py"
        app.write_text("import sticky\napp = sticky.App('x')\nraise ValueError('no')\n")
        problem = problem_of(str(app), None)
        assert problem is not None
        self.assertIn("ValueError: no", problem)
        self.assertNotIn("\n", problem)


class FakeChild:
    """In place of a daemon; `status` is None while it runs."""

    made: list[FakeChild] = []

    def __init__(self, command: list[str], **_: Any) -> None:
        self.command = command
        self.status: int | None = None
        self.pid = len(FakeChild.made) + 1
        self.ends = ""
        FakeChild.made.append(self)

    def poll(self) -> int | None:
        return self.status

    def terminate(self) -> None:
        self.ends += "t"

    def kill(self) -> None:
        self.ends += "k"

    def wait(self, timeout: float | None = None) -> int:
        return 0


class ServingTests(SynchronousTestCase):
    """Time passes by what a test does at each sleep."""

    def setUp(self) -> None:
        self.captured = Captured(self)
        FakeChild.made = []
        self.version = 1
        self.toml = 1
        self.problem: str | None = None
        self.refusal: str | None = None
        self.deploys: list[bool] = []
        self.became = "rolling"
        self.up = True
        self.config: Path | None = None

    def serve(self, *steps: Any) -> int:
        todo = list(steps)

        def sleep(_: float) -> None:
            if not todo:
                raise KeyboardInterrupt
            todo.pop(0)()

        def look() -> Any:
            return {Path("/srv/app.py"): (self.version, 1), Path("/srv/sticky.toml"): (self.toml, 1)}

        self.patch(sys.modules["sticky.cli.running"].subprocess, "Popen", FakeChild)

        def deploy(force: bool) -> dict[str, str]:
            self.deploys.append(force)
            if self.refusal is not None:
                raise Problem(self.refusal)
            return {"Game": self.became}

        return Serving(
            ["--app", "app.py"], look, lambda: self.problem, deploy, lambda pid: self.up, sleep, config=self.config
        ).run()

    def change(self) -> None:
        self.version += 1

    def nothing(self) -> None:
        pass

    def test_a_change_is_deployed_to_the_daemon_that_runs(self) -> None:
        self.assertRaises(KeyboardInterrupt, self.serve, self.nothing, self.change, self.nothing, self.nothing)
        self.assertEqual([child.ends for child in FakeChild.made], ["tk"])
        self.assertEqual([True], self.deploys)
        self.assertIn("changed: app.py; Game is rolled over", self.captured.err)

    def test_nothing_is_promised_before_the_daemon_serves(self) -> None:
        self.up = False

        def end() -> None:
            FakeChild.made[-1].status = 1

        self.assertEqual(self.serve(self.nothing, end), 1)
        self.assertEqual(self.captured.err, "")

        def come_up() -> None:
            self.up = True

        self.assertRaises(KeyboardInterrupt, self.serve, self.nothing, come_up, *[self.nothing] * 3)
        self.assertEqual(self.captured.err, f"sticky: {HINT}\n")

    def test_a_changed_configuration_makes_new_containers_only_where_it_says_so(self) -> None:
        def change() -> None:
            self.toml += 1

        self.assertRaises(KeyboardInterrupt, self.serve, change, self.nothing, self.nothing)
        self.assertEqual([False], self.deploys)
        self.assertIn("changed: sticky.toml; Game is rolled over", self.captured.err)

    def test_a_change_that_changes_nothing_is_told_of_files_that_are_read(self) -> None:
        def change() -> None:
            self.toml += 1

        self.became = "unchanged"
        self.assertRaises(KeyboardInterrupt, self.serve, change, self.nothing, self.nothing)
        self.assertEqual(self.captured.err, f"sticky: {HINT}\n")
        self.config = Path("/srv/sticky.toml")
        self.assertRaises(KeyboardInterrupt, self.serve, change, self.nothing, self.nothing)
        self.assertIn("changed: sticky.toml; Game is unchanged\n", self.captured.err)

    def test_what_the_daemon_cannot_take_replaces_it(self) -> None:
        self.refusal = "daemon.brand: a change of this setting needs a restart of the daemon"
        self.assertRaises(KeyboardInterrupt, self.serve, self.nothing, self.change, self.nothing, self.nothing)
        self.assertEqual([child.ends for child in FakeChild.made], ["tk", "tk"])
        self.assertIn("changed: app.py; the daemon is restarted and its sessions end: daemon.brand", self.captured.err)
        self.assertTrue(self.captured.err.endswith("sticky: serving the new version\n"))

    def test_a_version_that_cannot_be_loaded_changes_nothing(self) -> None:
        self.problem = "app.py: line 3"
        self.assertRaises(KeyboardInterrupt, self.serve, self.change, *[self.nothing] * 5)
        self.assertEqual((len(FakeChild.made), self.deploys), (1, []))
        self.assertEqual(self.captured.err.count("go on with the old one: app.py: line 3"), 1)

    def test_its_status_is_the_daemons_where_that_ends_by_itself(self) -> None:
        for status, wanted in ((1, 1), (-15, 143)):

            def end(status: int = status) -> None:
                FakeChild.made[-1].status = status

            self.assertEqual(self.serve(end), wanted)

    def test_the_daemon_is_asked_to_serve_the_app(self) -> None:
        self.assertRaises(KeyboardInterrupt, self.serve)
        self.assertEqual(FakeChild.made[0].command[0], sys.executable)
        self.assertEqual(FakeChild.made[0].command[-2:], ["--app", "app.py"])
        self.assertTrue(os.path.exists(sys.executable))

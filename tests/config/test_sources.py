"""Where a configuration comes from, when another one takes the place of a part of it."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.config.sources import Sources

STATE = Path("/var/lib/game")


class SourcesTests(SynchronousTestCase):
    def test_a_file_in_the_place_of_another(self) -> None:
        old = Sources(Path("a.toml"), None, {"listen": ["tcp:1"]}, Path("/srv"))
        new = old.with_others(Path("b.toml"), None, Path("/home"), STATE)
        self.assertEqual((new.file, new.app, new.cwd), (Path("/home/b.toml"), None, Path("/srv")))
        self.assertEqual(new.flags, {"listen": ["tcp:1"], "state_dir": str(STATE)}, "its state directory stays")

    def test_a_state_directory_from_the_command_line_stays_as_it_was_given(self) -> None:
        old = Sources(Path("a.toml"), None, {"state_dir": "state"}, Path("/srv"))
        self.assertEqual(old.with_others(Path("b.toml"), None, Path("/home"), STATE).flags, {"state_dir": "state"})

    def test_an_app_in_the_place_of_another_keeps_the_file(self) -> None:
        old = Sources(Path("a.toml"), "game.py", {"state_dir": "/s"}, Path("/srv"))
        new = old.with_others(None, "new.py", Path("/home"), STATE)
        self.assertEqual((new.file, new.app, new.cwd), (Path("/srv/a.toml"), "new.py", Path("/home")))
        self.assertEqual(str(new), "new.py and /srv/a.toml")

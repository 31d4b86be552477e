"""What a changed configuration means."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.config.changes import changed, needs_restart, what_runs
from sticky.config.loading import load
from sticky.config.settings import ServerSettings, Settings
from sticky.config.table import SERVER, Change


class ChangeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def load(self, settings: str = "", daemon: str = "") -> Settings:
        file = self.folder / "sticky.toml"
        file.write_text(f'[daemon]\n{daemon}\n[servers.game]\ncommand = ["./game"]\n{settings}\n')
        return load(file=file, app=None, flags={}, cwd=self.folder, environ={"KEY": "v"}, backends=["process"])

    def server(self, settings: str = "") -> ServerSettings:
        return self.load(settings).servers[0]

    def test_what_runs_differs_for_what_makes_a_new_deployment_and_for_nothing_else(self) -> None:
        before = what_runs(self.server())
        for setting in (
            'env = { A = "b" }',
            'secrets = { A = "env:KEY" }',
            'ready = { path = "/up" }',
            "port = 8000",
            "container_max_age = 1000\nidle_timeout = 10",
        ):
            self.assertNotEqual(what_runs(self.server(setting)), before, setting)
        for setting in (
            "max_containers = 3",
            "unauthenticated = true",
            'hosts = ["a.localhost"]',
            'url = "https://a.example.org"',
            "ping_interval = 5",
            'placement = "pack"',
        ):
            self.assertEqual(what_runs(self.server(setting)), before, setting)

    def test_every_setting_of_a_server_is_live_or_makes_a_new_deployment(self) -> None:
        self.assertEqual({setting.change for setting in SERVER}, {Change.LIVE, Change.DEPLOYMENT})
        names = {name for name, _ in what_runs(self.server())}
        expected = {setting.name for setting in SERVER if setting.change is Change.DEPLOYMENT}
        # Secrets are in env by now, and an app says two things of itself.
        self.assertEqual(names, expected - {"ready", "secrets"} | {"ready_path", "app", "reports_ready", "zygote"})

    def test_changed_settings_are_named_as_in_the_file(self) -> None:
        old, new = self.server(), self.server('max_containers = 3\nready = { path = "/up" }')
        self.assertEqual(sorted(changed(old, new)), ["max_containers", "ready"])
        self.assertEqual(changed(old, old), ())

    def test_what_needs_a_restart(self) -> None:
        old = self.load()
        self.assertEqual(needs_restart(old, self.load("max_containers = 3")), ())
        new = self.load(daemon='listen = ["tcp:1"]\nbrand = "other"')
        self.assertEqual(needs_restart(old, new), ("daemon.listen", "daemon.brand"))

"""An app's declaration is read by the table that reads the file, and the file may change it."""

from __future__ import annotations

from sticky.core.values import Policy
from tests.config.toml import ECHO, App, ConfigCase, DeclaredServer


class AppTests(ConfigCase):
    def app(self, *servers: DeclaredServer) -> App:
        return App("game.py", servers)

    def test_an_apps_declaration_is_read_by_the_same_table(self) -> None:
        declared = DeclaredServer(
            name="Game", settings={"max_concurrency": 3, "sessioned": True}, directory=self.folder
        )
        settings = self.load(None, app=self.app(declared))
        (server,) = settings.servers
        self.assertEqual((server.name, server.app, server.command), ("Game", "the-app", declared.command))
        self.assertEqual(server.policy, Policy(max_concurrency=3))
        self.assertEqual((server.port, server.directory, server.reports_ready), (8000, self.folder, True))
        self.assertEqual(settings.daemon.state_dir, self.folder / "state")

    def test_an_apps_wrong_setting_names_the_app(self) -> None:
        for raw, expected in (
            ({"max_concurrency": True}, "max_concurrency: true is not allowed; allowed: a whole number from 1 to 1000"),
            ({"max_conc": 1}, "max_conc: is not a setting; did you mean max_concurrency?"),
            ({"min_containers": 9}, "min_containers: 9 is above max_containers, which is 8"),
        ):
            error = self.refused(None, app=self.app(DeclaredServer(name="Game", settings=raw)))
            self.assertEqual(error, f"game.py: Game.{expected}")

    def test_an_apps_server_may_be_plain_and_the_file_may_make_it_so(self) -> None:
        plain = self.app(DeclaredServer(name="Game", settings={"sessioned": False}))
        self.assertEqual([server.sessioned for server in self.load(None, app=plain).servers], [False])
        (server,) = self.load("[servers.Game]\nsessioned = true", app=plain).servers
        self.assertTrue(server.sessioned and server.policy.sessioned)

    def test_the_file_changes_settings_of_the_apps_server(self) -> None:
        app = self.app(DeclaredServer(name="Game", settings={"max_concurrency": 3, "max_containers": 2}))
        (server,) = self.load("[servers.Game]\nmax_containers = 5", app=app).servers
        self.assertEqual((server.policy.max_concurrency, server.policy.max_containers), (3, 5))
        self.assertEqual(
            self.refused('[servers.Game]\ncommand = ["x"]', app=app),
            "sticky.toml: servers.Game.command: this Server's command comes from the app; allowed: only the other settings",
        )
        self.assertEqual(
            self.refused("[servers.Game]\nmin_containers = 3", app=app),
            "sticky.toml: servers.Game.min_containers: 3 is above max_containers, which is 2",
        )

    def test_the_app_and_the_file_may_each_have_servers(self) -> None:
        app = self.app(DeclaredServer(name="Game", settings={"hosts": ["game"]}))
        settings = self.load(f'{ECHO}hosts = ["echo"]', app=app)
        self.assertEqual([server.name for server in settings.servers], ["Game", "echo"])

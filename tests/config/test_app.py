"""An app's declaration is read by the table that reads the file, and the file may change it."""

from __future__ import annotations

from typing import Any

from sticky.config.settings import ServerSettings
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


class SnapshotTests(ConfigCase):
    """Containers of an app's class that are forked."""

    def game(self, text: str | None = None, **declared: Any) -> ServerSettings:
        (server,) = self.load(text, app=App("game.py", (DeclaredServer(name="Game", **declared),))).servers
        return server

    def wrong(self, text: str, **declared: Any) -> str:
        return self.refused(text, app=App("game.py", (DeclaredServer(name="Game", **declared),)))

    def test_a_class_with_snap_hooks_is_forked(self) -> None:
        self.assertEqual(self.game(snap=True).zygote, ("python", "-m", "zygote"))
        self.assertEqual(self.game().zygote, ())

    def test_preimport_forks_too_and_counts_for_containers_from_scratch(self) -> None:
        server = self.game('[servers.Game]\npreimport = ["json", "decimal"]')
        flags = ("--preimport=json", "--preimport=decimal")
        self.assertEqual(server.zygote, ("python", "-m", "zygote", *flags))
        self.assertEqual(server.command, ("python", "-m", "runtime", *flags))

    def test_it_can_be_forbidden(self) -> None:
        server = self.game("[servers.Game]\nsnapshot = false", snap=True, settings={"preimport": ["json"]})
        self.assertEqual(server.zygote, ())
        self.assertEqual(server.command, ("python", "-m", "runtime", "--preimport=json"))

    def test_what_cannot_be_forked_is_refused_with_a_way_out(self) -> None:
        for line, why in (
            ("isolation = { network = true }", "isolation: network takes a process of its own from its beginning"),
            ("isolation = { read_only = true }", "isolation: read_only takes a process of its own"),
            ("isolation = { private_tmp = true }", "isolation: private_tmp takes a process of its own"),
            (
                'isolation = { descendants = "pid_namespace" }',
                'isolation: descendants = "pid_namespace" takes a process',
            ),
            (
                'backend = "memory"',
                "backend: containers of this Server are forked from a process that has run enter(snap=True)",
            ),
        ):
            error = self.wrong(f"[servers.Game]\n{line}", snap=True)
            self.assertIn(f"sticky.toml: servers.Game.{why}", error)
            self.assertIn("set snapshot = false to have each container do that itself", error)
            self.game(f"[servers.Game]\nsnapshot = false\n{line}", snap=True)
            self.game(f"[servers.Game]\n{line}")

    def test_a_command_has_none(self) -> None:
        self.assertIn(
            "is for an app's class with enter hooks",
            self.wrong('[servers.Game]\npreimport = ["json"]', reports_ready=False),
        )
        for line in ('preimport = ["json"]', "snapshot = true"):
            self.assertIn("is for an app's class", self.refused(ECHO + line))
            self.assertIn("decides it", self.refused(f"[servers.calls]\nsandbox = {{}}\n{line}"))

"""sticky.toml and the command line become settings, or one line that says what to change."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

from sticky.config.loading import load
from sticky.core.values import Placement, Policy
from sticky.errors import ConfigError
from tests.config.toml import ECHO, ConfigCase


class DefaultsTests(ConfigCase):
    def test_a_command_is_all_that_a_server_needs(self) -> None:
        settings = self.load(ECHO)
        (server,) = settings.servers
        self.assertEqual(server.name, "echo")
        self.assertEqual(server.command, ("./echo", "{port}"))
        self.assertEqual(server.policy, Policy())
        self.assertEqual(server.directory, self.folder)
        self.assertIs(server.reports_ready, False)
        self.assertEqual(settings.daemon.listen, ("tcp:8080:interface=127.0.0.1",))
        self.assertEqual(settings.daemon.state_dir, self.folder / "state")
        self.assertEqual(settings.daemon.admin, f"unix:{self.folder}/state/admin.sock")
        self.assertEqual(settings.daemon.brand, "modal")
        self.assertEqual(settings.warnings, ())

    def test_an_admin_port_in_the_clear_wants_a_second_look(self) -> None:
        (line,) = self.load('[daemon]\nadmin_listen = ["tcp:9443"]\n' + ECHO).warnings
        self.assertIn("daemon.admin_listen: tcp:9443 sends admin tokens over the network in the clear", line)
        settings = self.load(
            '[daemon]\nadmin_listen = ["tcp:9443:interface=127.0.0.1"]\nadmin_hosts = ["OPS.example"]\n' + ECHO
        )
        self.assertEqual((settings.daemon.admin_hosts, settings.warnings), (("ops.example",), ()))
        refused = self.refused('[daemon]\nadmin_listen = ["unix:a"]\n' + ECHO)
        self.assertIn("daemon.admin_listen", refused)

    def test_every_setting_of_the_design_is_read(self) -> None:
        server = self.server(
            """
            hosts = ["Echo.Localhost", "[::1]"]
            url = "https://Echo.example.org:443/"
            backend = "memory"
            sessioned = true
            unauthenticated = true
            max_concurrency = 20
            target_concurrency = 10
            min_containers = 1
            max_containers = 3
            buffer_containers = 1
            scaleup_window = 0.5
            scaledown_window = 2
            startup_timeout = 5
            max_total_containers = 4
            max_idle_timeout = 900
            max_queue_per_caller = 7
            max_sessions_per_caller = 8
            half_close_timeout = 3
            allowed_origins = ["https://a.example:443", "http://localhost:3000"]
            exit_grace_period = 9
            container_max_age = 3600
            idle_timeout = 300
            queue_timeout = 30
            max_queue = 50
            placement = "pack"
            serial = true
            session_wait_timeout = 20
            max_session_waiters = 7
            websocket = "messages"
            ready = { path = "/healthz" }
            env = { LEVEL = "1" }
            port = 9000
            ended_status = 401
            websocket_refusal = "http"
            third_party_frames = true
            insecure_cookie = true
            response_timeout = 12.5
            directory = "sub"
            """,
            app=None,
        )
        self.assertEqual(
            server.policy,
            Policy(
                max_concurrency=20,
                target_concurrency=10,
                min_containers=1,
                max_containers=3,
                buffer_containers=1,
                scaleup_window=0.5,
                scaledown_window=2.0,
                startup_timeout=5.0,
                max_total_containers=4,
                max_idle_timeout=900.0,
                max_queue_per_caller=7,
                max_sessions_per_caller=8,
                exit_grace_period=9.0,
                container_max_age=3600.0,
                idle_timeout=300.0,
                queue_timeout=30.0,
                max_queue=50,
                placement=Placement.PACK,
                serial=True,
                session_wait_timeout=20.0,
                max_session_waiters=7,
            ),
        )
        self.assertEqual(server.hosts, ("echo.localhost", "[::1]"))
        self.assertEqual(server.url, "https://echo.example.org")
        self.assertEqual(server.allowed_origins, ("https://a.example", "http://localhost:3000"))
        self.assertEqual(server.ready_path, "/healthz")
        self.assertEqual(dict(server.env), {"LEVEL": "1"})
        self.assertEqual(server.directory, self.folder / "sub")
        self.assertEqual((server.backend, server.port, server.ended_status), ("memory", 9000, 401))
        self.assertEqual((server.websocket, server.websocket_refusal), ("messages", "http"))
        self.assertEqual((server.half_close_timeout, server.response_timeout), (3.0, 12.5))
        self.assertTrue(server.unauthenticated and server.third_party_frames and server.insecure_cookie)

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "sub").mkdir()

    def test_the_daemons_table_is_read_and_the_command_line_wins(self) -> None:
        text = f"""
            [daemon]
            listen = ["tcp:81", "unix:a.sock"]
            state_dir = "sub/state"
            brand = "sticky"
            trusted_proxies = ["10.0.0.0/8", "::1"]
            shutdown_timeout = 5
            {ECHO}"""
        daemon = self.load(text).daemon
        self.assertEqual(daemon.listen, ("tcp:81", f"unix:{self.folder}/a.sock"))
        self.assertEqual(daemon.state_dir, self.folder / "sub/state")
        self.assertEqual(daemon.trusted_proxies, (ip_network("10.0.0.0/8"), ip_network("::1")))
        self.assertEqual((daemon.brand, daemon.shutdown_timeout), ("sticky", 5.0))
        flags = {"listen": ["tcp:82"], "state_dir": "elsewhere", "workers": 1}
        daemon = self.load(text, flags=flags).daemon
        self.assertEqual(daemon.listen, ("tcp:82",))
        self.assertEqual(daemon.state_dir, self.folder / "elsewhere")

    def test_relative_paths_of_a_file_are_relative_to_it(self) -> None:
        (self.folder / "sub/sticky.toml").write_text(f'[daemon]\nlisten = ["unix:a.sock"]\n{ECHO}directory = "."')
        settings = load(
            file=Path("sub/sticky.toml"), app=None, flags={}, cwd=self.folder, environ={}, backends={"process"}
        )
        self.assertEqual(settings.daemon.listen, (f"unix:{self.folder}/sub/a.sock",))
        self.assertEqual(settings.daemon.state_dir, self.folder / "sub/state")
        self.assertEqual(settings.servers[0].directory, self.folder / "sub")


class RefusedSettingTests(ConfigCase):
    def test_each_error_names_key_value_and_what_is_allowed(self) -> None:
        wrong = {
            "max_concurrency = 1001": "max_concurrency: 1001 is not allowed; allowed: a whole number from 1 to 1000",
            "max_concurrency = 0": "max_concurrency: 0 is not allowed; allowed: a whole number from 1 to 1000",
            "max_concurrency = true": "max_concurrency: true is not allowed; allowed: a whole number from 1 to 1000",
            "max_concurrency = 2.0": "max_concurrency: 2.0 is not allowed; allowed: a whole number from 1 to 1000",
            'max_concurrency = "5"': 'max_concurrency: "5" is not allowed; allowed: a whole number from 1 to 1000',
            "scaledown_window = 1.9": "scaledown_window: 1.9 is not allowed; allowed: seconds from 2 to 3600",
            "scaledown_window = nan": "scaledown_window: nan is not allowed; allowed: seconds from 2 to 3600",
            "queue_timeout = 301": "queue_timeout: 301 is not allowed; allowed: seconds from 1 to 300",
            "exit_grace_period = -1": "exit_grace_period: -1 is not allowed; allowed: seconds from 0 to 3600",
            "idle_timeout = 0": "idle_timeout: 0 is not allowed; allowed: seconds from 1 to 2592000",
            "idle_timeout = false": "idle_timeout: false is not allowed; allowed: seconds from 1 to 2592000",
            "unauthenticated = 1": "unauthenticated: 1 is not allowed; allowed: true or false",
            'placement = "random"': 'placement: "random" is not allowed; allowed: "spread" or "pack"',
            "ended_status = 404": "ended_status: 404 is not allowed; allowed: 410 or 401",
            'ready = "http"': 'ready: "http" is not allowed; allowed: "port" or { path = "/..." }',
            'ready = { path = "x" }': 'ready: { path = "x" } is not allowed; allowed: "port" or { path = "/..." }',
            "port = 65536": "port: 65536 is not allowed; allowed: a whole number from 1 to 65535",
            'backend = "docker"': 'backend: "docker" is not installed; allowed: memory, process',
            'directory = "gone"': f"directory: there is no directory '{self.folder}/gone'",
            "hosts = []\nurl = 3": "url: 3 is not allowed; allowed: http:// or https:// with a host and perhaps a port, "
            "such as https://echo.example.org",
        }
        for settings, expected in wrong.items():
            self.assertEqual(self.refused_setting(settings), expected)

    def test_a_misspelt_key_gets_the_right_one(self) -> None:
        self.assertEqual(
            self.refused_setting("max_concurency = 3"),
            "max_concurency: is not a setting; did you mean max_concurrency?",
        )
        self.assertEqual(self.refused("[server.x]"), "sticky.toml: server: is not a setting; did you mean servers?")
        error = self.refused("[daemon]\nzzz = 1")
        self.assertTrue(error.startswith("sticky.toml: daemon.zzz: is not a setting; allowed: listen, admin, "), error)

    def test_values_that_contradict_each_other(self) -> None:
        wrong = {
            "min_containers = 9": "min_containers: 9 is above max_containers, which is 8",
            "min_containers = 2\nmax_containers = 1": "min_containers: 2 is above max_containers, which is 1",
            "buffer_containers = 9": "buffer_containers: 9 is above max_containers, which is 8",
            "max_concurrency = 5\ntarget_concurrency = 6": "target_concurrency: 6 is above max_concurrency, which is 5",
            "max_total_containers = 3": "max_total_containers: 3 is below max_containers, which is 8",
            "max_idle_timeout = 86400": "max_idle_timeout: 86400 is not below container_max_age, which is 86400",
            "max_idle_timeout = 500": "idle_timeout: 600 is above max_idle_timeout, which is 500",
            "container_max_age = 100": "idle_timeout: 600 is above half of container_max_age, which is 50",
        }
        for settings, expected in wrong.items():
            self.assertEqual(self.refused_setting(settings), expected)

    def test_what_this_version_cannot_do_is_said(self) -> None:
        wrong = {
            "max_session_waiters = 0": "max_session_waiters: 0 is not allowed; allowed: a whole number from 1 to 10000",
            "public_names = 1": "public_names: 1 is not allowed; allowed: true or false",
        }
        for settings, expected in wrong.items():
            self.assertEqual(self.refused_setting(settings), expected)
        self.assertIn("unix: endpoint string", self.refused(f'[daemon]\nadmin = "tcp:8081"\n{ECHO}'))

    def test_hosts_urls_and_origins_of_another_form(self) -> None:
        for settings in (
            'hosts = ["a b"]',
            'hosts = ["a:80"]',
            'hosts = ["https://a"]',
            'hosts = [""]',
            'hosts = ["a", "A"]',
            'url = "https://a/path"',
            'url = "ftp://a"',
            'url = "https://a:99999"',
            'url = "https://user@a"',
            'allowed_origins = ["*"]',
            'allowed_origins = ["null"]',
            'allowed_origins = ["a.example"]',
            'allowed_origins = "https://a"',
        ):
            key = settings.partition(" ")[0]
            self.assertTrue(self.refused_setting(settings).startswith(f"{key}: "), settings)

    def test_environment_variables_do_not_show_their_values(self) -> None:
        for settings in (
            "env = { PASSWORD = 12345678 }",
            'env = { "A B" = "12345678" }',
            'env = { PORT = "12345678" }',
            'env = "PASSWORD=12345678"',
            'secrets = { PASSWORD = "12345678" }',
            'secrets = "12345678"',
        ):
            error = self.refused_setting(settings)
            self.assertNotIn("12345678", error)
        self.assertEqual(
            self.refused_setting('secrets = { A = "env:GONE" }'),
            'secrets: the environment variable "GONE" for A is not set',
        )

    def test_secrets_come_from_the_daemons_environment_and_stay_out_of_reprs(self) -> None:
        server = self.server('secrets = { A = "env:B" }\nenv = { C = "d" }', environ={"B": "12345678"})
        self.assertEqual(dict(server.env), {"A": "12345678", "C": "d"})
        self.assertNotIn("12345678", repr(server))


class FileTests(ConfigCase):
    def test_what_is_no_toml_names_the_line(self) -> None:
        self.assertIn("sticky.toml: is not valid TOML: ", self.refused("a =\n"))
        self.assertIn("line 1", self.refused("a =\n"))

    def test_a_file_that_cannot_be_read(self) -> None:
        (self.folder / "sticky.toml").mkdir()
        self.assertEqual(self.failed_to_read(), "sticky.toml: cannot be read: Is a directory")
        (self.folder / "sticky.toml").rmdir()
        self.assertEqual(self.failed_to_read(), "sticky.toml: cannot be read: No such file or directory")
        (self.folder / "sticky.toml").write_bytes(b"# \xff")
        self.assertEqual(self.failed_to_read(), "sticky.toml: is not UTF-8 text (byte 2)")

    def failed_to_read(self) -> str:
        error = self.assertRaises(
            ConfigError,
            load,
            file=Path("sticky.toml"),
            app=None,
            flags={},
            cwd=self.folder,
            environ={},
            backends={"process"},
        )
        return str(error)

    def test_sections_of_the_wrong_kind(self) -> None:
        for text, expected in {
            "daemon = 1": "daemon: 1 is not allowed; allowed: a [daemon] table",
            "servers = []": "servers: [] is not allowed; allowed: [servers.NAME] tables",
            "[servers]\necho = 1": "servers.echo: is not a table; allowed: [servers.NAME] tables",
            "[servers]\nmax_containers = 1": "servers.max_containers: is not a table; allowed: [servers.NAME] tables; "
            "a setting stands in its Server's table",
            "proxy_tokens = {}": "proxy_tokens: is not a list of tables; allowed: [[proxy_tokens]] tables",
            '[servers."a/b"]': "servers.a/b: not a Server's name; allowed: 1 to 63 letters, digits and _ . - "
            "(no . or - in front)",
            "[servers.a]": 'servers.a.command: is missing; give what to run, such as command = ["./server", "{port}"],'
            " or name the app as well whose Server this is (game.py --config sticky.toml)",
            "": "servers: there is none; add a [servers.NAME] table with a command, or give --app",
        }.items():
            self.assertEqual(self.refused(text), f"sticky.toml: {expected}")

    def test_several_servers_each_have_hosts_of_their_own(self) -> None:
        one, other = '[servers.a]\ncommand = ["a"]\nhosts = ["A"]\n', '[servers.b]\ncommand = ["b"]\n'
        self.assertEqual(
            self.refused(one + other),
            'sticky.toml: servers.b.hosts: is missing; with several Servers each needs its own, such as hosts = ["b.localhost"]',
        )
        self.assertEqual(
            self.refused(one + other + 'hosts = ["c", "a"]'),
            'sticky.toml: servers.b.hosts: "a" already reaches the Server a',
        )
        settings = self.load(one + other + 'hosts = ["b"]')
        self.assertEqual([server.hosts for server in settings.servers], [("a",), ("b",)])

    def test_a_state_directory_that_cannot_be(self) -> None:
        (self.folder / "state").write_text("")
        self.assertEqual(
            self.refused(ECHO),
            f"sticky.toml: daemon.state_dir: '{self.folder}/state' is a file; allowed: a directory, existing or not",
        )

    def test_in_a_deep_state_directory_the_admin_socket_is_left_out_unless_it_was_asked_for(self) -> None:
        daemon = self.load(ECHO, flags={"state_dir": "x" * 120}).daemon
        self.assertIsNone(daemon.admin)
        error = self.refused(f'[daemon]\nadmin = "unix:{{state_dir}}/{"x" * 120}.sock"\n{ECHO}')
        self.assertTrue(error.startswith("sticky.toml: daemon.admin: the socket's path "), error)
        self.assertIn("at most 107 bytes", error)


class UnforeseenTests(ConfigCase):
    def test_what_no_table_foresees_is_one_line_all_the_same(self) -> None:
        texts = {
            "nested": "x = " + "[" * 5000 + "]" * 5000,
            "digits": "[servers.a]\ncommand = ['x']\nmax_queue = " + "9" * 5000,
            "path": f"[daemon]\nstate_dir = '{'d' * 5000}'\n[servers.a]\ncommand = ['x']",
        }
        for name, text in texts.items():
            folder = Path(self.mktemp())
            folder.mkdir()
            (folder / "sticky.toml").write_text(text)
            error = self.assertRaises(
                ConfigError,
                load,
                file=Path("sticky.toml"),
                app=None,
                flags={},
                cwd=folder.resolve(),
                environ={},
                backends=["process"],
            )
            self.assertEqual(len(str(error).splitlines()), 1, name)
